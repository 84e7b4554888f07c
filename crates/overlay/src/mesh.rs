//! Rate control over several hops to several destinations, which the paper leaves to future work
//! (section 6).
//!
//! A path goes over one relay or more, one after the other, and ends with the last one's link to
//! its source's destination. All that leaves a relay shares the relay's capacity, whatever its next
//! hop; so paths share links, at different hops of theirs.

use alloc::vec::Vec;

use units::{Rate, Seed};

use crate::instance::Instance;
use crate::lp::{self, Unsolved};
use crate::routes::Routes;
use crate::study::{Outcome, Setting, follow};

/// A setting of several hops and destinations.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    /// Sources, relays, and the control. A source's k paths have no relay in common.
    pub setting: Setting,
    /// Source s delivers to destination s modulo this many.
    pub destinations: usize,
    /// Relays a path.
    pub relays: usize,
    /// The capacities of a relay's links to all destinations together over its own, each link's
    /// being the same: at one, no destination can take what others leave; at the number of
    /// destinations or beyond, only relays bind.
    pub spread: f64,
}

impl Mesh {
    /// The links of a run: relays first, then each relay's links to the destinations; and the paths
    /// over them.
    ///
    /// # Panics
    ///
    /// If there are fewer relays than a source's paths need together.
    #[must_use]
    pub fn network(&self, seed: Seed) -> (Instance, Routes) {
        let relays = self.setting.instance(seed);
        let paths = self.setting.paths;
        let chosen =
            self.setting.chooser(&relays, seed).select(self.setting.sources, paths * self.relays);
        let count = relays.capacities.len();
        let route = |(path, over): (usize, &[usize])| {
            let destination = path / paths % self.destinations;
            let last = over.last().map(|relay| count + relay * self.destinations + destination);
            over.iter().copied().chain(last).collect::<Vec<_>>()
        };
        let routes = Routes::new(paths, chosen.relays().chunks(self.relays).enumerate().map(route));
        let share = self.spread / (0..self.destinations).map(|_| 1.0).sum::<f64>();
        let link = |relay: &Rate| Rate::from_bits_f64(relay.as_f64() * share);
        let links = relays
            .capacities
            .iter()
            .flat_map(|relay| (0..self.destinations).map(move |_| link(relay)));
        let capacities = relays.capacities.iter().copied().chain(links).collect();
        (Instance { capacities, ..relays }, routes)
    }
}

/// One run of rate control.
///
/// # Errors
///
/// If the linear program of its optimum meets a numerical failure.
pub fn run(mesh: &Mesh, seed: Seed) -> Result<Outcome, Unsolved> {
    let (instance, routes) = mesh.network(seed);
    let best = lp::optimum(&instance, &routes)?.rate;
    Ok(follow(&mesh.setting, mesh.setting.fleet(&instance, &routes, seed), &instance, best))
}
