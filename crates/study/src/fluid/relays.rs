//! The received rates as a function of the rates that sources set: a fluid model of relays. The
//! paper does not state the model of its numerical study.

use overlay::{Instance, Selection};
use scenario::relays::Sharing;
use units::Rate;

use super::maxmin::fill;
use super::routes::{Members, Routes};

/// The relative excess above which a relay counts as overloaded; less is rounding.
const ROUNDING: f64 = 1e-9;

/// The relays, or links.
#[derive(Clone, Debug)]
pub struct Fluid {
    sharing: Sharing,
    capacities: Vec<f64>,
    routes: Routes,
    members: Members,
    loads: Vec<Load>,
}

/// The load of a link in the last interval.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// The sum of the rates set over it, in bit/s.
    sent: f64,
    /// The sum of the rates delivered to receivers at its end, in bit/s.
    received: f64,
    overloaded: bool,
}

impl Fluid {
    /// The relays of an instance under a selection of paths, or its links under routes.
    #[must_use]
    pub fn new(sharing: Sharing, instance: &Instance, paths: impl Into<Routes>) -> Fluid {
        let routes = paths.into();
        let capacities: Vec<f64> = instance.capacities.iter().map(|rate| rate.as_f64()).collect();
        let loads = vec![Load::default(); capacities.len()];
        Fluid { sharing, members: routes.members(capacities.len()), capacities, routes, loads }
    }

    /// Sets the capacity of a link from the next rates on.
    pub fn handle_capacity(&mut self, link: usize, capacity: Rate) {
        self.capacities[link] = capacity.as_f64();
    }

    /// Sets the paths from the next rates on; their number must not change.
    pub(super) fn handle_routes(&mut self, routes: Routes) {
        self.members = routes.members(self.capacities.len());
        self.routes = routes;
    }

    /// The links of all paths.
    pub(super) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Computes the received rates by path from the rates that the sources set, in bit/s.
    pub fn handle_rates(&mut self, sent: &[f64], received: &mut [f64]) {
        for (link, &capacity) in self.capacities.iter().enumerate() {
            let sum: f64 = self.members.of(link).iter().map(|&path| sent[path]).sum();
            let overloaded = sum > capacity * (1.0 + ROUNDING);
            self.loads[link] = Load { sent: sum, received: sum.min(capacity), overloaded };
        }
        if self.routes.is_flat() {
            self.share_apart(sent, received);
        } else {
            self.share_together(sent, received);
        }
    }

    /// The case of one link per path: links are independent.
    fn share_apart(&self, sent: &[f64], received: &mut [f64]) {
        for (link, (&capacity, load)) in self.capacities.iter().zip(&self.loads).enumerate() {
            let paths = self.members.of(link);
            if load.sent <= capacity {
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
                        received[path] = sent[path] * capacity / load.sent;
                    }
                }
            }
        }
    }

    /// Back-pressure: a path has the same rate on all its links, so the other links can use
    /// capacity that a path does not get at one of them.
    fn share_together(&mut self, sent: &[f64], received: &mut [f64]) {
        received.copy_from_slice(sent);
        match self.sharing {
            Sharing::MaxMin => {
                let binding = (0..self.loads.len())
                    .filter(|&link| self.loads[link].sent > self.capacities[link]);
                fill(&self.capacities, &self.routes, &self.members, binding, received);
            }
            Sharing::Proportional => {
                for (path, rate) in received.iter_mut().enumerate() {
                    let share = |&link: &usize| {
                        self.capacities[link] / self.loads[link].sent.max(self.capacities[link])
                    };
                    *rate *= self.routes.of(path).iter().map(share).fold(1.0, least);
                }
            }
        }
        self.loads.iter_mut().for_each(|load| load.received = 0.0);
        for (path, &rate) in received.iter().enumerate() {
            for &link in self.routes.of(path) {
                self.loads[link].received += rate;
            }
        }
    }

    /// Whether a link of the path was overloaded in the last interval.
    #[must_use]
    pub fn is_overloaded(&self, path: usize) -> bool {
        self.routes.of(path).iter().any(|&link| self.loads[link].overloaded)
    }

    /// The received share of all rates set over the last link of the path, as the receiver at its
    /// end can report it; 1 if nothing was set.
    #[must_use]
    pub fn arrived(&self, path: usize) -> f64 {
        let load = self.loads[self.routes.last(path)];
        if load.sent > 0.0 { load.received / load.sent } else { 1.0 }
    }

    /// The rate delivered by each link in the last interval, in bit/s.
    #[must_use]
    pub fn delivered(&self) -> impl ExactSizeIterator<Item = f64> {
        self.loads.iter().map(|load| load.received)
    }
}

/// The minimum, where NaN (a link without capacity and without load) limits nothing.
fn least(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// The rate that each relay would give to one more greedy path under max-min sharing, in bit/s: its
/// spare capacity, or an equal share if that is more. `rates` are those of the other paths.
pub(super) fn offers(instance: &Instance, selection: &Selection, rates: &[f64]) -> Vec<f64> {
    let members = Routes::from(selection).members(instance.capacities.len());
    let offer = |(relay, capacity): (usize, &Rate)| {
        let mut asked: Vec<f64> = members.of(relay).iter().map(|&path| rates[path]).collect();
        asked.push(f64::INFINITY);
        let all: Vec<usize> = (0..asked.len()).collect();
        fair_level(capacity.as_f64(), &all, &asked)
    };
    instance.capacities.iter().enumerate().map(offer).collect()
}

/// The max-min level of paths that together need more than the capacity.
fn fair_level(capacity: f64, paths: &[usize], sent: &[f64]) -> f64 {
    let mut level = capacity / paths.iter().map(|_| 1.0).sum::<f64>();
    loop {
        // Paths at or below the level get their whole rate; the others share the rest. Few relays
        // need more than two rounds, which is cheaper than sorting. The sums avoid a branch that
        // could not be predicted.
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

    fn shared(sharing: Sharing, sent: &[f64], capacity: u64) -> Vec<f64> {
        let instance = Instance {
            demands: vec![Rate::from_bits(10); sent.len()],
            capacities: vec![Rate::from_bits(capacity)],
        };
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

    #[test]
    fn one_more_path_gets_the_spare_capacity_or_an_equal_share() {
        let instance = Instance {
            demands: vec![Rate::from_bits(9); 5],
            capacities: [9, 9, 4].map(Rate::from_bits).to_vec(),
        };
        let selection = Selection::new(1, vec![0, 0, 1, 1, 1]);
        assert_eq!(offers(&instance, &selection, &[1.0, 8.0, 1.0, 2.0, 0.0]), [4.0, 6.0, 4.0]);
    }
}
