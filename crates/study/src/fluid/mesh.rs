//! Rate control over several hops to several destinations, which the paper leaves to future work
//! (section 6).
//!
//! A path goes over one or more relays in sequence and ends with the last one's link to the
//! destination of its source. All traffic that leaves a relay shares the relay's capacity, so paths
//! share links at different hops.

use overlay::Instance;
use scenario::relays::RateStudy;
use units::{Rate, Seed};

use super::control::{FluidOutcome, fleet, follow};
use super::lp::{self, Unsolved};
use super::routes::Routes;

/// A setting with several hops and destinations.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    /// Sources, relays, and the control. A source's k paths have no relay in common.
    pub setting: RateStudy,
    /// The number of destinations; source s sends to destination s modulo this number.
    pub destinations: usize,
    /// The number of relays per path.
    pub relays: usize,
    /// The sum of the capacities of a relay's links to destinations, which are equal, over the
    /// capacity of the relay. At 1, no destination can use capacity that others leave; from the
    /// number of destinations on, only relays are bottlenecks.
    pub spread: f64,
}

impl Mesh {
    /// The links of a run (relays first, then each relay's links to the destinations), and the
    /// paths over them.
    ///
    /// # Panics
    ///
    /// If there are fewer relays than the paths of a source need.
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
/// If the solver of the linear program fails numerically.
pub fn run(mesh: &Mesh, seed: Seed) -> Result<FluidOutcome, Unsolved> {
    let (instance, routes) = mesh.network(seed);
    let best = lp::optimum(&instance, &routes)?.rate;
    Ok(follow(&mesh.setting, fleet(&mesh.setting, &instance, &routes, seed), &instance, best))
}
