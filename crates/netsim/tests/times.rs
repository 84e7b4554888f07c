//! Exact delivery times, the order of simultaneous events, and deadlines.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Numbered, Planned, ns, packet, planned};
use link::{Limit, Profile};
use netsim::{Event, Host, HostId, NoTrace, Out, Sim, Topology};
use proptest::prelude::*;
use units::{Rate, Seed, Span, Time};

fn wire(rate: Rate, delay: Span) -> Profile {
    Profile { queue: Limit::Packets(1_000), ..Profile::new(rate, delay) }
}

#[test]
fn two_hops_to_the_nanosecond() {
    let mut net = Topology::new();
    let near = net.add_host("near").unwrap();
    let far = net.add_host("far").unwrap();
    net.add_router("middle").unwrap();
    // 1514 bytes take 1211.2 ns, then 121,120 ns.
    net.duplex("fast", "near", "middle", &wire(Rate::mbit(10_000), Span::from_nanos(500))).unwrap();
    let (up, _) =
        net.duplex("slow", "middle", "far", &wire(Rate::mbit(100), Span::from_micros(10))).unwrap();
    let route = net.route("near", "far").unwrap();
    let plan = vec![(ns(100), route, packet(1, 1_514)), (ns(100), route, packet(2, 1_514))];
    let mut sim = planned(&net, Seed(1), vec![(near, plan)]);
    let first = 100 + 1_212 + 500 + 121_120 + 10_000;
    sim.run_until(ns(first - 1));
    assert_eq!((sim.host(far).heard.len(), sim.held()), (0, 2));
    assert_eq!(sim.queue(up).packets, 1, "the first has left, the second is on the wire");
    sim.run_until(ns(1_000_000));
    assert_eq!(sim.host(far).heard, [(first, 1), (first + 121_120, 2)]);
    assert_eq!(sim.now(), ns(1_000_000));
    assert_eq!(sim.counters(up).delivered.packets, 2);
    assert_eq!(
        (sim.totals().hops, sim.totals().events),
        (4, 5),
        "one event a hop, and one deadline"
    );
}

#[test]
fn an_answer_comes_back() {
    let mut net = Topology::new();
    let near = net.add_host("near").unwrap();
    net.add_host("far").unwrap();
    net.duplex("link", "near", "far", &wire(Rate::mbit(12), Span::from_millis(10))).unwrap();
    let (there, back) = (net.route("near", "far").unwrap(), net.route("far", "near").unwrap());
    let ping = Numbered { answer: Some(back), ..packet(7, 1_500) };
    let mut sim = planned(&net, Seed(1), vec![(near, vec![(Time::ZERO, there, ping)])]);
    sim.run_until(ns(1_000_000_000));
    assert_eq!(sim.host(near).heard, [(22_000_000, 7)]);
}

/// Hosts in this order, each with a link of its own to `sink`, whose packets all arrive at one
/// instant. Returns the order of arrival.
fn simultaneous(order: &[u64]) -> Vec<u64> {
    let mut net = Topology::new();
    let sink = net.add_host("sink").unwrap();
    let mut plans = Vec::new();
    for n in order {
        let name = format!("host {n}");
        let host = net.add_host(name.as_str()).unwrap();
        net.add_link(name.as_str(), &name, "sink", wire(Rate::mbit(8), Span::ZERO)).unwrap();
        // A packet of 1000 bytes takes 1 ms; all arrive at 10 ms.
        let route = net.route(&name, "sink").unwrap();
        plans.push((host, vec![(ns((10 - n) * 1_000_000), route, packet(*n, n * 1_000))]));
    }
    let mut sim = planned(&net, Seed(1), plans);
    sim.run_until(ns(10_000_000));
    assert!(sim.host(sink).heard.iter().all(|(at, _)| *at == 10_000_000));
    sim.host(sink).heard.iter().map(|(_, n)| *n).collect()
}

#[test]
fn simultaneous_events_are_in_the_order_of_admission() {
    // The first to send is first, in whatever order the hosts and links were added.
    assert_eq!(simultaneous(&[1, 2, 3, 4, 5]), [5, 4, 3, 2, 1]);
    assert_eq!(simultaneous(&[3, 5, 1, 4, 2]), [5, 4, 3, 2, 1]);
}

/// A host whose deadline is moved from outside.
#[derive(Debug, Default)]
struct Clock {
    deadline: Option<Time>,
    fired: Vec<u64>,
}

impl Host<Numbered> for Clock {
    fn handle_packet(&mut self, _: Time, _: Numbered, _: &mut Out<Numbered>) {}

    fn poll_deadline(&self) -> Option<Time> {
        self.deadline
    }

    fn handle_deadline(&mut self, now: Time, _: &mut Out<Numbered>) {
        self.fired.push(now.as_nanos());
        self.deadline = None;
    }
}

fn clock() -> (Sim<Numbered, Clock>, HostId) {
    let mut net = Topology::new();
    let host = net.add_host("clock").unwrap();
    (net.build(Seed(1), |_| Clock::default()).unwrap(), host)
}

#[test]
fn a_deadline_moved_later_fires_once_and_not_early() {
    let (mut sim, host) = clock();
    sim.with_host(host, |clock, _, _| clock.deadline = Some(ns(100)));
    for n in 1..10 {
        sim.run_until(ns(n * 10));
        sim.with_host(host, |clock, now, _| clock.deadline = Some(now + Span::from_nanos(100)));
    }
    sim.run_until(ns(189));
    assert_eq!(sim.host(host).fired, [0; 0]);
    sim.run_until(ns(1_000));
    assert_eq!(sim.host(host).fired, [190]);
    assert_eq!(sim.totals().events, 2, "one entry found that it was too early, one fired");
}

#[test]
fn a_deadline_moved_earlier_and_back_fires_once() {
    let (mut sim, host) = clock();
    for at in [100, 50, 100, 30, 100] {
        sim.with_host(host, |clock, _, _| clock.deadline = Some(ns(at)));
    }
    sim.run_until(ns(1_000));
    assert_eq!(sim.host(host).fired, [100]);
    sim.with_host(host, |clock, _, _| clock.deadline = Some(ns(10)));
    sim.run_until(ns(1_000));
    assert_eq!(sim.host(host).fired, [100, 1_000], "a deadline in the past is due at once");
    sim.with_host(host, |clock, _, _| clock.deadline = Some(ns(2_000)));
    sim.with_host(host, |clock, _, _| clock.deadline = None);
    sim.run_until(ns(3_000));
    assert_eq!(sim.host(host).fired.len(), 2, "a cancelled deadline does not fire");
}

proptest! {
    /// A deadline that is moved about fires at the times of a model.
    #[test]
    fn deadlines_agree_with_a_model(
        moves in prop::collection::vec((0..20u64, prop::option::of(0..60u64)), 1..60),
    ) {
        let (mut sim, host) = clock();
        let (mut now, mut deadline, mut expected) = (0, None::<u64>, Vec::new());
        for (wait, ahead) in moves {
            now += wait;
            expected.extend(deadline.filter(|at| *at <= now));
            sim.run_until(ns(now));
            prop_assert_eq!(&sim.host(host).fired, &expected);
            deadline = ahead.map(|ahead| now + ahead);
            sim.with_host(host, |clock, _, _| clock.deadline = deadline.map(ns));
        }
        // The last deadline was moved after the last run, and is still to come.
        expected.extend(deadline);
        sim.run_until(ns(now + 100));
        prop_assert_eq!(&sim.host(host).fired, &expected);
    }
}

#[test]
#[should_panic(expected = "handle_deadline must move it on")]
fn a_deadline_that_does_not_move_is_detected() {
    struct Stuck;
    impl Host<Numbered> for Stuck {
        fn handle_packet(&mut self, _: Time, _: Numbered, _: &mut Out<Numbered>) {}
        fn poll_deadline(&self) -> Option<Time> {
            Some(ns(5))
        }
        fn handle_deadline(&mut self, _: Time, _: &mut Out<Numbered>) {}
    }
    let mut net = Topology::new();
    net.add_host("stuck").unwrap();
    net.build(Seed(1), |_| Stuck).unwrap().run_until(ns(10));
}

#[test]
fn a_trace_sees_everything_in_order() {
    let mut net = Topology::new();
    let near = net.add_host("near").unwrap();
    net.add_host("far").unwrap();
    let profile = Profile { queue: Limit::Packets(1), ..wire(Rate::mbit(12), Span::ZERO) };
    net.add_link("link", "near", "far", profile).unwrap();
    let route = net.route("near", "far").unwrap();
    let plan = vec![(ns(5), route, packet(1, 1_500)), (ns(5), route, packet(2, 1_500))];
    let mut sim = planned(&net, Seed(1), vec![(near, plan)]);
    let mut seen = Vec::new();
    sim.run_traced(ns(2_000_000), &mut |at: Time, event: Event<'_, Numbered>| {
        let what = match event {
            Event::Sent { packet, .. } => format!("sent {}", packet.number),
            Event::Offered { packet, outcome, .. } => format!("{outcome:?} {}", packet.number),
            Event::Passed { packet, .. } => format!("passed {}", packet.number),
            Event::Delivered { packet, .. } => format!("delivered {}", packet.number),
            Event::Deadline { .. } => "deadline".into(),
        };
        seen.push(format!("{} {what}", at.as_nanos()));
    });
    let expected = [
        "5 deadline",
        "5 sent 1",
        "5 Queued 1",
        "5 sent 2",
        "5 DroppedQueue 2",
        "1000005 passed 1",
        "1000005 delivered 1",
    ];
    assert_eq!(seen, expected);
    let mut other: Sim<Numbered, Planned> = planned(&net, Seed(1), Vec::new());
    other.run_traced(ns(1), &mut NoTrace);
    assert_ne!(other.digest(), sim.digest());
}
