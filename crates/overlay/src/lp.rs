//! The most that any rate control could deliver, for any topology: the paper's problem P
//! (section 3) as a linear program.
//!
//! Maximise the sum of all path rates x such that x ≥ 0, those of a source stay within its demand,
//! and those over a link within its capacity. The rates y that sources set are gone from it: where
//! x is the best, y = x does as well as any.
//!
//! The solver works in floats and wants `std`, for which the feature `lp` stands;
//! [`optimum`](crate::optimum()) is exact, and enough wherever each path has one link that binds.

use alloc::vec::Vec;

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};

use crate::instance::Instance;
use crate::routes::Routes;

/// A best allocation; there may be others of the same sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// All sources together, in bit/s.
    pub rate: f64,
    /// Each path, in bit/s.
    pub paths: Vec<f64>,
}

/// The solver gave up. Every instance has a best allocation, so this is the solver's numerical
/// failure and not the instance's.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsolved(pub microlp::Error);

impl core::fmt::Display for Unsolved {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "no optimum found: {}", self.0)
    }
}

impl core::error::Error for Unsolved {}

/// A best allocation over these paths.
///
/// # Errors
///
/// If the solver meets a numerical failure.
pub fn optimum(instance: &Instance, paths: impl Into<Routes>) -> Result<Best, Unsolved> {
    let routes = paths.into();
    // In units of the largest demand, so that the solver's absolute tolerances mean the same in
    // every instance.
    let unit = instance.demands.iter().map(|rate| rate.as_f64()).fold(1.0, f64::max);
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let rates: Vec<Variable> =
        (0..routes.count()).map(|_| problem.add_var(1.0, (0.0, f64::INFINITY))).collect();
    let mut limit = |paths: &mut dyn Iterator<Item = usize>, most: f64| {
        let mut sum = LinearExpr::empty();
        paths.for_each(|path| sum.add(rates[path], 1.0));
        problem.add_constraint(sum, ComparisonOp::Le, most / unit);
    };
    let k = routes.paths();
    for source in 0..routes.sources() {
        limit(&mut (source * k..(source + 1) * k), instance.demands[source].as_f64());
    }
    let members = routes.members(instance.capacities.len());
    for (link, capacity) in instance.capacities.iter().enumerate() {
        limit(&mut members.of(link).iter().copied(), capacity.as_f64());
    }
    let solution = problem.solve().map_err(Unsolved)?;
    let paths: Vec<f64> = rates.iter().map(|&rate| solution[rate].max(0.0) * unit).collect();
    Ok(Best { rate: paths.iter().sum(), paths })
}
