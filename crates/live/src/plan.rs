//! From a scenario to hosts, addresses and the ends of flows.

mod gateways;
mod relays;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use emulate::mesh::{
    self, DeviceAt, DevicePlan, HostPlan, LanePlan, LinkPlan, RoutePlan, WindowSpan, device_name,
};
use scenario::file::{FlowSpec, LinkSpec, Scenario, Transport};
use scenario::{FlowLayout, ScenarioError};
use units::{Seed, Span, Time};

use crate::describe::{Description, FlowEnd, PathEnd, Side, Traffic};
use crate::error::{MOST_FLOWS, PlanError};
use crate::supported;
use gateways::Pair;

/// The port of the first flow; each has the next one.
const FIRST_PORT: u16 = 5_001;

/// A scenario as a network of real hosts. Each host where a flow begins or ends is a namespace,
/// with a device for each of its links; all other nodes are routes through the links.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The network.
    pub mesh: mesh::Plan,
    /// What each host of the network does.
    pub hosts: Vec<Description>,
}

impl Plan {
    /// The network and the flows of a scenario's run with this seed.
    ///
    /// # Errors
    /// If the scenario has what real hosts cannot do.
    pub fn new(scenario: &Scenario, seed: Seed) -> Result<Plan, PlanError> {
        supported::check(scenario)?;
        let layout = scenario.layout(seed).map_err(ScenarioError::from)?;
        let flows = scenario.flows.iter().zip(&layout.flows);
        let traffic: Vec<Traffic> = flows
            .map(|(spec, flow)| supported::traffic(spec, flow.file))
            .collect::<Result<_, _>>()?;
        let mut draft = Draft::new(scenario, seed);
        draft.add_gateways(&layout.gateways)?;
        for ((spec, flow), traffic) in scenario.flows.iter().zip(&layout.flows).zip(&traffic) {
            draft.add(spec, flow, traffic)?;
        }
        Ok(draft.finish())
    }
}

/// A plan in the making.
struct Draft<'a> {
    scenario: &'a Scenario,
    seed: Seed,
    plan: Plan,
    host_by_name: HashMap<Arc<str>, usize>,
    /// The number of the device of a host at a link.
    devices: HashMap<(usize, usize), usize>,
    /// Whether the TCP flows of a host use ECN, if it has any.
    ecn: HashMap<usize, bool>,
    /// The pairs of gateways, by their numbers in the file.
    gateways: HashMap<usize, Pair>,
}

impl<'a> Draft<'a> {
    fn new(scenario: &'a Scenario, seed: Seed) -> Draft<'a> {
        let directions = |link: &LinkSpec| {
            [(0, &link.up), (1, &link.down)].map(|(way, profile)| {
                let name = link.directions[way].to_string();
                // The stream that the simulator draws from.
                let seed = seed.stream(&["link/", &name].concat());
                LinkPlan { name, profile: profile.clone(), seed }
            })
        };
        let windows = scenario.windows.iter();
        let mesh = mesh::Plan {
            links: scenario.links.iter().flat_map(directions).collect(),
            windows: windows.map(|one| WindowSpan { from: one.from, to: one.to }).collect(),
            ..mesh::Plan::default()
        };
        Draft {
            scenario,
            seed,
            plan: Plan { mesh, hosts: Vec::new() },
            host_by_name: HashMap::new(),
            devices: HashMap::new(),
            ecn: HashMap::new(),
            gateways: HashMap::new(),
        }
    }

    /// Adds a flow.
    fn add(
        &mut self,
        spec: &FlowSpec,
        flow: &FlowLayout,
        traffic: &Traffic,
    ) -> Result<(), PlanError> {
        let hosts = [&flow.from, &flow.to].map(|name| self.host(name));
        if let Transport::Tcp(tcp) = &*spec.transport {
            for host in hosts {
                if *self.ecn.entry(host).or_insert(tcp.config.ecn) != tcp.config.ecn {
                    let host = self.plan.mesh.hosts[host].name.clone();
                    return Err(PlanError::Ecn { flow: spec.name.to_string(), host });
                }
            }
        }
        let number = self.plan.hosts.iter().map(|host| host.flows.len()).sum::<usize>() / 2;
        let number = u16::try_from(number).ok().filter(|number| *number < MOST_FLOWS);
        let port = FIRST_PORT + number.ok_or(PlanError::TooManyFlows)?;
        let lane = (flow.jitter > Span::ZERO).then(|| {
            let seed = self.seed.stream(&["emulate/jitter/", &spec.name].concat());
            self.plan.mesh.lanes.push(LanePlan { most: flow.jitter, seed });
            self.plan.mesh.lanes.len() - 1
        });
        let mut paths = [Vec::new(), Vec::new()];
        let mut relays = Vec::new();
        for route in &flow.routes {
            let over = self.relays_on(spec, &route[0], &relays)?;
            let [from, to] = match (spec.gateway, &flow.inside) {
                (Some(through), Some(inside)) => {
                    self.add_through(through, hosts, route, inside, lane)?
                }
                _ if !over.is_empty() => {
                    let (ends, hops) = self.add_relayed(spec, hosts, route, &over, lane)?;
                    relays.push(hops);
                    ends
                }
                _ => {
                    relays.push(Vec::new());
                    self.add_route(hosts, route, lane)?
                }
            };
            paths[0].push(PathEnd { local: from, remote: to });
            paths[1].push(PathEnd { local: to, remote: from });
        }
        for ((host, side), paths) in
            hosts.into_iter().zip([Side::Sender, Side::Receiver]).zip(paths)
        {
            self.plan.hosts[host].flows.push(FlowEnd {
                flow: spec.name.to_string(),
                side,
                port,
                paths,
                relays: match side {
                    Side::Sender => relays.clone(),
                    Side::Receiver => Vec::new(),
                },
                start: (flow.start - Time::ZERO).as_nanos(),
                stop: spec.stop.map(supported::nanos),
                traffic: traffic.clone(),
            });
        }
        Ok(())
    }

    /// The routes of one connection, there and back; the addresses of its ends.
    fn add_route(
        &mut self,
        hosts: [usize; 2],
        [there, back]: &[Vec<usize>; 2],
        lane: Option<usize>,
    ) -> Result<[Ipv4Addr; 2], PlanError> {
        let from = self.address(hosts[0], first(there) / 2)?;
        let to = self.address(hosts[1], last(there) / 2)?;
        let routes = &mut self.plan.mesh.routes;
        routes.push(RoutePlan { from, to, links: there.clone(), lane, between: None });
        if !back.is_empty() {
            let links = back.clone();
            routes.push(RoutePlan { from: to, to: from, links, lane: None, between: None });
        }
        Ok([from, to])
    }

    /// The host of this name.
    fn host(&mut self, name: &Arc<str>) -> usize {
        let (mesh, hosts) = (&mut self.plan.mesh.hosts, &mut self.plan.hosts);
        *self.host_by_name.entry(Arc::clone(name)).or_insert_with(|| {
            mesh.push(HostPlan { name: name.to_string(), ..HostPlan::default() });
            hosts.push(Description::default());
            mesh.len() - 1
        })
    }

    /// A fresh address of a host on its device at a link.
    fn address(&mut self, host: usize, link: usize) -> Result<Ipv4Addr, PlanError> {
        let device = self.device(host, link).device;
        Ok(self.plan.mesh.add_address(host, device)?)
    }

    /// The device of a host at a link.
    fn device(&mut self, host: usize, link: usize) -> DeviceAt {
        let devices = &mut self.plan.mesh.hosts[host].devices;
        let name = &self.scenario.links[link].name;
        let device = *self.devices.entry((host, link)).or_insert_with(|| {
            let name = device_name(name, devices.len() + 1);
            devices.push(DevicePlan { name, ..DevicePlan::default() });
            devices.len() - 1
        });
        DeviceAt { host, device }
    }

    /// A further device of a host, for one of its own addresses.
    fn own_device(&mut self, host: usize) -> usize {
        let devices = &mut self.plan.mesh.hosts[host].devices;
        // No device that is called like a link has a point in its name and these letters.
        let name = format!("path.{}", devices.len() + 1);
        devices.push(DevicePlan { name, ..DevicePlan::default() });
        devices.len() - 1
    }

    fn finish(mut self) -> Plan {
        for (host, ecn) in &self.ecn {
            self.plan.mesh.hosts[*host].ecn = *ecn;
        }
        let windows = self.plan.mesh.windows.iter();
        let mut edges: Vec<u64> =
            windows.flat_map(|window| [window.from, window.to]).map(supported::nanos).collect();
        edges.sort_unstable();
        edges.dedup();
        for host in &mut self.plan.hosts {
            host.edges.clone_from(&edges);
            host.duration = self.scenario.duration.as_nanos();
        }
        self.plan
    }
}

/// The first of the links' directions of a route.
fn first(route: &[usize]) -> usize {
    *route.first().expect("hosts differ")
}

/// The last one.
fn last(route: &[usize]) -> usize {
    *route.last().expect("hosts differ")
}
