//! The overlay's optimum beside that of HiGHS, on random instances of the study:
//! `optimum-by-highs [INSTANCES]`.
//!
//! Prints a line each for the instances of one relay a path, where there is a maximum flow too, and
//! for those of several hops and destinations: what is compared, a tab, and the largest difference,
//! relative to HiGHS's optimum.

use std::env;

use highs::{RowProblem, Sense};
use study::fluid::mesh::Mesh;
use overlay::{Choice, Instance, optimum};
use scenario::relays::{Demands, RateStudy};
use study::fluid::{Routes, lp};
use units::{Rate, Seed};

fn main() {
    let count: u64 = env::args().nth(1).map_or(1_000, |count| {
        count.parse().expect("a number of instances")
    });
    let (mut flow, mut flat, mut meshed) = (0.0_f64, 0.0_f64, 0.0_f64);
    for seed in 0..count {
        let setting = setting(seed);
        let instance = setting.instance(Seed(seed));
        let selection =
            setting.chooser(&instance, Seed(seed)).select(setting.sources, setting.paths);
        let best = highs(&instance, &Routes::from(&selection));
        flow = flow.max(apart(optimum(&instance, &selection).rate.as_f64(), best));
        flat = flat.max(apart(lp::optimum(&instance, &selection).expect("solvable").rate, best));

        let mesh = Mesh {
            destinations: 1 + (seed % 4) as usize,
            relays: 1 + (seed / 4 % 2) as usize,
            spread: 1.5,
            setting,
        };
        let (instance, routes) = mesh.network(Seed(seed));
        let best = highs(&instance, &routes);
        meshed = meshed.max(apart(lp::optimum(&instance, &routes).expect("solvable").rate, best));
    }
    println!("maximum flow\t{flow:e}");
    println!("linear program\t{flat:e}");
    println!("linear program, several hops\t{meshed:e}");
}

/// From a few sources to the paper's hundred.
fn setting(seed: u64) -> RateStudy {
    let choice =
        if seed.is_multiple_of(2) { Choice::Uniform } else { Choice::Proportional { error: 0.5 } };
    RateStudy {
        sources: (1 + seed % 100) as usize,
        relays: (6 + seed / 7 % 95) as u32,
        paths: (1 + seed % 3) as usize,
        demands: Demands::OneOf(vec![Rate::mbit(1), Rate::mbit(10), Rate::mbit(100)]),
        skew: [0.0, 0.5, 1.0][(seed % 3) as usize],
        choice,
        ..RateStudy::default()
    }
}

fn apart(ours: f64, theirs: f64) -> f64 {
    (ours - theirs).abs() / theirs.max(1.0)
}

/// The most that all sources together can deliver, in bit/s, by HiGHS: the same program, written
/// down anew.
fn highs(instance: &Instance, routes: &Routes) -> f64 {
    const UNIT: f64 = 1e6;
    let mut problem = RowProblem::default();
    let rates: Vec<_> = (0..routes.count()).map(|_| problem.add_column(1.0, 0.0..)).collect();
    for (source, demand) in instance.demands.iter().enumerate() {
        let paths = &rates[source * routes.paths()..(source + 1) * routes.paths()];
        problem.add_row(..=demand.as_f64() / UNIT, paths.iter().map(|&rate| (rate, 1.0)));
    }
    for (link, capacity) in instance.capacities.iter().enumerate() {
        let over: Vec<_> =
            (0..routes.count()).filter(|&path| routes.of(path).contains(&link)).collect();
        problem
            .add_row(..=capacity.as_f64() / UNIT, over.into_iter().map(|path| (rates[path], 1.0)));
    }
    let solved = problem.optimise(Sense::Maximise).solve();
    solved.objective_value() * UNIT
}
