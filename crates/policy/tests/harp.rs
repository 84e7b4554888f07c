//! Harp in the model: the paper's claims, and what its two profiles add.

#![allow(clippy::cast_precision_loss)]
#![expect(clippy::float_cmp, reason = "halves of whole packets are exact")]

mod common;

use common::{Drops, Link, Model, jain, rates, secs};
use policy::cc::{
    Acked, Choke, Controller, Delivered, Harp, HarpCoupling, HarpOptions, Lateness,
    LatenessOptions, Sent,
};
use units::{Bytes, Rate, Span, SubflowId, Time};

const RTT: Span = Span::from_millis(50);

/// A link of so many Mbit/s with a queue of one bandwidth-delay product.
fn link(model: &mut Model, mbit: u64) -> usize {
    let packets = (mbit * 50_000 / 12_000) as f64;
    model.link(Link::new(Rate::mbit(mbit), packets, Drops::None))
}

fn harp(coupling: &str, profile: &str) -> String {
    format!("harp(coupling={coupling}, profile={profile})")
}

/// Flows of `controller` over these links, 37 ms after each other, measured for 300 s.
fn run(mbit: &[u64], flows: &[(&str, &[usize])]) -> Vec<f64> {
    run_apart(Span::from_millis(37), mbit, flows)
}

/// The same, so long after each other.
fn run_apart(apart: Span, mbit: &[u64], flows: &[(&str, &[usize])]) -> Vec<f64> {
    let mut model = Model::default();
    let links: Vec<usize> = mbit.iter().map(|mbit| link(&mut model, *mbit)).collect();
    for ((controller, paths), number) in flows.iter().zip(0..) {
        let paths: Vec<_> = paths.iter().map(|path| (links[*path], RTT)).collect();
        model.flow_from(1, controller, &paths, apart * number);
    }
    model.measure(secs(200), secs(500));
    rates(&model)
}

/// Section III-A of the paper: Joint leaves a quarter of four paths to nobody, Adaptive does not.
/// ALGORITHMS' model, with packets of 1000 bytes: 38.7 and 30 to 34 Mbit/s.
#[test]
fn alone_adaptive_fills_its_paths_and_joint_does_not() {
    for profile in ["paper", "modern"] {
        let four = |coupling| run(&[10; 4], &[(&harp(coupling, profile), &[0, 1, 2, 3])])[0];
        let [independent, joint, adaptive] = ["independent", "joint", "adaptive"].map(four);
        assert!(independent > 36.0, "{profile}: {independent}");
        assert!(adaptive > 0.97 * independent, "{profile}: {adaptive} of {independent}");
        assert!(adaptive > 1.1 * joint, "{profile}: {adaptive} beside {joint}");
        assert!((0.6..0.87).contains(&(joint / 40.0)), "{profile}: {joint}");
    }
}

/// Figure 3: S1 has a path of 10 Mbit/s and shares one of 8 with S2, which begins 5 s later. The
/// modern profile, which knows M by the rate, comes to 12.1 and 5.3 Mbit/s with Adaptive in this
/// model, where queues have no jitter (13.7 and 3.8 if both begin at once); between packets it
/// comes to 9.6 and 6.5.
#[test]
fn of_two_senders_the_one_with_two_paths_leaves_the_shared_one() {
    let found = |coupling, profile| {
        let name = harp(coupling, profile);
        run_apart(secs(5), &[10, 8], &[(&name, &[0, 1]), (&name, &[1])])
    };
    for (coupling, profiles, first, second) in [
        ("independent", &["paper", "modern"][..], 12.0..14.5, 3.4..4.6),
        ("joint", &["paper", "modern"], 8.5..10.5, 6.5..8.0),
        ("adaptive", &["paper"], 8.5..11.0, 6.5..8.0),
        ("adaptive", &["modern"], 8.5..12.5, 5.0..8.0),
    ] {
        for profile in profiles {
            let found = found(coupling, profile);
            assert!(first.contains(&found[0]), "{coupling}, {profile}: {found:?}");
            assert!(second.contains(&found[1]), "{coupling}, {profile}: {found:?}");
        }
    }
}

/// On a long line 3 ms of queue are a thirtieth of the window: a decrease of an eighth would leave
/// it idle for a while, each time.
#[test]
fn alone_it_fills_long_lines() {
    for (mbit, rtt) in [(20, 40), (20, 100), (50, 100), (50, 200)] {
        let mut model = Model::default();
        let packets = (mbit * rtt * 1_000 / 12_000) as f64;
        let line = model.link(Link::new(Rate::mbit(mbit), packets, Drops::None));
        model.flow_from(1, "harp", &[(line, Span::from_millis(rtt))], Span::ZERO);
        model.measure(secs(30), secs(150));
        let share = rates(&model)[0] / mbit as f64;
        assert!(share > 0.94, "{mbit} Mbit/s, {rtt} ms: {share}");
    }
}

/// Section 11 with a filter of 25 ms and a threshold of 3 ms: packets that a radio link holds for
/// less than the filter are in time, and all of a queue of more than the threshold are late.
#[test]
fn a_packet_is_late_if_those_of_the_last_moments_are() {
    let ms = Span::from_millis;
    for (held, late) in [(25, false), (60, true)] {
        let mut lateness = Lateness::new(HarpOptions::modern().lateness);
        // Of each second packets are held so long, and come at once but for that.
        let found = (0..10_000_u64).map(|at| {
            let delay = if at % 1_000 < held { ms(25) } else { ms(20) };
            lateness.handle_delay(Time::ZERO + ms(at), delay)
        });
        assert_eq!(found.fold(0.0, f64::max) > 0.0, late, "held for {held} ms");
    }
    for (micros, late) in [(2_900, 0.0), (3_100, 200.0)] {
        let mut lateness = Lateness::new(HarpOptions::modern().lateness);
        lateness.handle_delay(Time::ZERO, ms(20));
        // One that has seen a full queue has the same threshold.
        lateness.handle_delay(Time::ZERO, ms(400));
        let queue = ms(20) + Span::from_micros(micros);
        let found =
            (20_000..20_200).filter(|at| lateness.handle_delay(Time::ZERO + ms(*at), queue) > 0.0);
        assert_eq!(found.count() as f64, late, "a queue of {micros} us");
    }
}

#[test]
fn transfers_alike_have_equal_shares() {
    for (count, least) in [(2, 0.85), (10, 0.95)] {
        for profile in ["paper", "modern"] {
            let name = harp("adaptive", profile);
            let found = run(&[10; 4], &vec![(&*name, &[0, 1, 2, 3][..]); count]);
            assert!(jain(&found) > least, "{name}: {found:?}");
        }
    }
}

/// With the paper's floor of a packet, 29 transfers take more than a third of the link from a
/// flow of Reno; with windows below one packet, a sixth.
#[test]
fn reno_keeps_its_link() {
    for (profile, least, most) in [("paper", 0.5, 0.75), ("modern", 0.8, 1.0)] {
        let name = harp("adaptive", profile);
        let mut flows = vec![("reno", &[0_usize][..])];
        flows.resize(30, (&*name, &[0]));
        let found = run(&[10], &flows);
        assert!((least..most).contains(&(found[0] / 10.0)), "{profile}: {found:?}");
    }
}

/// Where many packets are late in a round trip, all windows decrease at the same times, and the
/// first transfer would keep its lead.
#[test]
fn the_first_of_transfers_alike_keeps_no_lead_on_a_fast_link() {
    let two: [(&str, &[usize]); 2] = [("harp", &[0]), ("harp", &[0])];
    let found = run_apart(secs(20), &[100], &two);
    assert!(jain(&found) > 0.95, "{found:?}");
    assert!(found.iter().sum::<f64>() > 93.0, "{found:?}");
}

/// Where windows are at their floor and a queue stands, a sender that comes late takes it for the
/// path, and more than its share of a line of 1 Mbit/s. Drains show it the path. With a filter of
/// delays the queue does not stand here.
#[test]
fn drains_show_latecomers_the_least_delay() {
    let shares = |drain| {
        let modern = HarpOptions::modern();
        let (least, most) = (Span::from_millis(5), Some(Span::from_millis(5)));
        let lateness = LatenessOptions { filter: None, least, most, ..modern.lateness };
        let mut model = Model::default();
        let line = link(&mut model, 1);
        for number in 0..4 {
            let harp = Harp::new(HarpOptions { drain, lateness, ..modern });
            model.flow_of(1, Box::new(harp), &[(line, RTT)], secs(40) * number);
        }
        model.measure(secs(200), secs(500));
        let found = rates(&model);
        (jain(&found), found.iter().sum::<f64>())
    };
    let (without, _) = shares(None);
    let (with, sum) = shares(Some(secs(30)));
    assert!(without < 0.8, "without drains: {without}");
    assert!(with > 0.95 && sum > 0.93, "with drains: {with}, {sum} Mbit/s");
}

const PATHS: [SubflowId; 2] = [SubflowId(0), SubflowId(1)];

/// Two paths with windows of so many packets, under the rules of `options`.
fn two_paths(options: HarpOptions, packets: [u64; 2]) -> Harp {
    let mut harp = Harp::new(HarpOptions { alpha: 1.0, slow_start: false, ..options });
    for (id, packets) in PATHS.into_iter().zip(packets) {
        harp.add(id, Bytes(1_000));
        let delivered = Delivered {
            bytes: Bytes(1_000 * (packets - 1)),
            smoothed_rtt: RTT,
            min_rtt: RTT,
            rate: None,
            may_grow: true,
        };
        harp.handle_delivered(Time::ZERO, id, &delivered);
    }
    harp
}

fn paper() -> HarpOptions {
    HarpOptions { coupling: HarpCoupling::Independent, ..HarpOptions::paper() }
}

/// Section III-A: a loss takes half of the sum of all windows.
#[test]
fn a_loss_takes_half_of_all_windows() {
    let mut harp = two_paths(paper(), [90, 10]);
    harp.handle_missing(Time::ZERO + secs(1), PATHS[0]);
    assert_eq!(PATHS.map(|id| harp.window(id)), [40_000.0, 10_000.0]);
    // Once in a round trip.
    harp.handle_missing(Time::ZERO + secs(1) + RTT / 2, PATHS[0]);
    assert_eq!(harp.window(PATHS[0]), 40_000.0);
}

/// With half of all windows one loss choked one of two equal paths.
#[test]
fn a_loss_takes_half_of_what_is_coupled() {
    let left = |coupling: HarpCoupling, queue: Option<u64>| {
        let options = HarpOptions { coupling, memory: None, ..HarpOptions::modern() };
        let mut harp = two_paths(options, [20, 80]);
        harp.handle_capacity(PATHS[0], Bytes(100_000));
        let now = Time::ZERO + secs(1);
        harp.handle_late(now, PATHS[0], 1.0, queue.map(Span::from_millis));
        harp.handle_missing(now, PATHS[0]);
        // Once in a round trip.
        harp.handle_missing(now + RTT / 2, PATHS[0]);
        assert_eq!(harp.window(PATHS[1]), 80_000.0);
        harp.window(PATHS[0])
    };
    assert_eq!(left(HarpCoupling::Independent, None), 10_000.0);
    // A flow of the foreground fills the queue.
    assert_eq!(left(HarpCoupling::Adaptive, Some(10)), 10_000.0);
    assert_eq!(left(HarpCoupling::Joint, Some(10)), 0.0, "choked, by half of 100");
    assert_eq!(left(HarpCoupling::Adaptive, Some(9)), 0.0, "choked, by half of 84");
    let mut alone = two_paths(HarpOptions { memory: None, ..HarpOptions::modern() }, [40, 40]);
    for id in PATHS {
        alone.handle_capacity(id, Bytes(40_000));
    }
    alone.handle_missing(Time::ZERO + secs(1), PATHS[0]);
    assert_eq!(PATHS.map(|id| alone.window(id)), [20_000.0, 40_000.0]);
}

/// Coupling is for transfers in the background, whose queue stays near the threshold. What makes a
/// longer one does not yield: then a path answers for itself, and the other one is left alone. Both
/// took from all windows, and beside web clients two paths carried hardly more than one.
#[test]
fn a_path_answers_for_itself_where_a_queue_is_a_foreground_flows() {
    // What is left of a window of `window` packets, on a path that carries `capacity` of them.
    let left_of = |window: u64, options: HarpOptions, capacity: u64, queues: &[Option<u64>]| {
        let mut harp = two_paths(options, [window, 80]);
        harp.handle_capacity(PATHS[0], Bytes(capacity * 1_000));
        let now = Time::ZERO + secs(1);
        let weight = options.needed / queues.len() as f64;
        for queue in queues {
            harp.handle_late(now, PATHS[0], weight, queue.map(Span::from_millis));
        }
        assert_eq!(harp.window(PATHS[1]), 80_000.0);
        harp.window(PATHS[0])
    };
    let left = |options, capacity, queues: &[_]| left_of(20, options, capacity, queues);
    let modern = HarpOptions { memory: None, extent_by_rate: false, ..HarpOptions::modern() };
    // β of 20 packets, and β of a fifth of them and four fifths of 100.
    let (own, all) = (17_500.0, 9_500.0);
    assert_eq!(left(modern, 100, &[Some(10)]), own);
    assert_eq!(left(modern, 100, &[Some(9)]), all);
    assert_eq!(left(modern, 100, &[None]), all, "nobody knows");
    // In the mean, of those that are known.
    assert_eq!(left(modern, 100, &[Some(4), None, Some(15)]), own);
    assert_eq!(left(modern, 100, &[Some(4), Some(4), Some(15)]), all);
    // On a slow line a queue of four packets is longer, here a round trip: it may be their own.
    assert_eq!(left_of(2, modern, 4, &[Some(50)]), 0.0, "choked, by a share of 82");
    assert_eq!(left_of(2, modern, 4, &[Some(51)]), 1_750.0);
    assert_eq!(left(HarpOptions { foreground: None, ..modern }, 100, &[Some(50)]), all);
    let joint = HarpOptions { coupling: HarpCoupling::Joint, ..modern };
    assert_eq!(left(joint, 100, &[Some(50)]), 20_000.0 - 12_500.0);
}

/// A striped connection sees the queue itself.
#[test]
fn a_striped_connection_knows_a_foreground_flows_queue_by_its_delays() {
    let left = |queue: u64| {
        let modern = HarpOptions { memory: None, extent_by_rate: false, ..HarpOptions::modern() };
        let mut harp = two_paths(modern, [20, 80]);
        harp.handle_capacity(PATHS[0], Bytes(100_000));
        for packet in 0..1_000 {
            let now = Time::ZERO + secs(1) + Span::from_millis(10 * packet);
            let waits = Span::from_millis(if packet < 50 { 0 } else { queue });
            let acked = Acked {
                bytes: Bytes(1_000),
                in_flight: Bytes(1_000),
                sent_at: Time::from_nanos(now.as_nanos() - RTT.as_nanos()),
                window_at_sending: None,
                rtt: Some(RTT + waits),
                smoothed_rtt: RTT,
                min_rtt: RTT,
                one_way_delay: Some(RTT / 2 + waits),
                ack_delay: Some(RTT / 2),
                delivery_rate: None,
                round: packet,
                ce_packets: 0,
                ce_bytes: Bytes::ZERO,
                is_app_limited: true,
                in_recovery: false,
                slow_start_divisor: 1,
            };
            harp.handle_acked(now, PATHS[0], &acked);
            if harp.window(PATHS[0]) < 20_000.0 {
                break;
            }
        }
        harp.window(PATHS[0])
    };
    // β of its own window; and 1.1 times the queue's share of a round trip, of 84 packets.
    assert_eq!((left(15), left(5).round()), (17_500.0, 10_760.0));
}

/// Packets that are late in the round trip after a decrease left before it. They counted for the
/// next one, which came as soon as it might: with nobody else there the line was idle for it. Where
/// drains empty the queue they count no more.
#[test]
fn a_decrease_does_not_bring_another_one_where_there_are_drains() {
    let left = |drain| {
        let mut harp = two_paths(HarpOptions { drain, ..HarpOptions::modern() }, [20, 80]);
        let needed = harp.options().needed;
        let mut decreases = |at: Span, weight: f64| {
            harp.handle_late(Time::ZERO + secs(1) + at, PATHS[0], weight, None);
            harp.falls(PATHS[0]).decreases
        };
        let first = decreases(Span::ZERO, needed);
        let within = decreases(RTT - Span::from_nanos(1), needed);
        let after = decreases(RTT, 1.0);
        [first, within, after, decreases(RTT, needed - 1.0)]
    };
    assert_eq!(left(Some(secs(30))), [1, 1, 1, 2]);
    assert_eq!(left(None), [1, 1, 2, 2]);
}

/// The probe of a choked path may leave from its moment on until it has left, whatever the sender
/// does first at that moment: one that ran its timers first never sent any.
#[test]
fn a_probe_is_due_until_it_has_left() {
    let mut harp = two_paths(HarpOptions::modern(), [20, 20]);
    let mut now = Time::ZERO + secs(1);
    while !harp.is_choked(PATHS[0]) {
        now += RTT;
        assert!(now < Time::ZERO + secs(60), "it is never choked");
        harp.handle_late(now, PATHS[0], harp.options().needed, None);
    }
    let choked = |harp: &Harp| match harp.allowance(PATHS[0]).state {
        Choke::Choked { probe_at } => probe_at,
        Choke::Open => panic!("it is choked"),
    };
    let due = choked(&harp);
    assert!(due > now);
    assert_eq!(harp.poll_deadline(), Some(due));
    harp.handle_deadline(due);
    assert_eq!((choked(&harp), harp.poll_deadline()), (due, None), "once is enough to tell");
    let late = due + secs(3);
    harp.handle_sent(
        late,
        PATHS[0],
        &Sent { bytes: Bytes(1_000), in_flight: Bytes(1_000), is_retransmission: false },
    );
    let next = choked(&harp);
    assert!(next >= late + Harp::LEAST_PROBE_PERIOD, "{next:?}");
    assert_eq!(harp.poll_deadline(), Some(next));
}

/// A path whose packets stay late is choked, and carries nothing until a probe comes in time; the
/// last one is not, or nothing would move.
#[test]
fn a_path_at_its_floor_is_choked_unless_it_is_the_last() {
    for options in [paper(), HarpOptions { floor: 1.0 / 16.0, ..paper() }] {
        let mut harp = two_paths(options, [20, 20]);
        let mut now = Time::ZERO;
        let mut be_late = |harp: &mut Harp, id| {
            for _ in 0..200 {
                now += Span::from_millis(60);
                harp.handle_late(now, id, options.needed, None);
            }
            now
        };
        be_late(&mut harp, PATHS[1]);
        assert!(harp.is_choked(PATHS[1]) && harp.window(PATHS[1]) == 0.0, "{harp:?}");
        assert_eq!(harp.total(), 20_000.0, "only the other path's is left");
        let falls = harp.falls(PATHS[1]);
        assert!(falls.decreases > 10 && falls.chokes == 1, "{falls:?}");
        assert_eq!((harp.xi(PATHS[0]), harp.xi(PATHS[1])), (1.0, 0.0));
        let now = be_late(&mut harp, PATHS[0]);
        assert!(!harp.is_choked(PATHS[0]), "{harp:?}");
        assert_eq!(harp.window(PATHS[0]), options.floor * 1_000.0);
        harp.handle_silent(now, PATHS[0]);
        assert!(!harp.is_choked(PATHS[0]), "silent, but the last: {harp:?}");
        harp.handle_open(now, PATHS[1]);
        assert!(!harp.is_choked(PATHS[1]) && harp.window(PATHS[1]) > 0.0, "{harp:?}");
        harp.handle_silent(now, PATHS[0]);
        assert!(harp.is_choked(PATHS[0]), "silent, and another one is open: {harp:?}");
    }
}
