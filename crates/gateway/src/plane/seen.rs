//! What is known of the sites, for `gateway status` and metrics.

use units::Span;

use super::{Plane, Site, SiteId, SiteLink};
use crate::figures::{FlowFigures, PathFigures, SiteFigures};
use crate::flows::FlowState;

impl Plane {
    /// What is known of a site, without the names of its paths.
    pub(crate) fn figures(&self, site: SiteId) -> Option<SiteFigures> {
        Some(self.figures_of(self.sites.get(site.0)?))
    }

    fn figures_of(&self, site: &Site) -> SiteFigures {
        let link = site.link.as_ref();
        let paths = link.map(paths_of).unwrap_or_default();
        let arrivals = link.map(|link| link.core.arrivals()).unwrap_or_default();
        let queues = link.map(|link| link.core.queues()).unwrap_or_default();
        let queues = queues.into_iter().filter(|queue| queue.longest > Span::ZERO).collect();
        let is_governed = |state: &FlowState| {
            let core = link.map(|link| &link.core);
            core.zip(state.number()).is_some_and(|(core, flow)| core.is_governed(flow))
        };
        // Those that are over are kept for what of them may still be on its way.
        let open = || site.flows.iter().filter(|(_, state)| !state.is_over(self.latest));
        let governed = open().filter(|(_, state)| is_governed(state)).count();
        let mut busiest: Vec<FlowFigures> = open()
            .map(|(ends, state)| {
                let [sent_rate, received_rate] = state.rates(self.latest);
                FlowFigures {
                    near: ends.near,
                    far: ends.far,
                    sent: state.octets[0],
                    received: state.octets[1],
                    sent_rate,
                    received_rate,
                    age: self.latest - state.began,
                    is_governed: is_governed(state),
                }
            })
            .collect();
        let order = |flow: &FlowFigures| {
            let rate = flow.sent_rate.as_bits() + flow.received_rate.as_bits();
            std::cmp::Reverse((rate, flow.sent + flow.received))
        };
        busiest.sort_by_key(order);
        busiest.truncate(FlowFigures::MOST);
        SiteFigures {
            name: site.name.clone(),
            is_connected: link.is_some(),
            is_answering: link.is_some_and(|link| !link.core.is_dead(self.latest)),
            is_led: link.is_some_and(|link| link.is_led),
            networks: link.map(|link| link.networks.clone()).unwrap_or_default(),
            room: link.and_then(|link| link.slots.room()),
            paths,
            others: Vec::new(),
            queues,
            arrivals,
            flows: open().count(),
            governed,
            counted: site.counted,
            busiest,
        }
    }
}

/// What is known of the paths to a site that there are.
fn paths_of(link: &SiteLink) -> Vec<PathFigures> {
    let views = link.core.paths().into_iter().enumerate();
    let of = |(place, view): (usize, harp::PathView)| {
        Some(PathFigures {
            number: link.slots.number(place)?,
            name: String::new(),
            window: view.window.0,
            in_flight: view.in_flight.0,
            is_choked: view.is_choked,
            is_admitted: view.is_admitted,
            round_trip: view.srtt,
            least_round_trip: view.least_rtt,
            xi: view.xi,
            capacity: view.capacity,
            falls: view.falls,
        })
    };
    views.filter_map(of).collect()
}
