//! Progressive filling: the max-min initial rates (the paper's section 4, "Initial path rates"),
//! and the max-min shares of several shared links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use overlay::Instance;

use super::routes::{Members, Routes};

/// Max-min rates in bit/s, by path: the result if sources hand out data round-robin to the paths
/// that accept it.
///
/// All rates rise together. A full link stops the rates of its paths, and a met demand those of its
/// source. The result is feasible: the links can deliver it.
#[must_use]
pub fn max_min(instance: &Instance, paths: impl Into<Routes>) -> Vec<f64> {
    let routes = paths.into();
    let links = instance.capacities.len();
    // A demand limits the paths of its source just as a link does.
    let of = |path: usize| routes.of(path).iter().copied().chain([links + path / routes.paths()]);
    let limited = Routes::new(1, (0..routes.count()).map(|path| of(path).collect::<Vec<_>>()));
    let amounts = instance.capacities.iter().chain(&instance.demands[..routes.sources()]);
    let amounts: Vec<f64> = amounts.map(|rate| rate.as_f64()).collect();
    let mut rates = vec![f64::INFINITY; routes.count()];
    let members = limited.members(amounts.len());
    fill(&amounts, &limited, &members, 0..amounts.len(), &mut rates);
    rates
}

/// Lowers `rates` to the max-min rates below them under the limits of the links in `binding`. An
/// infinite rate is a greedy path.
pub(super) fn fill(
    amounts: &[f64],
    routes: &Routes,
    members: &Members,
    binding: impl Iterator<Item = usize> + Clone,
    rates: &mut [f64],
) {
    let mut limits = vec![Limit { left: f64::INFINITY, rising: 0.0 }; amounts.len()];
    let mut rising = vec![false; rates.len()];
    let mut events = BinaryHeap::new();
    for link in binding.clone() {
        let paths = members.of(link);
        limits[link] = Limit { left: amounts[link], rising: paths.iter().map(|_| 1.0).sum() };
        for &path in paths {
            rising[path] = true;
        }
    }
    for link in binding {
        events.extend(limits[link].event().map(|at| Reverse((at, Holds::Link(link)))));
    }
    // A path with a finite rate is limited by it.
    let asks = |path: &usize| rising[*path] && rates[*path] < f64::INFINITY;
    let own: Vec<usize> = (0..rates.len()).filter(asks).collect();
    events.extend(own.into_iter().map(|path| Reverse((rates[path].to_bits(), Holds::Path(path)))));
    let mut hold = |path: usize, level: f64, limits: &mut [Limit]| {
        if rising[path] {
            rising[path] = false;
            rates[path] = level;
            routes.of(path).iter().for_each(|&link| limits[link].take(level));
        }
    };
    while let Some(Reverse((at, holds))) = events.pop() {
        match holds {
            Holds::Path(path) => hold(path, f64::from_bits(at), &mut limits),
            Holds::Link(link) => match limits[link].event() {
                // Paths stopped by other links leave more to the rest: the level can only have
                // risen, so an entry never comes too late.
                Some(due) if due > at => events.push(Reverse((due, holds))),
                Some(_) => members
                    .of(link)
                    .iter()
                    .for_each(|&path| hold(path, f64::from_bits(at), &mut limits)),
                None => {}
            },
        }
    }
}

/// A limit of path rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    Path(usize),
    Link(usize),
}

/// A capacity or demand during the filling.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// The amount left by stopped paths, in bit/s.
    left: f64,
    /// The number of paths that still rise.
    rising: f64,
}

impl Limit {
    /// The level at which it is full, as the bits of a float: for floats that are not negative, the
    /// order is the same.
    fn event(&self) -> Option<u64> {
        (self.rising > 0.0).then(|| (self.left / self.rising).max(0.0).to_bits())
    }

    fn take(&mut self, level: f64) {
        self.left -= level;
        self.rising -= 1.0;
    }
}
