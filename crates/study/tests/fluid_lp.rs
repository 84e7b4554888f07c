//! The linear program, compared with the maximum flow where each path has one link, and with its
//! dual everywhere.

use microlp::{ComparisonOp, OptimizationDirection, Problem};
use overlay::{Config, Initial, Instance, Selection, optimum};
use proptest::prelude::*;
use scenario::relays::Sharing;
use study::fluid::{Fleet, Routes, lp, max_min};
use units::{Rate, Seed};

fn rates(bits: Vec<u64>) -> Vec<Rate> {
    bits.into_iter().map(Rate::from_bits).collect()
}

/// Instances from one source to the paper's hundred, with scarce to ample capacities.
fn flat() -> impl Strategy<Value = (Instance, Selection)> {
    (1_usize..100, 1_usize..100, 1_usize..4, 1_u64..200_000_000).prop_flat_map(
        |(sources, relays, paths, most)| {
            let demands = prop::collection::vec(1..=most, sources);
            let capacities = prop::collection::vec(0..=most, relays);
            let choices = prop::collection::vec(0..relays, sources * paths);
            (demands, capacities, choices).prop_map(move |(demands, capacities, choices)| {
                let instance = Instance { demands: rates(demands), capacities: rates(capacities) };
                (instance, Selection::new(paths, choices))
            })
        },
    )
}

/// Paths over one to four links, shared at random.
fn meshed() -> impl Strategy<Value = (Instance, Routes)> {
    (1_usize..12, 1_usize..10, 1_usize..4).prop_flat_map(|(sources, links, paths)| {
        let demands = prop::collection::vec(1_u64..1_000_000, sources);
        let capacities = prop::collection::vec(0_u64..1_000_000, links);
        let route = (Just((0..links).collect::<Vec<_>>()).prop_shuffle(), 1..=links.min(4));
        let route = route.prop_map(|(links, hops)| links[..hops].to_vec());
        (demands, capacities, prop::collection::vec(route, sources * paths)).prop_map(
            move |(demands, capacities, list)| {
                let instance = Instance { demands: rates(demands), capacities: rates(capacities) };
                (instance, Routes::new(paths, list))
            },
        )
    })
}

/// The largest excess of path rates over a demand or a capacity.
fn excess(instance: &Instance, routes: &Routes, rates: &[f64]) -> f64 {
    let mut left: Vec<f64> = instance.capacities.iter().map(|rate| rate.as_f64()).collect();
    for (path, rate) in rates.iter().enumerate() {
        routes.of(path).iter().for_each(|&link| left[link] -= rate);
    }
    let demands = rates.chunks(routes.paths()).zip(&instance.demands);
    left.extend(demands.map(|(paths, demand)| demand.as_f64() - paths.iter().sum::<f64>()));
    left.into_iter().fold(0.0, |worst, left| f64::max(worst, -left))
}

/// The cost of the cheapest feasible dual prices of demands and links: a price of at least 1 for
/// each path. By weak duality, it is an upper bound of every allocation, whatever the solver.
fn bound(instance: &Instance, routes: &Routes) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let amounts: Vec<f64> =
        instance.demands.iter().chain(&instance.capacities).map(|rate| rate.as_f64()).collect();
    let prices: Vec<_> =
        amounts.iter().map(|amount| problem.add_var(amount / 1e6, (0.0, 1.0))).collect();
    let sources = instance.demands.len();
    let limits = |path: usize| {
        let links = routes.of(path).iter().map(|link| sources + link);
        links.chain([path / routes.paths()]).collect::<Vec<_>>()
    };
    for path in 0..routes.count() {
        let terms: Vec<_> = limits(path).into_iter().map(|at| (prices[at], 1.0)).collect();
        problem.add_constraint(&terms, ComparisonOp::Ge, 1.0);
    }
    let solution = problem.solve().expect("prices of one are a solution");
    let prices: Vec<f64> = prices.iter().map(|&price| solution[price].max(0.0)).collect();
    let cheapest = |path: usize| limits(path).into_iter().map(|at| prices[at]).sum::<f64>();
    // Scaled so that the cheapest path has exactly price 1, the prices are feasible despite
    // rounding.
    let scale = (0..routes.count()).map(cheapest).fold(1.0, f64::min);
    prices.iter().zip(&amounts).map(|(price, amount)| price * amount).sum::<f64>() / scale
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn agrees_with_the_maximum_flow((instance, selection) in flat()) {
        let flow = optimum(&instance, &selection).rate.as_f64();
        let best = lp::optimum(&instance, &selection).expect("solvable");
        prop_assert!(
            (best.rate - flow).abs() <= 1e-6 * flow,
            "{} by LP, {flow} by flow",
            best.rate
        );
    }

    #[test]
    fn meets_its_dual_bound((instance, routes) in meshed()) {
        let best = lp::optimum(&instance, &routes).expect("solvable");
        let demand = instance.demand().as_f64();
        let excess = excess(&instance, &routes, &best.paths);
        prop_assert!(excess <= 1e-6 * demand, "{excess} too much");
        let bound = bound(&instance, &routes);
        prop_assert!((best.rate - bound).abs() <= 1e-6 * demand, "{} of {bound}", best.rate);
    }

    /// Over any links, initial rates are feasible and no path could rise. Controlled rates stay
    /// below the optimum, and within capacities and demands.
    #[test]
    fn links_shared_by_paths_hold(
        (instance, routes) in meshed(),
        sharing in prop_oneof![Just(Sharing::MaxMin), Just(Sharing::Proportional)],
        seed: u64,
    ) {
        let slack = 1e-6 * instance.demand().as_f64();
        let initial = max_min(&instance, &routes);
        prop_assert!(excess(&instance, &routes, &initial) <= slack);
        for path in 0..routes.count() {
            let mut more = initial.clone();
            more[path] += 10.0 * slack;
            prop_assert!(excess(&instance, &routes, &more) > slack, "path {path} of {initial:?}");
        }
        let best = lp::optimum(&instance, &routes).expect("solvable").rate;
        let mut fleet =
            Fleet::new(&instance, &routes, &Config::aiad(0.1), Initial::Zero, sharing, Seed(seed));
        for _ in 0..50 {
            prop_assert!(fleet.step() <= best + slack);
            prop_assert!(excess(&instance, &routes, fleet.received()) <= slack);
            for (path, (sent, received)) in fleet.sent().iter().zip(fleet.received()).enumerate() {
                prop_assert!(received <= sent);
                // A path that is cut is cut by a link, and max-min uses that link fully.
                if sharing == Sharing::MaxMin && received + slack < *sent {
                    let mut more = fleet.received().to_vec();
                    more[path] += 10.0 * slack;
                    let unbound = Instance {
                        demands: vec![Rate::mbit(1_000); instance.demands.len()],
                        ..instance.clone()
                    };
                    prop_assert!(excess(&unbound, &routes, &more) > slack, "path {path}");
                }
            }
        }
    }
}

#[test]
fn a_shared_link_binds() {
    // Two sources of 4 and 6, two relays of 5 each, and one link of 7 behind both.
    let instance = Instance {
        demands: vec![Rate::mbit(4), Rate::mbit(6)],
        capacities: vec![Rate::mbit(5), Rate::mbit(5), Rate::mbit(7)],
    };
    let routes = Routes::new(2, [[0, 2], [1, 2], [0, 2], [1, 2]]);
    let best = lp::optimum(&instance, &routes).expect("solvable");
    assert!((best.rate - 7e6).abs() < 1.0, "{best:?}");
    // No demands and no capacities.
    let empty =
        Instance { demands: vec![Rate::mbit(4), Rate::ZERO], capacities: vec![Rate::ZERO; 3] };
    assert!(lp::optimum(&empty, &routes).expect("solvable").rate.abs() < 1e-9);
}

/// Two max-min levels: the link shared by three paths gives 2 each, and the relay shared by two
/// gives the rest.
#[test]
fn levels_of_several_links() {
    let instance = Instance {
        demands: vec![Rate::mbit(10); 4],
        capacities: vec![Rate::mbit(6), Rate::mbit(8)],
    };
    let routes = Routes::new(1, [vec![0], vec![0], vec![0, 1], vec![1]]);
    assert_eq!(max_min(&instance, &routes), [2e6, 2e6, 2e6, 6e6]);
}
