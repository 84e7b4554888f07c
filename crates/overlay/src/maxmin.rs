//! Progressive filling: the max-min rates that sources begin with (the paper's section 4, "Initial
//! path rates"), and those that several shared links leave of what sources ask for.

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::instance::Instance;
use crate::routes::{Members, Routes};

/// Max-min rates in bit/s, one a path: what sources reach that hand one unit after the other to
/// whichever of their paths accepts it.
///
/// All paths rise together; a link that is full, and a source whose demand is met, hold theirs
/// where they are. The result is feasible: the links deliver all of it.
#[must_use]
pub fn max_min(instance: &Instance, paths: impl Into<Routes>) -> Vec<f64> {
    let routes = paths.into();
    let links = instance.capacities.len();
    // A source limits its paths just as a link does.
    let of = |path: usize| routes.of(path).iter().copied().chain([links + path / routes.paths()]);
    let limited = Routes::new(1, (0..routes.count()).map(|path| of(path).collect::<Vec<_>>()));
    let amounts = instance.capacities.iter().chain(&instance.demands[..routes.sources()]);
    let amounts: Vec<f64> = amounts.map(|rate| rate.as_f64()).collect();
    let mut rates = vec![f64::INFINITY; routes.count()];
    let members = limited.members(amounts.len());
    fill(&amounts, &limited, &members, 0..amounts.len(), &mut rates);
    rates
}

/// Lowers `rates` to the max-min rates that are nowhere above them, where only the links in
/// `binding` limit, each to its amount. Rates of infinity ask for all there is.
pub(crate) fn fill(
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
    // A path that asks for a finite rate holds itself there.
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
                // Paths that others held since leave more to the rest, so that an entry is never
                // too late.
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

/// What holds paths at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holds {
    Path(usize),
    Link(usize),
}

/// A capacity or demand that is being filled.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// What the paths that are held leave, in bit/s.
    left: f64,
    /// How many paths still rise.
    rising: f64,
}

impl Limit {
    /// The level at which it is full, as bits: those of floats that are not negative order as the
    /// floats do.
    fn event(&self) -> Option<u64> {
        (self.rising > 0.0).then(|| (self.left / self.rising).max(0.0).to_bits())
    }

    fn take(&mut self, level: f64) {
        self.left -= level;
        self.rising -= 1.0;
    }
}
