//! A path that becomes slow and goes on trickling: what it has in flight goes over the others.

use proptest::prelude::*;
use ptcp::Config;
use testnet::Link;
use units::{Bytes, Rate, Span, SubflowId, Time};

use crate::pair::{Pair, ms};

/// The first path falls to this rate; before, it has 25 Mbit/s, and 400 KiB of queue.
const TRICKLE: Rate = Rate::kbit(1_000);

/// Two paths, the first of which has its queue full.
fn paths(reinject: bool, controller: &str) -> Pair {
    let link = |delay, rate| Link {
        rate: Some(Rate::mbit(rate)),
        queue: Bytes::kib(400),
        ..Link::new(ms(delay))
    };
    let config = Config { reinject, ..Config::default() };
    Pair::new(&config, (controller, "lowest-rtt"), &[link(15, 25), link(25, 10)])
}

/// The rate falls within a second.
fn fall(pair: &mut Pair) {
    for rate in [15, 9, 5, 3] {
        pair.set_rate(0, Rate::mbit(rate));
        pair.run_for(ms(250));
    }
    pair.set_rate(0, TRICKLE);
}

/// What each path carried copies of; nothing if there is no such path.
fn copies(pair: &mut Pair) -> [Bytes; 3] {
    [0, 1, 2].map(|path| pair.client().path_bytes(SubflowId(path)).unwrap_or_default().copies)
}

#[test]
fn a_reader_does_not_wait_for_the_queue_of_a_path_that_trickles() {
    // What the reader gets in the seconds after the fall, in Mbit/s.
    let rate = |reinject| {
        let mut pair = paths(reinject, "reno");
        let stream = pair.bulk(Bytes::mib(400));
        pair.run_for(Span::from_secs(3));
        let copied_before = copies(&mut pair);
        fall(&mut pair);
        let before = pair.server().received(stream);
        pair.run_for(Span::from_secs(2));
        let got = (pair.server().received(stream) - before) / Span::from_secs(2);
        let copied = copies(&mut pair);
        let copied = [0, 1].map(|path| copied[path] - copied_before[path]);
        (got, copied, *pair.client().stats(SubflowId(0)).expect("it is open"))
    };
    let ((with, [back, copied], stats), (without, ..)) = (rate(true), rate(false));
    assert_eq!(stats.timeouts, 0, "it was never silent");
    assert!(without < Rate::mbit(6), "{without} without copies");
    assert!(with > Rate::mbit(9), "{with}, {without} without copies");
    // What the slow path had in flight, and no more.
    assert!(back == Bytes::ZERO && copied < Bytes::kib(700), "{back:?} {copied:?}");
}

/// Of what hangs on several paths, the reader is given first what it needs first.
#[test]
fn what_the_reader_needs_first_is_copied_first() {
    let link = |delay, rate| Link {
        rate: Some(Rate::mbit(rate)),
        queue: Bytes::kib(400),
        ..Link::new(ms(delay))
    };
    let links = [link(15, 25), link(15, 25), link(25, 10)];
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &links);
    let stream = pair.bulk(Bytes::mib(400));
    pair.run_for(Span::from_secs(3));
    for path in [0, 1] {
        pair.set_rate(path, TRICKLE);
    }
    pair.run_for(Span::from_secs(2));
    let (mut longest, mut waited) = (0, 0);
    for _ in 0..500 {
        let before = pair.server().received(stream);
        pair.run_for(ms(10));
        waited = if pair.server().received(stream) > before { 0 } else { waited + 10 };
        longest = longest.max(waited);
    }
    assert!(longest < 650, "the reader waits for {longest} ms");
}

#[test]
fn the_end_of_a_stream_does_not_wait_for_a_path_that_trickles() {
    let took = |reinject| {
        let mut pair = paths(reinject, "reno");
        let stream = pair.bulk(Bytes(12_000_000));
        pair.run_for(Span::from_secs(2));
        fall(&mut pair);
        let rest = pair.time_of(stream, Bytes(12_000_000)).expect("it arrives");
        (rest, copies(&mut pair))
    };
    let ((with, [_, copied, _]), (without, _)) = (took(true), took(false));
    assert!(with + ms(500) < without, "{with:?} with copies, {without:?} without");
    assert!(copied > Bytes::ZERO, "{copied:?}");
}

/// A long way is no reason to copy, nor is a queue that is always there.
#[test]
fn steady_paths_copy_next_to_nothing() {
    for (delays, controller) in [([10, 150], "coupled-bbr"), ([10, 10], "reno")] {
        let links = delays.map(|delay| Link {
            rate: Some(Rate::mbit(20)),
            queue: Bytes::kib(750),
            ..Link::new(ms(delay))
        });
        let mut pair = Pair::new(&Config::default(), (controller, "lowest-rtt"), &links);
        pair.bulk(Bytes::mib(400));
        pair.run_for(Span::from_secs(20));
        let copied: Bytes = copies(&mut pair).into_iter().sum();
        assert!(copied < Bytes(1_000_000), "{controller} {delays:?}: {copied:?} of 100 MB");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Rates change at any time and nothing is lost: a path sends a range once for itself, and once
    /// as a copy of what went over another first.
    #[test]
    fn a_path_carries_a_copy_of_a_range_once(
        rates in prop::collection::vec((0usize..3, 0u64..30), 4..16),
        bytes in 1_000_000usize..6_000_000,
    ) {
        let links = [10, 20, 40].map(|delay| Link {
            rate: Some(Rate::mbit(10)),
            queue: Bytes::mib(64),
            ..Link::new(ms(delay))
        });
        let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &links);
        let all = Bytes(bytes as u64);
        let stream = pair.bulk(all);
        for (path, rate) in rates {
            pair.set_rate(path, Rate::kbit(800 + rate * rate * 30));
            pair.run_for(ms(300));
        }
        prop_assert!(pair.time_of(stream, all).is_some());
        let of = |path| *pair.client().stats(SubflowId(path)).expect("it is open");
        let stats = [0, 1, 2].map(of);
        // What counts as lost is sent again, and so is what a silent path has in flight.
        if stats.iter().all(|stats| stats.lost == 0 && stats.probes == 0) {
            let mut sent = vec![[0u64; 3]; bytes];
            for (packet, data) in pair.data_since(Time::ZERO) {
                let from = usize::try_from(data.offset).expect("it is within the stream");
                for times in &mut sent[from..from + usize::from(data.len)] {
                    times[usize::from(packet.path.0)] += 1;
                }
            }
            prop_assert!(sent.iter().flatten().all(|times| *times <= 2));
            let copied: Bytes = copies(&mut pair).into_iter().sum();
            prop_assert_eq!(Bytes(sent.iter().flatten().sum()), all + copied);
        }
    }
}
