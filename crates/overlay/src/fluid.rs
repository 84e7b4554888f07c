//! What arrives of the rates that sources set: relays as fluids. The paper does not say what its numerical study assumes.

use alloc::vec;
use alloc::vec::Vec;

use crate::instance::{Instance, Members, Selection};

/// A relay counts as overloaded beyond this excess; a smaller one is the rounding of a sum.
const ROUNDING: f64 = 1e-9;

/// How a relay divides its capacity among paths that ask for more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Max-min: up to an equal share each, and no path more than it asks for. So do TCP connections of equal round-trip time, one a source,
    /// and only so the paper's figures for multiplicative control come out.
    MaxMin,
    /// In proportion to what each asks for. Then every path of an overloaded relay sees it.
    Proportional,
}

/// The relays.
#[derive(Clone, Debug)]
pub struct Fluid {
    sharing: Sharing,
    capacities: Vec<f64>,
    members: Members,
    overloaded: Vec<bool>,
}

impl Fluid {
    /// The relays of an instance under a selection of paths.
    #[must_use]
    pub fn new(sharing: Sharing, instance: &Instance, selection: &Selection) -> Fluid {
        let capacities: Vec<f64> = instance.capacities.iter().map(|rate| rate.as_f64()).collect();
        let overloaded = vec![false; capacities.len()];
        Fluid { sharing, members: selection.members(capacities.len()), capacities, overloaded }
    }

    /// Fills `received` with what arrives of each path when `sent` is what the sources set, all in bit/s.
    pub fn handle_rates(&mut self, sent: &[f64], received: &mut [f64]) {
        for (relay, &capacity) in self.capacities.iter().enumerate() {
            let paths = self.members.of(relay);
            let sum: f64 = paths.iter().map(|&path| sent[path]).sum();
            self.overloaded[relay] = sum > capacity * (1.0 + ROUNDING);
            if sum <= capacity {
                for &path in paths {
                    received[path] = sent[path];
                }
                continue;
            }
            match self.sharing {
                Sharing::MaxMin => {
                    let level = fair_level(capacity, paths, sent);
                    for &path in paths {
                        received[path] = sent[path].min(level);
                    }
                }
                Sharing::Proportional => {
                    for &path in paths {
                        received[path] = sent[path] * capacity / sum;
                    }
                }
            }
        }
    }

    /// Whether the relay was last asked for more than it can deliver.
    #[must_use]
    pub fn is_overloaded(&self, relay: usize) -> bool {
        self.overloaded[relay]
    }
}

/// The level at which paths that want more than the capacity together are cut, so that they get the capacity.
fn fair_level(capacity: f64, paths: &[usize], sent: &[f64]) -> f64 {
    let mut level = capacity / paths.iter().map(|_| 1.0).sum::<f64>();
    loop {
        // Those at or below the level get all they ask for; the others share the rest. Few relays need more than two rounds,
        // which is cheaper than sorting; and the sums without a branch that nobody could predict.
        let (mut granted, mut cut) = (0.0, 0.0);
        for &path in paths {
            let is_granted = sent[path] <= level;
            granted += if is_granted { sent[path] } else { 0.0 };
            cut += if is_granted { 0.0 } else { 1.0 };
        }
        let next = if cut > 0.0 { (capacity - granted) / cut } else { level };
        if next <= level {
            return level;
        }
        level = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Rate;

    fn shared(sharing: Sharing, sent: &[f64], capacity: u64) -> Vec<f64> {
        let instance =
            Instance { demands: vec![Rate::from_bits(10); sent.len()], capacities: vec![Rate::from_bits(capacity)] };
        let selection = Selection::new(1, vec![0; sent.len()]);
        let mut received = vec![0.0; sent.len()];
        Fluid::new(sharing, &instance, &selection).handle_rates(sent, &mut received);
        received
    }

    #[test]
    fn max_min_cuts_at_a_level() {
        assert_eq!(shared(Sharing::MaxMin, &[3.0, 4.0, 2.0], 6), [2.0, 2.0, 2.0]);
        assert_eq!(shared(Sharing::MaxMin, &[1.0, 4.0, 4.0], 6), [1.0, 2.5, 2.5]);
        assert_eq!(shared(Sharing::MaxMin, &[1.0, 2.0, 3.0], 6), [1.0, 2.0, 3.0]);
        assert_eq!(shared(Sharing::MaxMin, &[1.0, 2.0, 9.0], 0), [0.0, 0.0, 0.0]);
    }

    #[test]
    fn proportional_sharing_scales() {
        assert_eq!(shared(Sharing::Proportional, &[3.0, 4.0, 2.0], 6), [2.0, 8.0 / 3.0, 4.0 / 3.0]);
        assert_eq!(shared(Sharing::Proportional, &[1.0, 2.0], 6), [1.0, 2.0]);
    }
}
