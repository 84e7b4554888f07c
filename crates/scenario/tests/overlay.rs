//! Packet-level runs of the overlay: rates near the optimum, back-pressure of slow hops,
//! conservation of payload, reproducibility.

use overlay::{Initial, Instance, Selection};
use scenario::relays::{Demands, Network, Outcome, OverlaySetting, Source, cases, control};
use units::{Bytes, Rate, Seed, Span, Time};

fn setting(demand: Rate, intervals: usize) -> OverlaySetting {
    let mut setting = OverlaySetting::new(Demands::Equal(demand));
    (setting.study.intervals, setting.study.settled) = (intervals, intervals / 2);
    setting
}

/// The paper's Fig. 3: the optimum serves all demands, but max-min rates do not reach it without
/// moving load between relays.
fn chain(intervals: usize, seed: u64) -> Outcome {
    let demand = Rate::mbit(6);
    let instance = Instance { demands: vec![demand; 4], capacities: vec![demand; 4] };
    let selection = Selection::new(2, vec![0, 1, 0, 1, 1, 2, 2, 3]);
    control(&setting(demand, intervals), &instance, &selection, Seed(seed))
        .expect("a small network")
}

#[test]
fn four_sources_shift_their_load_until_all_are_served() {
    let outcome = chain(200, 1);
    assert!((outcome.optimum - 1.0).abs() < 1e-9);
    assert!(outcome.gap() <= 0.07, "{} of {}", outcome.value, outcome.optimum);
    assert!(outcome.value <= 1.0, "{} is more than sources have", outcome.value);
    // The third and the fourth source have to leave relays that others need.
    assert!(
        outcome.paths[5] > 2.0 * outcome.paths[4] && outcome.paths[7] > 2.0 * outcome.paths[6],
        "{outcome:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (one, again, other) = (chain(20, 1), chain(20, 1), chain(20, 2));
    assert_eq!(one, again);
    assert_ne!(one.digest, other.digest);
}

/// Fixed paths, a given demand: the paper's simulations. Their figures hang on these runs.
#[test]
fn the_papers_runs_stay_as_they_are() {
    let case = cases(6).into_iter().find(|case| case.name == "6 Mbit/s b=1 f=0.6").unwrap();
    let mut setting = case.setting;
    (setting.study.initial, setting.study.intervals) = (Initial::Zero, 60);
    let zero = scenario::relays::run(&setting, Seed(3)).unwrap().digest;
    let digests = [chain(60, 1).digest, chain(60, 2).digest, zero].map(|digest| digest.to_string());
    assert_eq!(digests, ["e623e993a1cfef09", "820e70f1fd2bea0e", "b7e2a52daedaf0c4"]);
}

/// One source with a slow and a fast relay, still in its round-robin phase: only back-pressure
/// limits it.
#[test]
fn a_slow_second_hop_holds_back_the_first() {
    let demand = Rate::mbit(6);
    let instance =
        Instance { demands: vec![demand], capacities: vec![Rate::mbit(1), Rate::mbit(20)] };
    let setting = OverlaySetting { interval: 10_000, ..setting(demand, 2) };
    let mut network =
        Network::new(&setting, &instance, &Selection::new(2, vec![0, 1]), Seed(1)).unwrap();
    let opens = setting.period();
    let mut rates = Vec::new();
    let mut before = vec![Bytes::ZERO; 2];
    let step = Span::from_millis(500);
    // The source starts at a random time within its interval.
    let mut now = Time::ZERO;
    while network.receiver().received().sum::<Bytes>() == Bytes::ZERO {
        now += step;
        assert!(now < Time::ZERO + opens);
        network.sim.run_until(now);
    }
    let window = Bytes(setting.window * setting.packet.0);
    for _ in 0..20 {
        now += step;
        network.sim.run_until(now);
        let source = network.sources().next().unwrap();
        let written: Vec<Bytes> = source.written().collect();
        rates.push([(written[0] - before[0]) / step, (written[1] - before[1]) / step]);
        before = written;
        for (relay, acked) in network.relays().zip(source.acked()) {
            assert!(relay.most().all(|most| most <= setting.bound()));
            assert!(
                acked <= relay.received().sum::<Bytes>() + window,
                "more than a window is unread"
            );
        }
    }
    for [slow, fast] in &rates[4..] {
        assert!((0.9e6..=1.05e6).contains(&slow.as_f64()), "{slow}: the slow relay takes 1 Mbit/s");
        assert!(
            (4.9e6..=5.1e6).contains(&fast.as_f64()),
            "{fast}: the rest of 6 Mbit/s goes over the other"
        );
    }
    // All that the slow path holds, wherever.
    let held = before[0] - network.receiver().received().next().unwrap();
    let under_way = Bytes(3 * window.0 + setting.packet.0 * setting.ahead);
    assert!(held <= setting.bound() + under_way, "{held}");
}

#[test]
fn payload_is_conserved() {
    let case = cases(6).into_iter().find(|case| case.name == "1.2|3.6|6 Mbit/s b=1 f=0.6").unwrap();
    for (seed, initial) in [(1, Initial::MaxMin), (2, Initial::Zero)] {
        let mut setting = case.setting.clone();
        setting.study.initial = initial;
        let instance = setting.study.instance(Seed(seed));
        let selection = setting.study.chooser(&instance, Seed(seed)).select(6, 2);
        let mut network = Network::new(&setting, &instance, &selection, Seed(seed)).unwrap();
        for interval in 1..=40 {
            network.sim.run_until(Time::ZERO + setting.period() * interval);
            let written: Vec<Bytes> = network.sources().flat_map(Source::written).collect();
            let mut relayed = vec![Bytes::ZERO; written.len()];
            for relay in network.relays() {
                for (&path, bytes) in relay.paths().iter().zip(relay.received()) {
                    relayed[path as usize] = bytes;
                }
            }
            for ((written, relayed), received) in
                written.iter().zip(&relayed).zip(network.receiver().received())
            {
                assert!(
                    received <= *relayed && relayed <= written,
                    "{received} of {relayed} of {written}"
                );
            }
        }
        let received: Bytes = network.receiver().received().sum();
        assert!(received > Bytes::ZERO);
        for (source, &demand) in network.sources().zip(&instance.demands) {
            // One packet more per path: fractions of a packet carry over.
            let most = demand * (setting.period() * 40) + Bytes(2 * setting.packet.0);
            assert!(source.written().sum::<Bytes>() <= most, "a source sends more than it has");
            assert!(source.rates().iter().sum::<f64>() <= demand.as_f64() * (1.0 + 1e-9));
        }
    }
}

#[test]
fn links_carry_the_capacity_in_payload() {
    let demand = Rate::mbit(6);
    // One path, and less than the source wants to send.
    let instance = Instance { demands: vec![demand], capacities: vec![Rate::mbit(2)] };
    let outcome =
        control(&setting(demand, 100), &instance, &Selection::new(1, vec![0]), Seed(1)).unwrap();
    assert!((outcome.optimum - 1.0 / 3.0).abs() < 1e-9);
    assert!((0.97..=1.0001).contains(&(outcome.value / outcome.optimum)), "{outcome:?}");
    assert!((0.97..=1.0001).contains(&outcome.utilisation), "{outcome:?}");
}
