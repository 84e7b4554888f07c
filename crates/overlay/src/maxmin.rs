//! Initial rates (the paper's section 4, "Initial path rates").

use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::instance::{Instance, Selection};

/// Max-min rates in bit/s, one a path: what sources reach that hand one unit after the other to whichever of their paths accepts it.
///
/// Progressive filling: all paths rise together; a relay that is full, and a source whose demand is met, hold theirs where
/// they are. The result is feasible: relays deliver all of it.
#[must_use]
pub fn max_min(instance: &Instance, selection: &Selection) -> Vec<f64> {
    let relays = instance.capacities.len();
    let members = selection.members(relays);
    // Whatever limits: relays first, then sources.
    let amounts = instance.capacities.iter().chain(&instance.demands[..selection.sources()]);
    let mut limits: Vec<Limit> = amounts.map(|rate| Limit { left: rate.as_f64(), rising: 0.0 }).collect();
    for (path, &relay) in selection.relays().iter().enumerate() {
        limits[relay].rising += 1.0;
        limits[relays + path / selection.paths()].rising += 1.0;
    }
    let mut rates: Vec<Option<f64>> = vec![None; selection.relays().len()];
    let mut events = BinaryHeap::new();
    for (index, limit) in limits.iter().enumerate() {
        events.extend(limit.event().map(|at| Reverse((at, index))));
    }
    while let Some(Reverse((at, index))) = events.pop() {
        match limits[index].event() {
            // Paths that others held since leave more to the rest, so that an entry is never too late.
            Some(due) if due > at => events.push(Reverse((due, index))),
            Some(_) => {
                let level = f64::from_bits(at);
                let mut hold = |path: usize| {
                    if rates[path].is_none() {
                        rates[path] = Some(level);
                        limits[selection.relays()[path]].take(level);
                        limits[relays + path / selection.paths()].take(level);
                    }
                };
                match index.checked_sub(relays) {
                    None => members.of(index).iter().for_each(|&path| hold(path)),
                    Some(source) => (0..selection.paths()).for_each(|path| hold(source * selection.paths() + path)),
                }
            }
            None => {}
        }
    }
    // No path is left out: each belongs to a source, which has an event as long as one of its paths rises.
    rates.into_iter().map(Option::unwrap_or_default).collect()
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
    /// The level at which it is full, as bits: those of floats that are not negative order as the floats do.
    fn event(&self) -> Option<u64> {
        (self.rising > 0.0).then(|| (self.left / self.rising).max(0.0).to_bits())
    }

    fn take(&mut self, level: f64) {
        self.left -= level;
        self.rising -= 1.0;
    }
}
