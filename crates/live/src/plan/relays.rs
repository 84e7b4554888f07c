//! Relays in a plan: a namespace for each node that striped connections are switched at, and a pair
//! of addresses for each hop of a path.

use std::net::Ipv4Addr;
use std::sync::Arc;

use emulate::mesh::RoutePlan;
use scenario::file::{FlowSpec, Transport};

use super::{Draft, last};
use crate::error::PlanError;
use crate::relays::{RelayEnd, RelayHop};
use crate::supported::refuse;

impl Draft<'_> {
    /// The relays that a route of a flow leads over, in its order; `before` has those of its other
    /// paths. Flows that are not striped pass the nodes as they pass routers.
    pub(super) fn relays_on(
        &self,
        spec: &FlowSpec,
        there: &[usize],
        before: &[Vec<RelayHop>],
    ) -> Result<Vec<Arc<str>>, PlanError> {
        if !matches!(&*spec.transport, Transport::Ptcp(_)) {
            return Ok(Vec::new());
        }
        let relays = self.relays_of(there);
        for (number, relay) in relays.iter().enumerate() {
            let node = self.host_by_name.get(relay);
            let is_taken = before.iter().flatten().any(|hop| Some(&hop.node) == node);
            if is_taken || relays[..number].contains(relay) {
                // A relay knows a connection by its labels, which are the same for all its paths.
                let reason = format!(
                    "two paths lead over the relay '{relay}', or one twice: a real relay carries a \
                     connection to one place"
                );
                return refuse(spec, "subflows", reason);
            }
        }
        Ok(relays)
    }

    /// The relays between the links of a route.
    fn relays_of(&self, route: &[usize]) -> Vec<Arc<str>> {
        let inner = route.iter().take(route.len().saturating_sub(1));
        let ends = inner.map(|link| self.end_of(*link));
        ends.filter(|node| self.scenario.relays.contains(node)).map(Arc::clone).collect()
    }

    /// The node to which the direction of a link leads.
    fn end_of(&self, link: usize) -> &Arc<str> {
        &self.scenario.links[link / 2].between[1 - link % 2]
    }

    /// The routes of a path over relays, there and back, for each hop; the addresses of its ends,
    /// and the relays.
    pub(super) fn add_relayed(
        &mut self,
        spec: &FlowSpec,
        hosts: [usize; 2],
        [there, back]: &[Vec<usize>; 2],
        over: &[Arc<str>],
        lane: Option<usize>,
    ) -> Result<([Ipv4Addr; 2], Vec<RelayHop>), PlanError> {
        let mut in_return = self.relays_of(back);
        in_return.reverse();
        if in_return != over {
            return refuse(spec, "via", "the way back leads over other relays than the way there");
        }
        let mut nodes = vec![hosts[0]];
        for relay in over {
            nodes.push(self.relay(spec, relay)?);
        }
        nodes.push(hosts[1]);
        let ways = [self.hops(there), self.hops(back)];
        let mut hops = Vec::new();
        let mut ends = [Ipv4Addr::UNSPECIFIED; 2];
        for (number, links) in ways[0].iter().enumerate() {
            let (near, far) = (nodes[number], nodes[number + 1]);
            // Nobody names the address from which a hop begins: its device has no other one.
            let device = self.own_device(near);
            let from = self.plan.mesh.add_address(near, device)?;
            let to = self.address(far, last(links) / 2)?;
            self.plan.mesh.hosts[near].devices[device].behind.push(to);
            let lane = lane.filter(|_| number == 0);
            let in_return = &ways[1][ways[1].len() - 1 - number];
            for (from, to, links, lane) in [(from, to, links, lane), (to, from, in_return, None)] {
                let links = links.clone();
                self.plan.mesh.routes.push(RoutePlan { from, to, links, lane, between: None });
            }
            if number == 0 {
                ends[0] = from;
            }
            if number < over.len() {
                hops.push(RelayHop { at: to, node: far });
            } else {
                ends[1] = to;
            }
        }
        Ok((ends, hops))
    }

    /// The links of a route up to each relay, and of the rest.
    fn hops(&self, route: &[usize]) -> Vec<Vec<usize>> {
        let ends = |link: &usize| self.scenario.relays.contains(self.end_of(*link));
        let hops = route.split_inclusive(ends);
        hops.map(<[usize]>::to_vec).collect()
    }

    /// The host of a relay that a flow uses.
    fn relay(&mut self, spec: &FlowSpec, name: &Arc<str>) -> Result<usize, PlanError> {
        // That no flow begins or ends there, routes have made sure of: hosts do not forward.
        if self.scenario.gateways.iter().any(|gateway| gateway.ends.contains(name)) {
            let reason = "a background gateway is there";
            return Err(PlanError::Relay { node: name.to_string(), reason });
        }
        let host = self.host(name);
        let relay = self.plan.hosts[host].relay.get_or_insert_with(RelayEnd::default);
        if relay.flows.last().is_none_or(|flow| **flow != *spec.name) {
            relay.flows.push(spec.name.to_string());
        }
        Ok(host)
    }
}
