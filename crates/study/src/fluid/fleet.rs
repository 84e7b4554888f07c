//! All sources of an instance under rate control, over fluid relays.

use overlay::{Config, Controller, Initial, Instance, ProbeResult};
use scenario::relays::Sharing;
use units::{Rate, Seed};

use super::maxmin::max_min;
use super::relays::Fluid;
use super::routes::Routes;

/// Sources, their relays, and the rates of the last control interval. All intervals are aligned.
#[derive(Clone, Debug)]
pub struct Fleet {
    sources: Vec<Controller>,
    k: usize,
    fluid: Fluid,
    sent: Vec<f64>,
    received: Vec<f64>,
}

impl Fleet {
    /// Sources before the first interval; each has a random stream of its own.
    #[must_use]
    pub fn new(
        instance: &Instance,
        paths: impl Into<Routes>,
        config: &Config,
        initial: Initial,
        sharing: Sharing,
        seed: Seed,
    ) -> Fleet {
        let routes = paths.into();
        let k = routes.paths();
        let sent = match initial {
            Initial::Zero => vec![0.0; routes.count()],
            Initial::MaxMin => max_min(instance, &routes),
        };
        let source = |(index, &demand)| {
            Controller::new(
                *config,
                demand,
                &sent[index * k..][..k],
                seed.stream(&format!("source/{index}")),
            )
        };
        Fleet {
            sources: instance.demands.iter().enumerate().map(source).collect(),
            k,
            fluid: Fluid::new(sharing, instance, routes),
            received: sent.clone(),
            sent,
        }
    }

    /// Runs one control interval of every source. Returns the sum of the received rates, in bit/s.
    pub fn step(&mut self) -> f64 {
        let k = self.k;
        for (index, source) in self.sources.iter_mut().enumerate() {
            let seen = source.probed().map(|probed| ProbeResult {
                received: self.received[index * k + probed],
                overloaded: self.fluid.is_overloaded(index * k + probed),
                arrived: self.fluid.arrived(index * k + probed),
            });
            source.handle_interval(seen);
            for (slot, rate) in self.sent[index * k..][..k].iter_mut().zip(source.rates()) {
                *slot = rate;
            }
        }
        self.fluid.handle_rates(&self.sent, &mut self.received);
        self.received.iter().sum()
    }

    /// Sets the demand of a source from the next interval on; zero for a source that leaves.
    pub fn handle_demand(&mut self, source: usize, demand: Rate) {
        self.sources[source].handle_demand(demand);
    }

    /// Sets the capacity of a relay (or link) from the next interval on.
    pub fn handle_capacity(&mut self, link: usize, capacity: Rate) {
        self.fluid.handle_capacity(link, capacity);
    }

    /// Sets the paths from the next interval on. Unchanged paths keep their rates.
    ///
    /// # Panics
    ///
    /// If the number of paths per source changes.
    pub fn handle_paths(&mut self, paths: impl Into<Routes>) {
        let routes = paths.into();
        assert_eq!(
            (routes.paths(), routes.count()),
            (self.k, self.sent.len()),
            "as many paths as before"
        );
        for path in 0..routes.count() {
            if routes.of(path) != self.fluid.routes().of(path) {
                self.sources[path / self.k].handle_path(path % self.k);
            }
        }
        self.fluid.handle_routes(routes);
    }

    /// The relays (or links).
    #[must_use]
    pub fn fluid(&self) -> &Fluid {
        &self.fluid
    }

    /// The rates set by the sources, y, by path, in bit/s.
    #[must_use]
    pub fn sent(&self) -> &[f64] {
        &self.sent
    }

    /// The received rates, x, by path, in bit/s.
    #[must_use]
    pub fn received(&self) -> &[f64] {
        &self.received
    }

    /// The sources.
    #[must_use]
    pub fn sources(&self) -> &[Controller] {
        &self.sources
    }
}
