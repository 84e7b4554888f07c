//! Invariants for any sources, relays and paths: feasibility, and the optimum as the minimum cut.

use overlay::{Config, Detect, Initial, Instance, Selection, optimum};
use proptest::prelude::*;
use scenario::relays::Sharing;
use study::fluid::{Fleet, max_min};
use units::{Rate, Seed};

/// Rounding of sums of a few rates.
const SLACK: f64 = 1.0 + 1e-9;

fn cases() -> impl Strategy<Value = (Instance, Selection)> {
    (1_usize..8, 1_usize..6).prop_flat_map(|(sources, relays)| {
        (1..=relays.min(3)).prop_flat_map(move |paths| {
            let demands = prop::collection::vec(1_u64..1_000_000, sources);
            let capacities = prop::collection::vec(0_u64..1_000_000, relays);
            let choices = prop::collection::vec(
                Just((0..relays).collect::<Vec<_>>()).prop_shuffle(),
                sources,
            );
            (demands, capacities, choices).prop_map(move |(demands, capacities, choices)| {
                let rates = |bits: Vec<u64>| bits.into_iter().map(Rate::from_bits).collect();
                let instance = Instance { demands: rates(demands), capacities: rates(capacities) };
                let relays = choices.iter().flat_map(|choice| choice[..paths].to_vec()).collect();
                (instance, Selection::new(paths, relays))
            })
        })
    })
}

/// The minimum cut over every set of sources whose demands are cut; for the others, their relays
/// are cut.
fn smallest_cut(instance: &Instance, selection: &Selection) -> Rate {
    let cut = |set: u32| {
        let is_cut = |source: &usize| set >> source & 1 == 1;
        let (cut, others): (Vec<usize>, Vec<usize>) = (0..selection.sources()).partition(is_cut);
        let is_used =
            |relay: &usize| others.iter().any(|&source| selection.of(source).contains(relay));
        let relays =
            (0..instance.capacities.len()).filter(is_used).map(|relay| instance.capacities[relay]);
        cut.iter().map(|&source| instance.demands[source]).chain(relays).sum()
    };
    (0..1 << selection.sources()).map(cut).min().expect("the empty set is one")
}

/// The load of each relay.
fn loads(selection: &Selection, relays: usize, rates: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; relays];
    for (&relay, rate) in selection.relays().iter().zip(rates) {
        loads[relay] += rate;
    }
    loads
}

fn check_feasible(
    instance: &Instance,
    selection: &Selection,
    rates: &[f64],
) -> Result<(), TestCaseError> {
    for (source, paths) in rates.chunks(selection.paths()).enumerate() {
        prop_assert!(paths.iter().all(|&rate| rate >= 0.0), "source {source}: {paths:?}");
        prop_assert!(
            paths.iter().sum::<f64>() <= instance.demands[source].as_f64() * SLACK,
            "source {source}: {paths:?}"
        );
    }
    for (load, capacity) in
        loads(selection, instance.capacities.len(), rates).iter().zip(&instance.capacities)
    {
        prop_assert!(*load <= capacity.as_f64() * SLACK + 1e-6, "{load} of {capacity}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_optimum_is_the_smallest_cut((instance, selection) in cases()) {
        let best = optimum(&instance, &selection);
        prop_assert_eq!(best.rate, smallest_cut(&instance, &selection));
        prop_assert_eq!(best.paths.iter().copied().sum::<Rate>(), best.rate);
        let rates: Vec<f64> = best.paths.iter().map(|rate| rate.as_f64()).collect();
        check_feasible(&instance, &selection, &rates)?;
    }

    #[test]
    fn initial_rates_are_feasible_and_leave_no_path_that_could_rise(
        (instance, selection) in cases(),
    ) {
        let rates = max_min(&instance, &selection);
        check_feasible(&instance, &selection, &rates)?;
        let loads = loads(&selection, instance.capacities.len(), &rates);
        for (path, &relay) in selection.relays().iter().enumerate() {
            let source = path / selection.paths();
            let sum: f64 = rates[source * selection.paths()..][..selection.paths()].iter().sum();
            let is_met = sum * SLACK + 1e-6 >= instance.demands[source].as_f64();
            let is_full = loads[relay] * SLACK + 1e-6 >= instance.capacities[relay].as_f64();
            prop_assert!(is_met || is_full, "path {path} at {}", rates[path]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn control_keeps_within_demands_and_relays_within_capacities(
        (instance, selection) in cases(),
        config in prop_oneof![
            Just(Config::aiad(0.1)),
            Just(Config::mimd(0.01)),
            Just(Config::aiad(1.0)),
        ],
        detect in prop_oneof![
            Just(Detect::Throughput(0.0)),
            Just(Detect::Throughput(0.03)),
            Just(Detect::RelayOverload),
        ],
        initial in prop_oneof![Just(Initial::Zero), Just(Initial::MaxMin)],
        sharing in prop_oneof![Just(Sharing::MaxMin), Just(Sharing::Proportional)],
        seed: u64,
    ) {
        let config = Config { detect, ..config };
        let mut fleet = Fleet::new(&instance, &selection, &config, initial, sharing, Seed(seed));
        let best = optimum(&instance, &selection).rate.as_f64();
        for _ in 0..100 {
            let reached = fleet.step();
            prop_assert!(reached <= best * SLACK + 1e-6, "{reached} of {best}");
            check_feasible(&instance, &selection, fleet.received())?;
            for (source, sent) in fleet.sent().chunks(selection.paths()).enumerate() {
                prop_assert!(sent.iter().all(|&rate| rate >= 0.0), "{sent:?}");
                prop_assert!(
                    sent.iter().sum::<f64>() <= instance.demands[source].as_f64() * SLACK,
                    "{sent:?}"
                );
            }
            for (sent, received) in fleet.sent().iter().zip(fleet.received()) {
                prop_assert!(received <= sent, "{received} of {sent}");
            }
            for source in fleet.sources() {
                let sum: f64 = source.probabilities().sum();
                prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
            }
            // Both kinds of sharing use the whole capacity of an overloaded relay.
            let (sent, received) = (fleet.sent(), fleet.received());
            let relays = instance.capacities.len();
            for ((sent, received), capacity) in loads(&selection, relays, sent)
                .iter()
                .zip(loads(&selection, relays, received))
                .zip(&instance.capacities)
            {
                prop_assert!(
                    (received - sent.min(capacity.as_f64())).abs() <= 1e-6 + received * 1e-9
                );
            }
        }
    }
}
