//! Reproducibility, and conservation of packets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Numbered, Planned, ns, packet, planned};
use link::{
    Aqm, Blackout, CoDel, Counters, FqCoDel, Jitter, Limit, Loss, Profile, RatePlan, Red, Redraw,
    Reorder, Spread,
};
use netsim::{Digest, Event, Sim, Topology};
use proptest::prelude::*;
use units::{Rate, Seed, Span, Time};

/// A link with all random impairments.
fn noisy(rate: Rate) -> Profile {
    Profile {
        queue: Limit::Packets(20),
        loss: Loss::Bernoulli(0.05),
        duplicate: 0.02,
        corrupt: 0.02,
        reorder: Some(Reorder { probability: 0.1, delay: Span::from_millis(3) }),
        rate: RatePlan {
            redraw: Some(Redraw {
                every: Span::from_millis(20),
                from: 0.5,
                to: 1.0,
                seed: Seed(9),
            }),
            ..RatePlan::constant(rate)
        },
        ..Profile::new(rate, Span::from_millis(5))
    }
}

/// `pairs` of hosts that exchange packets over a common noisy link and clean access links; half of
/// the senders have jitter.
fn crowd(pairs: u64, seed: Seed) -> Sim<Numbered, Planned> {
    let mut net = Topology::new();
    net.add_router("left").unwrap();
    net.add_router("right").unwrap();
    net.duplex("line", "left", "right", &noisy(Rate::mbit(20))).unwrap();
    let clean = Profile::new(Rate::mbit(1_000), Span::from_micros(100));
    let mut plans = Vec::new();
    for n in 0..pairs {
        let (near, far) = (format!("near {n}"), format!("far {n}"));
        let host = net.add_host(near.as_str()).unwrap();
        net.add_host(far.as_str()).unwrap();
        net.duplex(&near, &near, "left", &clean).unwrap();
        net.duplex(&far, "right", &far, &clean).unwrap();
        let (there, back) = (net.route(&near, &far).unwrap(), net.route(&far, &near).unwrap());
        if n % 2 == 1 {
            net.jitter(&near, Span::from_micros(600)).unwrap();
        }
        let ping = |i: u64| Numbered {
            answer: Some(back),
            ..packet(n * 1_000_000 + i, 100 + i * 37 % 1_400)
        };
        plans.push((host, (0..400).map(|i| (ns(i * 900_000 + n * 7), there, ping(i))).collect()));
    }
    planned(&net, seed, plans)
}

fn run(seed: Seed) -> Digest {
    let mut sim = crowd(4, seed);
    sim.run_until(ns(2_000_000_000));
    sim.digest()
}

#[test]
fn the_digest_is_golden() {
    // The same in debug and release builds and on every machine. A change here means that every
    // figure changes, and must be deliberate.
    assert_eq!(run(Seed(1)).to_string(), "550e70f29619ee36");
    assert_eq!(run(Seed(1)), run(Seed(1)));
    assert_ne!(run(Seed(1)), run(Seed(2)));
}

#[test]
fn traces_and_stops_change_nothing() {
    let mut sim = crowd(4, Seed(1));
    let mut seen = 0u64;
    for n in 1..=200u64 {
        sim.run_traced(ns(n * 10_000_000), &mut |_: Time, _: Event<'_, Numbered>| seen += 1);
    }
    assert!(seen > 10_000);
    assert_eq!(sim.digest(), run(Seed(1)));
}

/// The counters of the noisy link `first` and the packets received over it, in a network with or
/// without other components.
fn draws(more: bool) -> (Counters, Vec<(u64, u64)>) {
    draws_of(noisy, more)
}

/// As [`draws`], with links of another kind.
fn draws_of(noisy: fn(Rate) -> Profile, more: bool) -> (Counters, Vec<(u64, u64)>) {
    let mut net = Topology::new();
    if more {
        net.add_host("other near").unwrap();
        net.add_host("other far").unwrap();
        net.add_link("other", "other near", "other far", noisy(Rate::mbit(5))).unwrap();
        net.jitter("other near", Span::from_millis(1)).unwrap();
    }
    let near = net.add_host("near").unwrap();
    let far = net.add_host("far").unwrap();
    let link = net.add_link("first", "near", "far", noisy(Rate::mbit(10))).unwrap();
    net.jitter("near", Span::from_millis(1)).unwrap();
    let route = net.route("near", "far").unwrap();
    let plan =
        |route| (0..500).map(|i| (ns(i * 1_000_000), route, packet(i, 1_000))).collect::<Vec<_>>();
    let mut plans = vec![(near, plan(route))];
    if more {
        let route = net.route("other near", "other far").unwrap();
        plans.push((net.host_id("other near").unwrap(), plan(route)));
    }
    let mut sim = planned(&net, Seed(3), plans);
    sim.run_until(ns(3_000_000_000));
    (sim.counters(link), sim.host(far).heard.clone())
}

#[test]
fn another_component_does_not_change_the_draws_of_others() {
    let (counters, heard) = draws(false);
    assert!(
        counters.dropped_loss > 5
            && counters.reordered > 5
            && counters.corrupted > 1
            && counters.duplicated > 1
    );
    assert_eq!(draws(true), (counters, heard));
}

#[test]
fn another_component_does_not_change_draws_of_aqm_and_jitter() {
    let managed = |rate: Rate| {
        let spread = Spread::Normal { mean: Span::from_millis(2), deviation: Span::from_millis(1) };
        let aqm = Aqm::Red(Red { weight: 0.1, ..Red::new(2.0, 8.0) });
        // A little slower than the offered load.
        let rate = RatePlan::constant(Rate::from_bits(rate.as_bits() * 3 / 4));
        Profile {
            aqm,
            rate,
            jitter: Some(Jitter { spread, reorders: true }),
            ..noisy(Rate::mbit(1))
        }
    };
    let (counters, heard) = draws_of(managed, false);
    assert!(counters.dropped_aqm > 5 && heard.windows(2).any(|pair| pair[0].1 > pair[1].1));
    assert_eq!(draws_of(managed, true), (counters, heard));
}

#[test]
fn each_host_has_a_seed_of_its_own() {
    let seeds = |names: &[&str]| {
        let mut net = Topology::new();
        for name in names {
            net.add_host(*name).unwrap();
        }
        let mut seeds = Vec::new();
        net.build(Seed(1), |site| {
            seeds.push((site.name.to_string(), site.seed()));
            Planned::default()
        })
        .unwrap();
        seeds
    };
    assert_eq!(seeds(&["a", "b"])[1], seeds(&["c", "b", "a"])[1]);
    assert_eq!(seeds(&["b"])[0].1, Seed(1).stream("host/b"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_packet_is_delivered_dropped_or_in_flight(
        seed: u64, pairs in 1..5u64, queue in 1..30u64, loss in 0.0..0.5f64,
        dark: bool, redraw: bool, hold: bool, stop in 0..600u64,
        aqm in 0..4usize, jitter in prop::option::of(any::<bool>()),
    ) {
        let mut profile = noisy(Rate::mbit(10));
        profile.queue = Limit::Packets(queue);
        profile.loss = Loss::Bernoulli(loss);
        let codel = CoDel { interval: Span::from_millis(5), ..CoDel::default() };
        let fair = FqCoDel { codel, queues: 2, ..FqCoDel::default() };
        let red = Red::new(1.0, 5.0);
        profile.aqm =
            [Aqm::DropTail, Aqm::Red(red), Aqm::CoDel(codel), Aqm::FqCoDel(fair)][aqm];
        let spread = Spread::Uniform(Span::from_millis(4));
        profile.jitter = jitter.map(|reorders| Jitter { spread, reorders });
        if !redraw {
            profile.rate = RatePlan::constant(Rate::mbit(10));
        }
        if !hold {
            profile.reorder = None;
        }
        if dark {
            let (from, to) = (Span::from_millis(30), Some(Span::from_millis(50)));
            profile.blackouts = vec![Blackout { from, to, every: Some(Span::from_millis(100)) }];
        }
        let mut net = Topology::new();
        net.add_router("left").unwrap();
        net.add_router("right").unwrap();
        net.duplex("line", "left", "right", &profile).unwrap();
        let mut plans = Vec::new();
        for n in 0..pairs {
            let (near, far) = (format!("near {n}"), format!("far {n}"));
            let host = net.add_host(near.as_str()).unwrap();
            net.add_host(far.as_str()).unwrap();
            let access = Profile::new(Rate::mbit(100), Span::from_millis(1));
            net.duplex(&near, &near, "left", &access).unwrap();
            net.duplex(&far, "right", &far, &access).unwrap();
            let (there, back) = (net.route(&near, &far).unwrap(), net.route(&far, &near).unwrap());
            net.jitter(&near, Span::from_millis(n)).unwrap();
            let ping = Numbered { answer: Some(back), ..packet(n, 1_200) };
            plans.push((host, (0..200u64).map(|i| (ns(i * 1_500_000), there, ping)).collect()));
        }
        let mut sim = planned(&net, Seed(seed), plans);
        let mut check = |until: Time| {
            sim.run_until(until);
            let totals = sim.totals();
            let made: u64 = sim.all_counters().map(|counters| counters.duplicated).sum();
            let dropped: u64 = sim.all_counters().map(|counters| counters.dropped()).sum();
            let heard: usize = sim.hosts().iter().map(|host| host.heard.len()).sum();
            assert_eq!(totals.delivered, heard as u64);
            let gone = totals.delivered + totals.damaged + dropped;
            assert_eq!(totals.sent + made, gone + sim.held());
            sim.held()
        };
        check(ns(stop * 1_000_000));
        prop_assert_eq!(check(ns(20_000_000_000)), 0, "all is over by then");
    }
}
