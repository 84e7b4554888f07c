//! Losses, ECN marks, and spurious losses.

use ptcp::Config;
use units::{Bytes, Span, SubflowId};
use wire::ptcp::Body;

use crate::pair::{Fate, Pair, line, ms};

/// One path, and a receive buffer that keeps its queue short, so that it drops nothing.
fn one(config: &Config) -> Pair {
    let config = Config {
        receive_buffer: Bytes::kib(96),
        max_receive_buffer: Bytes::kib(192),
        ..config.clone()
    };
    Pair::new(&config, ("reno", "lowest-rtt"), &[line(20, 20)])
}

#[test]
fn the_last_packet_is_lost() {
    let mut pair = one(&Config::default());
    pair.run_for(ms(200));
    let stream = pair.bulk(Bytes(5_000));
    let mut left = 1;
    // The fourth and last packet, at its first transmission.
    pair.fates(move |sent| match sent.packet.body {
        Body::Data(data) if data.offset + u64::from(data.len) == 5_000 && left > 0 => {
            left -= 1;
            Fate::Lost
        }
        _ => Fate::Arrives,
    });
    let took = pair.time_of(stream, Bytes(5_000)).unwrap();
    // A round trip for the others and a probe after the timer of RFC 9002, without a minimum of 200
    // ms.
    assert!(took < ms(170), "{took:?}");
    assert_eq!(pair.client().stats(SubflowId(0)).unwrap().timeouts, 0);
}

#[test]
fn a_loss_cuts_the_window_once() {
    let mut pair = one(&Config::default());
    let stream = pair.bulk(Bytes::mib(4));
    pair.run_for(ms(400));
    let mut number = 0;
    // Three of the next ten.
    pair.fates(move |sent| {
        number += u32::from(sent.to_server);
        if sent.to_server && [3, 5, 6].contains(&number) { Fate::Lost } else { Fate::Arrives }
    });
    pair.run_for(ms(150));
    let (after, stats) =
        (pair.client().path_window(SubflowId(0)), *pair.client().stats(SubflowId(0)).unwrap());
    assert_eq!((stats.lost, stats.recoveries, stats.timeouts), (3, 1, 0), "{stats:?}");
    // Half of the bytes in flight, which are the receive buffer, and then one packet more a round
    // trip.
    assert!((36_000..68_000).contains(&after.0), "{after:?}");
    assert!(pair.time_of(stream, Bytes::mib(4)).is_some());
}

#[test]
fn a_cut_for_late_packets_is_undone() {
    let mut pair = one(&Config::default());
    pair.bulk(Bytes::mib(40));
    pair.run_for(ms(600));
    let before = pair.client().path_window(SubflowId(0));
    let mut left = 2;
    pair.fates(move |sent| {
        let is_hit = sent.to_server && left > 0;
        left -= i32::from(is_hit);
        if is_hit { Fate::Late(ms(40)) } else { Fate::Arrives }
    });
    pair.run_for(ms(200));
    let (after, stats) =
        (pair.client().path_window(SubflowId(0)), *pair.client().stats(SubflowId(0)).unwrap());
    assert!(stats.lost > 0 && stats.spurious == stats.lost, "{stats:?}");
    assert!(after >= before, "the cut is undone: {before:?} to {after:?}");
    // The next delay of this kind is within the reordering window.
    let mut left = 2;
    pair.fates(move |sent| {
        let is_hit = sent.to_server && left > 0;
        left -= i32::from(is_hit);
        if is_hit { Fate::Late(ms(8)) } else { Fate::Arrives }
    });
    pair.run_for(ms(200));
    assert_eq!(pair.client().stats(SubflowId(0)).unwrap().spurious, stats.spurious);
}

#[test]
fn a_pause_is_not_congestion() {
    let mut pair = one(&Config::default());
    pair.bulk(Bytes::mib(40));
    pair.run_for(ms(600));
    let before = pair.client().path_window(SubflowId(0));
    let back = pair.now() + ms(800);
    pair.fates(move |sent| if sent.at < back { Fate::Late(back - sent.at) } else { Fate::Arrives });
    pair.run_for(ms(1_500));
    let after = pair.client().path_window(SubflowId(0));
    assert!(
        pair.client().stats(SubflowId(0)).unwrap().spurious > 0,
        "{:?}",
        pair.client().stats(SubflowId(0))
    );
    assert!(after.0 > before.0 * 9 / 10, "{before:?} to {after:?}");
}

#[test]
fn marks_cut_the_window_and_lose_nothing() {
    let mut pair = one(&Config { ecn: true, ..Config::default() });
    pair.bulk(Bytes::mib(40));
    pair.run_for(ms(400));
    assert!(pair.data_since(units::Time::ZERO).all(|(sent, _)| sent.is_ecn_capable));
    let until = pair.now() + ms(20);
    pair.fates(
        move |sent| if sent.to_server && sent.at < until { Fate::Marked } else { Fate::Arrives },
    );
    pair.run_for(ms(120));
    let (after, stats) =
        (pair.client().path_window(SubflowId(0)), *pair.client().stats(SubflowId(0)).unwrap());
    assert!(stats.marks > 1 && stats.lost == 0, "{stats:?}");
    assert!((36_000..68_000).contains(&after.0), "{after:?}");
}

#[test]
fn nothing_is_marked_unless_wanted() {
    let mut pair = one(&Config::default());
    pair.bulk(Bytes::mib(1));
    pair.run_for(ms(400));
    assert!(pair.log().iter().all(|sent| !sent.is_ecn_capable));
}

#[test]
fn only_what_is_ecn_capable_says_that_it_is_scalable() {
    for is_scalable in [false, true] {
        let mut pair = one(&Config { ecn: true, is_scalable, ..Config::default() });
        pair.bulk(Bytes::mib(1));
        pair.run_for(ms(400));
        assert!(pair.log().iter().any(|sent| sent.is_ecn_capable));
        let are_right =
            pair.log().iter().all(|sent| sent.is_scalable == (is_scalable && sent.is_ecn_capable));
        assert!(are_right, "{is_scalable}");
        let (now, sent) = (pair.now(), pair.log().len());
        pair.client().set_path_background(now, SubflowId(0), true);
        pair.bulk(Bytes::mib(1));
        pair.run_for(ms(400));
        // The other end has its own controllers.
        let log: Vec<_> = pair.log().into_iter().skip(sent).filter(|sent| sent.to_server).collect();
        assert!(log.iter().any(|sent| sent.is_ecn_capable));
        assert!(log.iter().all(|sent| !sent.is_scalable));
    }
    let mut pair = one(&Config { is_scalable: true, ..Config::default() });
    pair.bulk(Bytes::mib(1));
    pair.run_for(ms(400));
    assert!(pair.log().iter().all(|sent| !sent.is_scalable));
}

#[test]
fn a_path_that_drops_ecn_capable_packets_still_works() {
    let mut pair = one(&Config { ecn: true, ..Config::default() });
    pair.fates(|sent| if sent.is_ecn_capable { Fate::Lost } else { Fate::Arrives });
    let stream = pair.bulk(Bytes::mib(1));
    let took = pair.time_of(stream, Bytes::mib(1)).unwrap();
    assert!(took < Span::from_secs(3), "{took:?}");
}

#[test]
fn packets_are_spread_over_the_round_trip() {
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(20, 20)]);
    pair.bulk(Bytes::mib(40));
    pair.run_for(ms(1_000));
    let from = pair.now();
    pair.run_for(ms(40));
    let mut most = 0;
    let times: Vec<_> = pair.data_since(from).map(|(sent, _)| sent.at).collect();
    for (n, at) in times.iter().enumerate() {
        most = most.max(times[n..].iter().take_while(|other| **other - *at < ms(1)).count());
    }
    // At 20 Mbit/s less than two packets a millisecond, 5/4 of that paced, and bursts of two.
    assert!(times.len() > 40 && most <= 5, "{most} of {} within a millisecond", times.len());
}

/// After a pause that is too short for the window to shrink, a burst is two packets, or a
/// millisecond of the rate up to 64 KiB, which is 45 packets.
#[test]
fn bursts_are_a_millisecond_long() {
    for (rate, most_at_once) in [(10, 2), (400, 45)] {
        let config = Config { receive_buffer: Bytes::mib(64), ..Config::default() };
        let mut pair = Pair::new(&config, ("reno", "lowest-rtt"), &[line(20, rate)]);
        let stream = pair.bulk(Bytes(rate * 125_000));
        assert!(pair.time_of(stream, Bytes(rate * 125_000)).is_some());
        pair.run_for(ms(5));
        let from = pair.now();
        pair.client().write(stream, Bytes::mib(1));
        pair.run_for(ms(1));
        let at_once = pair.data_since(from).filter(|(sent, _)| sent.at == from).count();
        assert!(
            (2..=most_at_once).contains(&at_once) && (rate < 100 || at_once > 20),
            "{at_once} packets at once at {rate} Mbit/s"
        );
    }
}

/// The queues of two paths grow, and on each the last round trip takes longer than the average of
/// the other: a copy would be in time on either.
#[test]
fn two_paths_do_not_copy_each_others_copies() {
    let deep = || testnet::Link { queue: Bytes::kib(450), ..line(5, 10) };
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[deep(), deep()]);
    pair.run_for(ms(200));
    let stream = pair.bulk(Bytes(400_000));
    pair.run_for(ms(150));
    pair.client().finish(stream);
    pair.run_for(ms(2_000));
    let is_end =
        |sent: &crate::pair::Sent| matches!(sent.packet.body, Body::Data(data) if data.is_last);
    let ends = pair.log().iter().filter(|sent| is_end(sent)).count();
    assert!((1..=3).contains(&ends), "{ends} packets with the end");
}
