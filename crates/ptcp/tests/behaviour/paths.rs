//! Several paths: acknowledgements, reinjection, redundancy, packet sizes.

use ptcp::{Config, Event};
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::Body;

use crate::pair::{Fate, Pair, Sent, line, ms};

#[test]
fn acknowledgements_come_back_over_the_fastest_path() {
    let mut pair =
        Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(100, 10), line(10, 10)]);
    pair.bulk(Bytes::mib(40));
    pair.run_for(ms(2_000));
    let from = pair.now();
    pair.run_for(ms(1_000));
    let ways = |from: Time, pair: &Pair| {
        let mut ways = [0, 0];
        for sent in pair.log().iter().filter(|sent| !sent.to_server && sent.at >= from) {
            if let Body::Ack(ack) = &sent.packet.body {
                ways[usize::from(sent.path.0)] += u32::from(ack.path == SubflowId(0));
            }
        }
        ways
    };
    let [slow, fast] = ways(from, &pair);
    assert!(
        fast > 200 && slow == 0,
        "acknowledgements of the slow path: {slow} over it, {fast} over the fast one"
    );
    // Its way back fails: they return over the other one, and data continues over both.
    pair.fates(|sent| {
        if !sent.to_server && sent.path == SubflowId(1) { Fate::Lost } else { Fate::Arrives }
    });
    pair.run_for(ms(3_000));
    let from = pair.now();
    pair.run_for(ms(1_000));
    let [slow, fast] = ways(from, &pair);
    assert!(slow > 200 && fast < slow / 20, "{slow} over the slow one, {fast} over the dead one");
    // It works again: that is detected, and they return over it.
    pair.fates(|_| Fate::Arrives);
    pair.run_for(ms(3_000));
    let from = pair.now();
    pair.run_for(ms(1_000));
    let [slow, fast] = ways(from, &pair);
    assert!(fast > 200 && slow == 0, "{slow} over the slow one, {fast} over the restored one");
}

#[test]
fn a_slow_path_does_not_hold_up_the_window() {
    // A window of 128 KiB, and a path that takes half a second.
    let took = |reinject: bool| {
        let config = Config {
            receive_buffer: Bytes::kib(64),
            max_receive_buffer: Bytes::kib(128),
            reinject,
            ..Config::default()
        };
        let mut pair = Pair::new(&config, ("reno", "lowest-rtt"), &[line(5, 20), line(250, 1)]);
        let stream = pair.bulk(Bytes::mib(8));
        let took = pair.time_of(stream, Bytes::mib(8)).unwrap();
        (took, pair.client().path_window(SubflowId(1)), *pair.client().stats(SubflowId(1)).unwrap())
    };
    let ((with, window, slow), (without, untouched, _)) = (took(true), took(false));
    let alone = Span::from_millis(8 * 8 * 1_024 * 1_024 / 20_000);
    assert!(with < alone + alone / 4, "{with:?}; the fast path alone takes {alone:?}");
    assert!(without > with + with / 2, "{without:?} without reinjection");
    // The slow path's window was cut without a loss.
    assert!(slow.recoveries == 0 && slow.lost <= slow.spurious, "{slow:?}");
    assert!(
        window < Bytes(14_720) && untouched >= Bytes(14_720),
        "{window:?} instead of {untouched:?}"
    );
}

#[test]
fn each_path_carries_everything() {
    let mut pair = Pair::new(
        &Config::default(),
        ("reno", "redundant"),
        &[line(10, 10), line(12, 10), line(15, 10)],
    );
    let stream = pair.bulk(Bytes::mib(2));
    let took = pair.time_of(stream, Bytes::mib(2)).unwrap();
    let alone = Span::from_millis(2 * 8 * 1_024 * 1_024 / 10_000);
    assert!(took > alone, "{took:?}, as much as one path takes");
    let mut bytes = [0, 0, 0];
    for (sent, data) in pair.data_since(Time::ZERO) {
        bytes[usize::from(sent.path.0)] += u64::from(data.len);
    }
    let all = Bytes::mib(2).0;
    assert!(
        bytes.iter().all(|bytes| (all * 8 / 10..all * 12 / 10).contains(bytes)),
        "{bytes:?} of {all}"
    );
}

/// Also while acknowledgements that the other path lost make the good one silent.
#[test]
fn a_redundant_copy_arrives_in_time() {
    for pause in [7, 13, 17, 20, 25, 29, 40, 60] {
        copies_arrive_in_time(ms(pause));
    }
}

fn copies_arrive_in_time(pause: Span) {
    let mut pair =
        Pair::new(&Config::default(), ("reno", "redundant"), &[line(10, 10), line(11, 10)]);
    pair.run_for(ms(300));
    // One path loses every second packet; no write waits for it.
    pair.fates(|sent| {
        if sent.path == SubflowId(0) && sent.packet.number.is_multiple_of(2) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    let stream = pair.client().open_stream();
    for n in 1..=50 {
        pair.client().write(stream, Bytes(500));
        let took = pair.time_of(stream, Bytes(500 * n)).expect("it arrives");
        assert!(took < ms(15), "write {n}, every {pause:?}: {took:?}");
        pair.run_for(pause);
    }
}

/// The largest UDP payload of the data packets over a path since `from`.
fn largest(pair: &Pair, path: SubflowId, from: Time) -> usize {
    let sent = pair.data_since(from).filter(|(sent, _)| sent.path == path);
    sent.map(|(sent, _)| sent.packet.datagram_len()).max().unwrap_or(0)
}

#[test]
fn each_path_has_packets_of_its_own_size() {
    let config = Config { max_datagram: Bytes(1_472), ..Config::default() };
    let mut pair =
        Pair::new(&config, ("reno", "lowest-rtt"), &[line(10, 10), line(10, 10), line(10, 10)]);
    let fits = |path: SubflowId| [1_472, 1_380, 1_252][usize::from(path.0)];
    pair.fates(move |sent| {
        if sent.packet.datagram_len() > fits(sent.path) { Fate::Lost } else { Fate::Arrives }
    });
    let stream = pair.bulk(Bytes::mib(8));
    assert!(pair.time_of(stream, Bytes::mib(8)).is_some());
    for path in 0..3 {
        let (size, fits) = (largest(&pair, SubflowId(path), Time::ZERO), fits(SubflowId(path)));
        assert!(size <= fits && size + 20 >= fits, "path {path}: {size} of {fits}");
        assert_eq!(
            pair.client().stats(SubflowId(path)).unwrap().timeouts,
            0,
            "lost size probes cause no timeout"
        );
    }
}

#[test]
fn a_black_hole_for_large_packets_is_detected() {
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(10, 10)]);
    let stream = pair.bulk(Bytes::mib(40));
    pair.run_for(ms(1_000));
    assert_eq!(largest(&pair, SubflowId(0), Time::ZERO), 1_472);
    pair.fates(|sent| if sent.packet.datagram_len() > 1_300 { Fate::Lost } else { Fate::Arrives });
    let before = pair.server().received(stream);
    let from = pair.now();
    pair.run_for(ms(4_000));
    let came = pair.server().received(stream) - before;
    assert!(came > Bytes::mib(2), "{came:?} in four seconds at 10 Mbit/s");
    assert!(largest(&pair, SubflowId(0), from + ms(3_000)) <= 1_300);
}

/// A paced sender whose window is not full goes on sending when acknowledgements stop. It notices
/// by them, not by its own packets; and it makes no difference whether the last one was delayed,
/// because the second packet for it was lost.
#[test]
fn silence_is_noticed_a_probe_timeout_after_the_last_arrival() {
    for moment in 0..8 {
        silence_is_noticed(ms(6_000 + moment));
    }
}

fn silence_is_noticed(moment: Span) {
    let names = ("coupled-bbr", "lowest-rtt");
    let mut pair = Pair::new(&Config::default(), names, &[line(50, 20), line(30, 20)]);
    pair.bulk(Bytes(100_000_000));
    pair.run_for(moment);
    let timeout = pair.client().probe_timeout(SubflowId(0)).expect("the path is open");
    let from = pair.now();
    pair.fates(|sent| if sent.path == SubflowId(0) { Fate::Lost } else { Fate::Arrives });
    while !pair.events().contains(&Event::PathSilent { path: SubflowId(0) }) {
        pair.run_for(ms(1));
        let after = pair.now() - from;
        // What was under way arrives, and is acknowledged over the other path.
        assert!(
            after < ms(50 + 30) + timeout + ms(5),
            "not noticed after {after:?}, timeout {timeout:?}"
        );
    }
}

/// Both paths fall silent, and one of them is soon back: what the other had in flight goes over it
/// then, not only when the other times out.
#[test]
fn a_path_that_is_back_takes_over_from_one_that_is_not() {
    let names = ("olia", "lowest-rtt");
    let mut pair = Pair::new(&Config::default(), names, &[line(50, 10), line(30, 20)]);
    let stream = pair.bulk(Bytes(100_000_000));
    pair.run_for(ms(3_000));
    let from = pair.now();
    let both_until = from + ms(300);
    pair.fates(move |sent| {
        if sent.path == SubflowId(0) || sent.at < both_until { Fate::Lost } else { Fate::Arrives }
    });
    while !pair.events().contains(&Event::PathBack { path: SubflowId(1) }) {
        pair.run_for(ms(1));
        assert!(pair.now() < from + ms(1_000), "{:?}", pair.events());
    }
    assert!(
        pair.events().contains(&Event::PathSilent { path: SubflowId(0) }),
        "{:?}",
        pair.events()
    );
    let before = pair.server().received(stream);
    pair.run_for(ms(30 + 10));
    assert!(pair.server().received(stream) > before, "nothing arrived in order");
}

/// A redundant connection copies data to silent paths too. A message is sent once: over a silent
/// path it stays for ever if that cannot be probed, as with an address that is not validated.
#[test]
fn messages_leave_silent_paths_alone_whatever_the_scheduler() {
    let config = Config {
        receive_buffer: Bytes::kib(64),
        max_receive_buffer: Bytes::kib(64),
        ..Config::default()
    };
    let mut pair = Pair::new(&config, ("reno", "redundant"), &[line(10, 10), line(40, 10)]);
    pair.bulk(Bytes::mib(10));
    pair.run_for(ms(1_000));
    pair.fates(|sent| if sent.path == SubflowId(0) { Fate::Lost } else { Fate::Arrives });
    pair.run_for(ms(1_500));
    let sent: Vec<Sent> = pair.log().into_iter().filter(|sent| !sent.to_server).collect();
    let is_probe =
        |sent: &&Sent| sent.path == SubflowId(0) && matches!(sent.packet.body, Body::Ping { .. });
    let from = sent.iter().find(is_probe).expect("the path falls silent").at;
    let windows = |path: SubflowId| {
        let is_it = |sent: &&Sent| sent.path == path && sent.at >= from;
        let is_window = |sent: &&Sent| matches!(sent.packet.body, Body::StreamWindow { .. });
        sent.iter().filter(is_it).filter(is_window).count()
    };
    let [silent, live] = [0, 1].map(|path| windows(SubflowId(path)));
    assert!(silent == 0 && live > 10, "{silent} over the silent path, {live} over the other");
}

/// All paths are silent when a stream is reset, whose bytes the driver frees: probes with them
/// would never leave, and no path would be heard of again.
#[test]
fn probes_carry_nothing_of_a_stream_that_was_reset() {
    let names = ("coupled-bbr", "lowest-rtt");
    let mut pair = Pair::new(&Config::default(), names, &[line(20, 20), line(30, 20)]);
    let stream = pair.bulk(Bytes(100_000_000));
    pair.run_for(ms(2_000));
    pair.fates(|_| Fate::Lost);
    pair.run_for(ms(500));
    let from = pair.now();
    pair.client().reset(stream, 7);
    pair.run_for(ms(2_000));
    assert_eq!(pair.data_since(from).count(), 0, "bytes that are gone");
    pair.fates(|_| Fate::Arrives);
    pair.run_for(ms(3_000));
    assert!(pair.server_events().contains(&Event::Reset { stream, code: 7 }));
}
