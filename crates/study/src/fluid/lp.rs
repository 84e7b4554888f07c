//! The optimal rates for any topology: the paper's problem P (section 3) as a linear program.
//!
//! Maximise the sum of all path rates x with x ≥ 0, the rates of a source within its demand, and
//! those over a link within its capacity. The rates y that sources set are eliminated: y = x is
//! optimal.
//!
//! The solver works in floats and needs `std`, hence the feature `lp`.
//! [`optimum`](overlay::optimum()) is exact, and sufficient where each path has one bottleneck
//! link.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};
use overlay::Instance;

use super::routes::Routes;

/// An optimal allocation; there may be others with the same sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The sum over all sources, in bit/s.
    pub rate: f64,
    /// The rate of each path, in bit/s.
    pub paths: Vec<f64>,
}

/// The solver failed numerically. Every instance has an optimal allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsolved(pub microlp::Error);

impl std::fmt::Display for Unsolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no optimum found: {}", self.0)
    }
}

impl std::error::Error for Unsolved {}

/// An optimal allocation over these paths.
///
/// # Errors
///
/// If the solver fails numerically.
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
