//! What a gateway can be asked about its paths and connections.

use alloc::vec::Vec;

use units::{Bytes, Time};

use super::Gateway;
use crate::arrivals::Arrivals;
use crate::detector::PathQueue;
use crate::paths::{PathView, whole};
use crate::{Carried, Flow};

impl<T: Carried> Gateway<T> {
    /// What is known of each path: of a site, or summed over connections.
    #[must_use]
    pub fn paths(&self) -> Vec<PathView> {
        if let Some(site) = &self.site {
            return site.paths.views().collect();
        }
        let mut views: Vec<PathView> = Vec::new();
        for ends in self.connections.values().filter_map(|relayed| relayed.own.as_ref()) {
            for (number, view) in ends.paths.views().enumerate() {
                match views.get_mut(number) {
                    None => views.push(view),
                    Some(sum) => {
                        sum.window += view.window;
                        sum.in_flight += view.in_flight;
                        sum.is_choked &= view.is_choked;
                        sum.is_admitted |= view.is_admitted;
                        sum.srtt = sum.srtt.max(view.srtt);
                        sum.least_rtt = sum.least_rtt.into_iter().chain(view.least_rtt).min();
                        sum.xi = sum.xi.min(view.xi);
                        sum.capacity = sum.capacity.max(view.capacity);
                        sum.falls.decreases += view.falls.decreases;
                        sum.falls.chokes += view.falls.chokes;
                    }
                }
            }
        }
        views
    }

    /// What has arrived of the other gateway's since this one began.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// The queues that packets of the other gateway come through, by path: of a site, or the
    /// longest of its connections.
    #[must_use]
    pub fn queues(&self) -> Vec<PathQueue> {
        let own = self.connections.values().filter_map(|relayed| relayed.own.as_ref());
        let mut queues: Vec<PathQueue> = Vec::new();
        for ends in self.site.iter().chain(own) {
            for (number, queue) in ends.detector.queues().enumerate() {
                match queues.get_mut(number) {
                    None => queues.push(queue),
                    Some(most) if most.longest < queue.longest => *most = queue,
                    Some(_) => {}
                }
            }
        }
        queues
    }

    /// What the windows allow a connection in all; `None` if it is unknown.
    #[must_use]
    pub fn window(&self, flow: Flow) -> Option<Bytes> {
        let relayed = self.connections.get(&flow)?;
        let ends = relayed.own.as_ref().or(self.site.as_ref())?;
        Some(whole(ends.paths.total()))
    }

    /// Whether it knows a connection.
    #[must_use]
    pub fn knows(&self, flow: Flow) -> bool {
        self.connections.contains_key(&flow)
    }

    /// Whether it can tell the windows of a connection: it knows what both SYNs said.
    #[must_use]
    pub fn is_governed(&self, flow: Flow) -> bool {
        self.connections.get(&flow).is_some_and(|known| known.halves.far_scale().is_some())
    }

    /// Whether the other gateway has been silent for too long, and what hosts send goes without it.
    #[must_use]
    pub fn is_dead(&self, now: Time) -> bool {
        self.liveness.is_dead(now, || self.shortest_rtt())
    }

    /// The number of connections that it knows.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }
}
