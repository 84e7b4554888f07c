//! Background gateways in a plan: a namespace for each node, which forwards, and an address pair
//! for each path.

use std::net::Ipv4Addr;

use emulate::mesh::RoutePlan;
use scenario::GatewayLayout;
use scenario::file::Through;

use super::{Draft, first, last};
use crate::error::PlanError;
use crate::gateways::{GatewayEnd, GatewaySite};

/// The addresses behind one side of a pair: what a gateway announces at most.
const MOST_BEHIND: usize = 256;

/// A pair of gateways: the hosts of the entry and of the exit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair([usize; 2]);

impl Draft<'_> {
    /// Adds the gateways that flows go through.
    pub(super) fn add_gateways(
        &mut self,
        layouts: &[Option<GatewayLayout>],
    ) -> Result<(), PlanError> {
        for (number, layout) in layouts.iter().enumerate() {
            let Some(layout) = layout else { continue };
            let spec = &self.scenario.gateways[number];
            let nodes = spec.ends.each_ref().map(|name| self.host(name));
            self.gateways.insert(number, Pair(nodes));
            // Each path has an address of the entry, on a device of its own: one interface is one
            // path to the gateway that dials. The exit has the same address for all.
            let exit = self.own_device(nodes[1]);
            let at = self.plan.mesh.add_address(nodes[1], exit)?;
            for [there, back] in &layout.paths {
                let device = self.own_device(nodes[0]);
                let from = self.plan.mesh.add_address(nodes[0], device)?;
                for (from, to, links) in [(from, at, there), (at, from, back)] {
                    let links = links.clone();
                    let route = RoutePlan { from, to, links, lane: None, between: None };
                    self.plan.mesh.routes.push(route);
                }
            }
            for (side, node) in nodes.into_iter().enumerate() {
                self.plan.mesh.hosts[node].forwards = true;
                let site = GatewaySite {
                    gateway: spec.name.to_string(),
                    hosts: Vec::new(),
                    at: (side == 0).then_some(at),
                    paths: layout.paths.len(),
                    peer: nodes[1 - side],
                };
                let end = self.plan.hosts[node].gateway.get_or_insert_with(GatewayEnd::default);
                end.sites.push(site);
            }
        }
        Ok(())
    }

    /// The routes of a connection through gateways: between its hosts and the gateways nearer to
    /// them. `inside` leads from the gateways to the hosts. The addresses of its ends.
    pub(super) fn add_through(
        &mut self,
        through: Through,
        hosts: [usize; 2],
        outside: &[Vec<usize>; 2],
        inside: &[Vec<usize>; 2],
        lane: Option<usize>,
    ) -> Result<[Ipv4Addr; 2], PlanError> {
        let Pair(nodes) = self.gateways[&through.gateway];
        let gates = through.sides().map(|side| nodes[side]);
        let mut ends = [Ipv4Addr::UNSPECIFIED; 2];
        for side in 0..2 {
            ends[side] = self.address(hosts[side], first(&outside[side]) / 2)?;
        }
        for side in 0..2 {
            let (own, other) = (ends[side], ends[1 - side]);
            let (host, gate) = (hosts[side], gates[side]);
            let enters = self.device(host, first(&outside[side]) / 2);
            let leaves = self.device(gate, last(&outside[side]) / 2);
            let to_gate = RoutePlan {
                from: own,
                to: other,
                links: outside[side].clone(),
                lane: lane.filter(|_| side == 0),
                between: Some([enters, leaves]),
            };
            let enters = self.device(gate, first(&inside[side]) / 2);
            let leaves = self.device(host, last(&inside[side]) / 2);
            let to_host = RoutePlan {
                from: other,
                to: own,
                links: inside[side].clone(),
                lane: None,
                between: Some([enters, leaves]),
            };
            self.plan.mesh.routes.extend([to_gate, to_host]);
            self.plan.mesh.hosts[gate].devices[enters.device].behind.push(own);
            self.stand_behind(through, gates[side], [own, other])?;
        }
        Ok(ends)
    }

    /// Tells the gateway of a node an address behind it, and one behind the other gateway.
    fn stand_behind(
        &mut self,
        through: Through,
        gate: usize,
        [own, other]: [Ipv4Addr; 2],
    ) -> Result<(), PlanError> {
        let name = &self.scenario.gateways[through.gateway].name;
        let end = self.plan.hosts[gate].gateway.as_mut().expect("it was added");
        let site = end.sites.iter_mut().find(|site| *site.gateway == **name);
        site.expect("it was added").hosts.push(other);
        end.hosts.push(own);
        if end.hosts.len() > MOST_BEHIND {
            let reason = format!("at most {MOST_BEHIND} flows go through a real gateway");
            return Err(PlanError::Gateway { gateway: name.to_string(), key: "name", reason });
        }
        Ok(())
    }
}
