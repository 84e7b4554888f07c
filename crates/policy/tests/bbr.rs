//! BBR on model links: bandwidth, queue length, losses, `ProbeRTT`, and fairness.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod common;

use common::{Drops, Link, MSS, Model, secs};
use policy::cc::{Acked, Allowance, Congestion, Controller, Lost, Sent, Signal, Start, by_name};
use units::{Bytes, Rate, Span, SubflowId, Time};

const PROPAGATION: Span = Span::from_millis(50);
/// The bandwidth-delay product of 10 Mbit/s and 50 ms in packets, with the packet in service.
const BDP: f64 = 42.7;

fn alone(controller: &str, mbit: u64, buffer: f64, drops: Drops) -> Model {
    let mut model = Model::default();
    let link = model.link(Link::new(Rate::mbit(mbit), buffer, drops));
    model.flow(controller, &[(link, PROPAGATION)], Span::ZERO);
    model
}

/// The share of a flow in a link of `mbit` Mbit/s since the measurement began.
fn share(model: &Model, flow: usize, mbit: u64) -> f64 {
    model.rate(model.flows[flow].delivered()) * MSS.as_f64() * 8.0 / Rate::mbit(mbit).as_f64()
}

#[test]
fn startup_doubles_each_round_trip_and_drains() {
    let mut model = alone("bbr", 200, 2_000.0, Drops::None);
    model.measure(secs(1), secs(2));
    // 833 packets of bandwidth-delay product are six doublings and a half from ten.
    let rates: Vec<f64> =
        model.flows[0].subflows[0].pacing.iter().map(|rate| rate.as_f64() / 2.77e6).collect();
    println!("{:.1?}", &rates[..12]);
    // The first rate is a guess, the second one from the first packets of the initial window.
    for pair in rates[2..8].windows(2) {
        assert!((1.8..=2.4).contains(&(pair[1] / pair[0])), "{pair:?}");
    }
    assert!((0.9..1.1).contains(&(rates[7] / rates[2] / 32.0)), "{rates:?}");
    assert!(rates[..10].iter().any(|rate| *rate > 195.0), "{rates:?}");
    // Startup's queue of a bandwidth-delay product is drained a few round trips later.
    let queue = model.links[0].mean_queue();
    assert!(queue < 40.0, "{queue}");
}

/// A large buffer: little of it is used, and nearly all of the link. `ProbeRTT` halves the bytes in
/// flight for some 250 ms of each five seconds, and pacing stays 1 % below the bandwidth.
#[test]
fn it_holds_about_the_bandwidth_delay_product() {
    let mut model = alone("bbr", 10, 200.0, Drops::None);
    model.measure(secs(5), secs(35));
    let (found, queue) = (share(&model, 0, 10), model.links[0].mean_queue());
    println!("share {found:.3}, queue {queue:.1}");
    assert!(found > 0.95, "{found}");
    assert!(queue < 0.15 * BDP, "{queue}");
    assert_eq!(model.links[0].dropped, 0);

    let mut sum = 0.0;
    for step in 0..1_000 {
        model.run(secs(35) + Span::from_millis(step * 20));
        sum += model.flows[0].subflows[0].in_flight.as_f64() / MSS.as_f64() / 1_000.0;
    }
    println!("in flight {sum:.1} packets");
    assert!((0.9..1.2).contains(&(sum / BDP)), "{sum}");
}

#[test]
fn probe_rtt_halves_the_window_every_five_seconds() {
    let mut model = alone("bbr", 10, 200.0, Drops::None);
    let mut dips: Vec<(u64, u64)> = Vec::new();
    for millis in (1_000..31_000).step_by(10) {
        model.run(Span::from_millis(millis));
        let packets = model.flows[0].controller.allowance(SubflowId(0)).window.0 / MSS.0;
        if packets > BDP as u64 / 2 + 1 {
            continue;
        }
        match dips.last_mut() {
            Some((_, to)) if millis - *to <= 20 => *to = millis,
            _ => dips.push((millis, millis)),
        }
    }
    println!("{dips:?}");
    assert!((5..=6).contains(&dips.len()), "{dips:?}");
    assert!(dips.iter().all(|(from, to)| (200..=350).contains(&(to - from))), "{dips:?}");
    assert!(
        dips.windows(2).all(|pair| (4_900..=6_500).contains(&(pair[1].0 - pair[0].0))),
        "{dips:?}"
    );
}

/// Random losses below the threshold of 2 % lower the short-term bounds until the next probe: by 1
/// % of loss and 1 % of pacing margin in a round trip with losses, over the 40 round trips between
/// two probes here.
#[test]
fn random_losses_cost_little() {
    let under = |controller, share_lost| {
        let mut model = alone(controller, 10, 200.0, Drops::Random(share_lost));
        model.measure(secs(5), secs(125));
        let found = share(&model, 0, 10);
        println!("{controller}, {share_lost} lost of a million: {found:.3}");
        found
    };
    assert!(under("bbr", 1_000) > 0.94);
    let (bbr, cubic) = (under("bbr", 10_000), under("cubic", 10_000));
    assert!(bbr > 0.8 && bbr > 2.5 * cubic, "{bbr} {cubic}");
    // Above the threshold it backs off.
    assert!(under("bbr", 30_000) < 0.7);
}

/// A quarter of the bandwidth-delay product of buffer: few losses, and the link is used.
#[test]
fn shallow_buffers_suffice() {
    let mut model = alone("bbr", 10, 10.0, Drops::None);
    model.measure(secs(5), secs(65));
    let found = share(&model, 0, 10);
    let lost = model.links[0].dropped as f64 / (model.flows[0].delivered() as f64);
    println!("share {found:.3}, lost {lost:.4}");
    assert!(found > 0.93 && lost < 0.01, "{found} {lost}");
}

#[test]
fn it_follows_the_bandwidth() {
    let mut model = alone("bbr", 30, 400.0, Drops::None);
    model.run(secs(10));
    model.links[0].rate = Rate::mbit(10);
    model.measure(secs(35), secs(40));
    let (found, queue) = (share(&model, 0, 10), model.links[0].mean_queue());
    println!("down to 10: {found:.3}, queue {queue:.1}");
    assert!(found > 0.93 && queue < BDP / 2.0, "{found} {queue}");
    model.links[0].rate = Rate::mbit(30);
    model.measure(secs(44), secs(49));
    let found = share(&model, 0, 30);
    println!("up to 30: {found:.3}");
    assert!(found > 0.9, "{found}");
}

#[test]
fn flows_share_a_link() {
    let pair = |others: [&str; 2], late: u64, buffer: f64| {
        let mut model = Model::default();
        let link = model.link(Link::new(Rate::mbit(50), buffer, Drops::None));
        for (controller, start) in others.into_iter().zip([0, late]) {
            model.flow(controller, &[(link, Span::from_millis(40))], secs(start));
        }
        model.measure(secs(30), secs(90));
        let shares = [0, 1].map(|flow| share(&model, flow, 50));
        println!("{others:?}, the second at {late} s, {buffer} packets may wait: {shares:.3?}");
        shares
    };
    for late in [0, 10] {
        let shares = pair(["bbr", "bbr(seed=2)"], late, 200.0);
        assert!(shares.iter().all(|share| (0.38..0.62).contains(share)), "{shares:?}");
    }
    // With a buffer of one bandwidth-delay product it leaves CUBIC a large share.
    let shares = pair(["bbr", "cubic"], 0, 167.0);
    assert!(shares.iter().all(|share| *share > 0.3), "{shares:?}");
}

#[test]
fn the_seed_decides_when_it_probes() {
    let curve = |controller: &str| {
        let mut model = alone(controller, 10, 200.0, Drops::None);
        model.run(secs(20));
        model.flows[0].subflows[0].pacing.clone()
    };
    assert_eq!(curve("bbr"), curve("bbr(seed=1)"));
    assert_ne!(curve("bbr"), curve("bbr(seed=2)"));
}

const ID: SubflowId = SubflowId(0);

/// A controller with the reports of a steady path of 8 Mbit/s and 100 ms: 100 packets of 1000 bytes
/// in flight.
struct Steady {
    bbr: Box<dyn Controller>,
    now: Time,
    in_flight: u64,
}

impl Steady {
    /// The controller after a second, in which Startup and Drain end.
    fn new() -> Steady {
        let mut bbr = by_name("bbr").expect("known");
        bbr.handle_add(
            Time::ZERO,
            ID,
            &Start { mss: Bytes(1_000), initial_window: Bytes(10_000), rtt: None },
        );
        let mut steady = Steady { bbr, now: Time::ZERO, in_flight: 100_000 };
        steady.run(1_000, |_| {});
        steady
    }

    fn allowance(&self) -> Allowance {
        self.bbr.allowance(ID)
    }

    /// In each of `millis` milliseconds a packet leaves and one is acknowledged; `change` modifies
    /// the acknowledgement.
    fn run(&mut self, millis: u64, change: impl Fn(&mut Acked)) {
        for _ in 0..millis {
            self.now += Span::from_millis(1);
            let rtt = Span::from_millis(100);
            let sent = Sent {
                bytes: Bytes(1_000),
                in_flight: Bytes(self.in_flight),
                is_retransmission: false,
            };
            self.bbr.handle_sent(self.now, ID, &sent);
            let mut acked = Acked {
                bytes: Bytes(1_000),
                in_flight: Bytes(self.in_flight),
                sent_at: self.now - rtt,
                window_at_sending: Some(self.allowance().window),
                rtt: Some(rtt),
                smoothed_rtt: rtt,
                min_rtt: rtt,
                one_way_delay: None,
                ack_delay: None,
                delivery_rate: Some(Rate::mbit(8)),
                round: 0,
                ce_packets: 0,
                ce_bytes: Bytes::ZERO,
                is_app_limited: false,
                in_recovery: false,
                slow_start_divisor: 1,
            };
            change(&mut acked);
            self.bbr.handle_acked(self.now, ID, &acked);
        }
    }
}

#[test]
fn its_steady_state_is_twice_the_product_at_a_percent_below_the_bandwidth() {
    let steady = Steady::new();
    let Allowance { window, pacing, burst, .. } = steady.allowance();
    assert_eq!(pacing, Some(Rate::from_bits(7_920_000)));
    assert_eq!(burst, Bytes(2_000), "a millisecond's worth is less than two packets");
    assert!((200_000..=210_000).contains(&window.0), "{window:?}");
    assert!(!steady.bbr.wants_rate_reduction());
    assert_eq!(steady.bbr.threshold(ID), Some(Bytes(100_000)));
}

#[test]
fn losses_and_marks_lower_the_short_term_bounds() {
    for is_mark in [false, true] {
        let mut steady = Steady::new();
        let before = steady.allowance();
        let slow_down = |acked: &mut Acked| acked.delivery_rate = Some(Rate::mbit(4));
        steady.run(150, slow_down);
        assert_eq!(steady.allowance(), before, "without losses nothing changes");
        if is_mark {
            let congestion = Congestion { signal: Signal::Mark, in_flight: Bytes(100_000) };
            steady.bbr.handle_congestion(steady.now, ID, &congestion);
        } else {
            let lost = Lost {
                bytes: Bytes(1_000),
                in_flight_at_sending: Some(Bytes(100_000)),
                sent_at: steady.now - Span::from_millis(100),
            };
            steady.bbr.handle_lost(steady.now, ID, &lost);
        }
        // Half the rate was delivered in the round trip: β of rate and window remain.
        steady.run(110, slow_down);
        let after = steady.allowance();
        assert_eq!(
            after.pacing.map(Rate::as_bits),
            before.pacing.map(|rate| rate.as_bits() * 7 / 10),
            "{is_mark}"
        );
        assert_eq!(after.window.0, before.window.0 * 7 / 10, "{is_mark}");
        // The next probe removes the bounds.
        steady.run(3_500, |_| {});
        assert!(steady.allowance().window >= before.window, "{:?}", steady.allowance());
    }
}

#[test]
fn a_mark_ends_startup_and_undoing_resumes_it() {
    let mut bbr = by_name("bbr").expect("known");
    bbr.handle_add(
        Time::ZERO,
        ID,
        &Start { mss: Bytes(1_000), initial_window: Bytes(10_000), rtt: None },
    );
    let mut steady = Steady { bbr, now: Time::ZERO, in_flight: 100_000 };
    steady.run(150, |_| {});
    let before = steady.allowance();
    assert_eq!(before.pacing, Some(Rate::from_bits(277 * 99 * 8_000_000 / 10_000)));
    let congestion = Congestion { signal: Signal::Mark, in_flight: Bytes(100_000) };
    steady.bbr.handle_congestion(steady.now, ID, &congestion);
    let mut undone = Steady { bbr: steady.bbr.clone(), ..steady };
    steady.run(1, |acked| acked.in_flight = Bytes(150_000));
    assert_eq!(
        steady.allowance().pacing,
        Some(Rate::from_bits(50 * 99 * 8_000_000 / 10_000)),
        "Drain"
    );
    assert_eq!(steady.bbr.threshold(ID), Some(Bytes(100_000)));
    undone.run(1, |acked| acked.in_flight = Bytes(150_000));
    undone.bbr.handle_undo(undone.now, ID);
    undone.run(1, |_| {});
    assert_eq!((undone.allowance().pacing, undone.bbr.threshold(ID)), (before.pacing, None));
}

#[test]
fn a_timeout_leaves_a_packet_and_undoing_brings_the_window_back() {
    let mut steady = Steady::new();
    let before = steady.allowance().window;
    steady.bbr.handle_timeout(steady.now, ID, Bytes(100_000));
    assert_eq!(steady.allowance().window, Bytes(1_000));
    steady.run(1, |_| {});
    assert_eq!(
        steady.allowance().window,
        Bytes(4_000),
        "four packets at least once there is an acknowledgement"
    );
    steady.run(10, |_| {});
    assert_eq!(steady.allowance().window, Bytes(14_000), "a packet a packet");
    let mut undone = Steady { bbr: steady.bbr.clone(), ..steady };
    undone.bbr.handle_undo(undone.now, ID);
    assert_eq!(undone.allowance().window, before);
    // The bytes in flight at the timeout are delivered: the window returns, up to the short-term
    // bound.
    steady.run(100, |_| {});
    assert!(steady.allowance().window >= Bytes(100_000), "{:?}", steady.allowance());
}

#[test]
fn after_idleness_it_goes_on_at_the_bandwidth_and_probes_no_round_trip() {
    let mut steady = Steady::new();
    steady.now += secs(7);
    steady.in_flight = 1_000;
    let window = steady.allowance().window;
    steady.run(1, |acked| acked.is_app_limited = true);
    let after = steady.allowance();
    assert_eq!(after.pacing, Some(Rate::from_bits(7_920_000)));
    assert!(after.window >= window, "no ProbeRTT: {after:?}");
    // Without idleness the same wait leads to ProbeRTT: half the bandwidth-delay product.
    let mut busy = Steady::new();
    busy.now += secs(7);
    busy.run(1, |_| {});
    assert_eq!(busy.allowance().window, Bytes(50_000));
}
