//! Lines that carry smaller packets than a path begins with, from the start or midway.

use ptcp::{Config, Event};
use units::{Bytes, Span, SubflowId};

use crate::pair::{Fate, Pair, line, ms};

const NAMES: [(&str, &str); 2] = [("reno", "lowest-rtt"), ("coupled-bbr", "lowest-rtt")];

fn pair(names: (&str, &str), links: usize) -> Pair {
    Pair::new(&Config::default(), names, &vec![line(10, 10); links])
}

/// From here on the first path loses larger payloads than `most`.
fn narrow(pair: &mut Pair, most: usize) {
    pair.fates(move |sent| {
        let is_lost = sent.path == SubflowId(0) && sent.packet.datagram_len() > most;
        if is_lost { Fate::Lost } else { Fate::Arrives }
    });
}

fn is_told_narrow(events: &[Event]) -> bool {
    events.contains(&Event::PathNarrow { path: SubflowId(0) })
}

/// The MTUs 1,228 to 1,500, less the headers of IPv4 and UDP.
fn payloads() -> impl Iterator<Item = usize> {
    (1_200..=1_472).step_by(17)
}

#[test]
fn a_line_that_carries_the_least_size_carries_data_from_the_start() {
    for names in NAMES {
        for most in payloads() {
            let mut pair = pair(names, 1);
            narrow(&mut pair, most);
            pair.run_for(ms(100));
            let stream = pair.bulk(Bytes::mib(2));
            let took = pair.time_of(stream, Bytes::mib(2));
            // 1.7 s at the line's rate.
            assert!(took.is_some_and(|took| took < ms(5_000)), "{names:?}, {most}: {took:?}");
            assert!(!is_told_narrow(pair.events()), "{names:?}, {most}");
        }
    }
}

#[test]
fn a_line_that_shrinks_midway_goes_on() {
    for names in NAMES {
        for most in payloads() {
            let mut pair = pair(names, 1);
            let stream = pair.bulk(Bytes::mib(40));
            pair.run_for(ms(2_000));
            let before = pair.server().received(stream);
            narrow(&mut pair, most);
            let took = pair.time_of(stream, before + Bytes::mib(1));
            assert!(took.is_some_and(|took| took < ms(4_000)), "{names:?}, {most}: {took:?}");
            assert!(!is_told_narrow(pair.events()), "{names:?}, {most}");
        }
    }
}

/// The answers are small and pass; in the other direction the line carries all sizes.
#[test]
fn a_side_that_answers_goes_on_as_well() {
    let mut pair = pair(NAMES[1], 1);
    narrow(&mut pair, 1_230);
    let stream = pair.client().open_stream();
    pair.client().write(stream, Bytes(1));
    pair.run_for(ms(200));
    pair.server().write(stream, Bytes::mib(2));
    pair.run_for(ms(6_000));
    assert_eq!(pair.client().received(stream), Bytes::mib(2));
}

#[test]
fn a_narrow_line_beside_another_is_used_too() {
    let mut pair = pair(NAMES[1], 2);
    narrow(&mut pair, 1_210);
    pair.bulk(Bytes::mib(40));
    pair.run_for(ms(5_000));
    let from = pair.now();
    pair.run_for(ms(3_000));
    let sent = pair.data_since(from).filter(|(sent, _)| sent.path == SubflowId(0));
    let sizes: Vec<usize> = sent.map(|(sent, _)| sent.packet.datagram_len()).collect();
    assert!(sizes.len() > 1_500, "{} packets of 3,000 or so", sizes.len());
    assert!(sizes.iter().all(|size| *size <= 1_210), "{:?}", sizes.iter().max());
}

#[test]
fn a_line_that_carries_less_than_the_least_size_is_told_of() {
    for names in NAMES {
        for links in [1, 2] {
            let mut pair = pair(names, links);
            pair.bulk(Bytes::mib(40));
            pair.run_for(ms(2_000));
            narrow(&mut pair, 1_100);
            let from = pair.now();
            while !is_told_narrow(pair.events()) {
                pair.run_for(ms(50));
                let after: Span = pair.now() - from;
                assert!(after < ms(8_000), "{names:?}, {links} paths: not told of");
            }
        }
    }
}

/// An outage says nothing of sizes: packets are as large as before, soon after it.
#[test]
fn an_outage_is_no_narrow_line() {
    for names in NAMES {
        for outage in [300, 700, 1_100, 2_000, 7_000] {
            let mut pair = pair(names, 1);
            let stream = pair.bulk(Bytes::mib(80));
            pair.run_for(ms(2_000));
            pair.fates(|_| Fate::Lost);
            pair.run_for(ms(outage));
            pair.fates(|_| Fate::Arrives);
            pair.run_for(ms(1_000));
            assert!(
                pair.client().path_size(SubflowId(0)) >= Some(Bytes(1_252)),
                "{names:?}, {outage} ms"
            );
            assert!(!is_told_narrow(pair.events()), "{names:?}, {outage} ms");
            let before = pair.server().received(stream);
            pair.run_for(ms(12_000));
            assert_eq!(
                pair.client().path_size(SubflowId(0)),
                Some(Bytes(1_472)),
                "{names:?}, {outage} ms"
            );
            let came = pair.server().received(stream) - before;
            assert!(came > Bytes::mib(12), "{names:?}, {outage} ms: {came:?}");
        }
    }
}

/// Small packets that are lost say nothing of large ones.
#[test]
fn small_packets_that_are_lost_make_no_line_narrow() {
    let mut pair = pair(NAMES[0], 1);
    let stream = pair.client().open_stream();
    let mut number = 0_u64;
    pair.fates(move |_| {
        number += 1;
        if number.is_multiple_of(3) { Fate::Lost } else { Fate::Arrives }
    });
    for _ in 0..2_000 {
        pair.client().write(stream, Bytes(100));
        pair.run_for(ms(20));
    }
    assert!(!is_told_narrow(pair.events()));
    assert!(pair.client().path_size(SubflowId(0)) >= Some(Bytes(1_252)));
}
