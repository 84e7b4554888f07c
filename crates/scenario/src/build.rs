//! Builds a simulation from a [`Scenario`] and a seed.

mod gateways;
mod layout;

use std::mem;
use std::slice;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use netsim::{HostId, LinkId, Route, Sim, Topology, TopologyError};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use smallvec::{SmallVec, smallvec};
use units::{Bytes, Seed, Span, Time};

use crate::draw;
use crate::file::{Arrivals, FlowSpec, Place, Scenario, Start, Through, Transport, one_of};
use crate::host::{Agent, FlowPlan, GatewayEnd, GatewayPlan, Node, Seat};
use crate::packet::Packet;
pub use layout::{FlowLayout, GatewayLayout, RunLayout};

/// The packet whose wire time on the slowest link is the default bound of a flow's jitter.
const FULL: Bytes = Bytes(1_500);

/// The simulation of a scenario, with the ids of its flows and links.
#[derive(Clone, Debug)]
pub struct Built {
    /// The simulation, at time zero.
    pub sim: Sim<Packet, Node>,
    /// Each flow's ends.
    pub flows: Vec<Ends>,
    /// Each link's directions.
    pub links: Vec<(LinkId, LinkId)>,
    /// The name of each host.
    pub hosts: Vec<Arc<str>>,
    /// The flow and the subflow of each connection.
    pub connections: Vec<(usize, usize)>,
    /// Each pair of gateways; `None` if no flow goes through it.
    pub gateways: Vec<Option<GatewayEnds>>,
}

impl Built {
    /// The entry (0) or the exit (1) of a pair of gateways; `None` if no flow goes through it.
    pub(crate) fn gateway(&self, pair: usize, side: usize) -> Option<&GatewayEnd> {
        let (host, agent) = self.gateways[pair]?[side];
        match self.sim.host(host).agent(agent) {
            Some(Agent::Gateway(end)) => Some(end),
            _ => unreachable!("gateways live from the begin to the end of a run"),
        }
    }
}

/// The entry and the exit of a pair of gateways: for each, the host and the index of the agent
/// there.
pub type GatewayEnds = [(HostId, usize); 2];

/// The ends of a flow: for each, the host and the index of the agent there.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The sender.
    pub from: (HostId, usize),
    /// The receiver.
    pub to: (HostId, usize),
    /// The start of the flow.
    pub start: Time,
    /// The gateways through which it goes.
    pub through: Option<Through>,
}

/// The arrival process whose arrivals are being drawn: the flows of an entry are neighbours.
#[derive(Debug)]
struct ArrivalClock {
    process: Arc<Arrivals>,
    rng: Xoshiro256PlusPlus,
    /// The latest arrival.
    last: Time,
}

impl ArrivalClock {
    fn new(process: &Arc<Arrivals>, seed: Seed) -> ArrivalClock {
        let seed = seed.stream(&["arrivals/", &process.name].concat());
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        ArrivalClock { process: Arc::clone(process), rng, last: Time::ZERO + process.from }
    }

    fn next(&mut self) -> Time {
        self.last += self.process.interval.draw_span(&mut self.rng);
        self.last
    }
}

/// What the flows and the gateways of a simulation are made of, in the order of the file.
#[derive(Debug)]
struct Plans {
    flows: Vec<Arc<FlowPlan>>,
    gateways: gateways::GatewayPlans,
}

/// One end of a flow. Its agent is made together with the host, in its final place in memory.
#[derive(Clone, Copy, Debug)]
struct FlowEnd {
    flow: usize,
    is_sender: bool,
}

/// The flow ends at one host; most hosts have one.
type FlowEnds = SmallVec<[FlowEnd; 1]>;

impl Scenario {
    /// Makes the simulation of the run with this seed.
    ///
    /// # Errors
    /// If there is no route for a flow.
    ///
    /// # Panics
    /// Never: the file's reader checked what this relies on.
    pub fn build(&self, seed: Seed) -> Result<Built, TopologyError> {
        self.build_with_plans(seed).map(|(built, _)| built)
    }

    /// The simulation, and what its flows and gateways are made of.
    fn build_with_plans(&self, seed: Seed) -> Result<(Built, Plans), TopologyError> {
        // The value is true until the host is added.
        let mut hosts: HashMap<&str, bool> = HashMap::with_capacity(2 * self.flows.len());
        hosts.extend(
            self.flows
                .iter()
                .flat_map(|flow| flow.from.hosts().iter().chain(flow.to.hosts()))
                .map(|name| (&**name, true)),
        );
        let mut passengers = self.no_passengers(&mut hosts);
        let mut names = Vec::with_capacity(hosts.len());
        let mut routers: HashSet<&str> = HashSet::new();
        // A connected network has at most one node more than links.
        let mut topology = Topology::with_capacity(self.links.len() + 1, 2 * self.links.len());
        for node in self.links.iter().flat_map(|link| &link.between) {
            if let Some(is_new) = hosts.get_mut(&**node) {
                if mem::take(is_new) {
                    topology.add_host(Arc::clone(node))?;
                    names.push(Arc::clone(node));
                }
            } else if routers.insert(node) {
                topology.add_router(Arc::clone(node))?;
            }
        }
        let mut links = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let between = [&*link.between[0], &*link.between[1]];
            links.push(topology.add_links(
                link.directions.clone(),
                between,
                [link.up.clone(), link.down.clone()],
            )?);
        }
        let slowest = self.slowest_packet();
        let mut flow_ends = vec![FlowEnds::new(); hosts.len()];
        let mut flows = Vec::with_capacity(self.flows.len());
        let mut plans = Vec::with_capacity(self.flows.len());
        let mut connections = Vec::with_capacity(self.flows.len());
        let registry = Arc::new(self.registry.clone());
        let mut stream = String::new();
        let mut clock: Option<ArrivalClock> = None;
        for (number, flow) in self.flows.iter().enumerate() {
            stream.clear();
            stream.extend(["flow/", &flow.name]);
            let flow_seed = seed.stream(&stream);
            let start = match &flow.start {
                Start::At(at) => Time::ZERO + *at,
                Start::Within(from, to) => draw::within(
                    &mut Xoshiro256PlusPlus::seed_from_u64(flow_seed.stream("start").0),
                    *from,
                    *to,
                ),
                Start::Arrival(process) => {
                    if clock.as_ref().is_none_or(|clock| !Arc::ptr_eq(&clock.process, process)) {
                        clock = Some(ArrivalClock::new(process, seed));
                    }
                    clock.as_mut().expect("it was just made").next()
                }
            };
            let [from, to] = drawn_ends(flow, flow_seed);
            let both_ways = self.flow_routes(flow, [from, to], flow_seed, &mut topology)?;
            let first = index(connections.len());
            if let Some(through) = flow.gateway {
                let list = passengers[through.gateway].as_mut().expect("made above");
                let inside = self.inside(through, [from, to], flow_seed, &mut topology)?;
                list.extend(gateways::passengers(flow, first, inside, flow_seed));
            }
            let own = u64::from(first)..u64::from(first) + both_ways.len() as u64;
            topology.jitter_flows(from, own, flow.jitter.unwrap_or(slowest))?;
            let mut add = |host: HostId, is_sender: bool| {
                let flow_ends = &mut flow_ends[host.index()];
                flow_ends.push(FlowEnd { flow: number, is_sender });
                (host, flow_ends.len() - 1)
            };
            let (from, to) = (topology.host_id(from)?, topology.host_id(to)?);
            let ends = [add(from, true), add(to, false)];
            flows.push(Ends { from: ends[0], to: ends[1], start, through: flow.gateway });
            connections.extend((0..both_ways.len()).map(|subflow| (number, subflow)));
            plans.push(Arc::new(FlowPlan {
                transport: Arc::clone(&flow.transport),
                registry: Arc::clone(&registry),
                size: flow.size,
                first,
                start,
                stop: flow.stop.map(|stop| Time::ZERO + stop),
                routes: both_ways,
                seed: flow_seed,
                is_arrival: flow.is_arrival(),
                measures_gaps: self.measures_gaps,
            }));
        }
        let agents_at = |host: HostId| flow_ends[host.index()].len();
        let (gateways, seats, gateway_plans) =
            self.seats(passengers, seed, agents_at, &mut topology)?;
        let sim = topology.build(seed, |site| {
            let gateways = seats.get(&site.id).map_or(&[][..], Vec::as_slice);
            node(&flow_ends[site.id.index()], &plans, gateways)
        })?;
        let plans = Plans { gateways: gateway_plans, flows: plans };
        Ok((Built { sim, flows, links, hosts: names, connections, gateways }, plans))
    }

    /// The routes of a flow.
    fn flow_routes(
        &self,
        flow: &FlowSpec,
        ends: [&str; 2],
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<SmallVec<[(Route, Route); 1]>, TopologyError> {
        let mut connections = 1;
        let subflows = match &*flow.transport {
            Transport::Udp(spec) => {
                // UDP has no return traffic.
                let there = if spec.via.is_empty() {
                    self.shortest(ends, seed, ("there", 0), topology)?
                } else {
                    self.routes(ends, slice::from_ref(&spec.via), seed, topology)?[0].0
                };
                let routes = smallvec![(there, there)];
                self.add_changes(flow, ends, seed, &routes, topology)?;
                return Ok(routes);
            }
            Transport::Tcp(spec) => {
                connections = spec.workload.connections();
                &spec.subflows
            }
            Transport::Ptcp(spec) => &spec.subflows,
            Transport::Sockets(spec) => &spec.subflows,
        };
        let routes = match flow.gateway {
            Some(through) => smallvec![self.to_gateways(through, ends, seed, topology)?],
            None => self.routes(ends, subflows, seed, topology)?,
        };
        self.add_changes(flow, ends, seed, &routes, topology)?;
        if connections > 1 {
            // Those of requests are all over one route.
            return Ok((0..connections).map(|_| routes[0]).collect());
        }
        Ok(routes)
    }

    /// The forward and the return route of each subflow; `seed` is the flow's.
    fn routes(
        &self,
        [from, to]: [&str; 2],
        subflows: &[Vec<String>],
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<SmallVec<[(Route, Route); 1]>, TopologyError> {
        // Most flows take the shortest route, and draw nothing.
        let mut rng = None;
        let mut routes = SmallVec::with_capacity(subflows.len());
        for (number, links) in subflows.iter().enumerate() {
            if links.is_empty() {
                let there = self.shortest([from, to], seed, ("there", number), topology)?;
                let back = self.shortest([to, from], seed, ("back", number), topology)?;
                routes.push((there, back));
                continue;
            }
            let rng =
                rng.get_or_insert_with(|| Xoshiro256PlusPlus::seed_from_u64(seed.stream("ways").0));
            routes.push(self.both_ways([from, to], links, rng, topology)?);
        }
        Ok(routes)
    }

    /// The shortest route of a subflow, there or back. With equal-cost multipath, each direction of
    /// each subflow is hashed for itself, as its ports and addresses would be.
    fn shortest(
        &self,
        [from, to]: [&str; 2],
        seed: Seed,
        way: (&str, usize),
        topology: &mut Topology,
    ) -> Result<Route, TopologyError> {
        if !self.ecmp {
            return topology.route(from, to);
        }
        let (way, subflow) = way;
        topology.equal_cost_route(from, to, seed.stream(&format!("ecmp/{way}/{subflow}")))
    }

    /// The forward and the return route over these links.
    fn both_ways(
        &self,
        [from, to]: [&str; 2],
        links: &[String],
        rng: &mut Xoshiro256PlusPlus,
        topology: &mut Topology,
    ) -> Result<(Route, Route), TopologyError> {
        let drawn: Vec<String> = links.iter().map(|name| self.drawn(name, rng)).collect();
        let there = self.oriented(&drawn, from);
        let back: Vec<String> = there.iter().rev().map(|name| reversed(name)).collect();
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        let back: Vec<&str> = back.iter().map(String::as_str).collect();
        Ok((topology.route_via(from, &there)?, topology.route_via(to, &back)?))
    }

    /// Adds the changes of a flow's routes.
    fn add_changes(
        &self,
        flow: &FlowSpec,
        ends: [&str; 2],
        seed: Seed,
        routes: &[(Route, Route)],
        topology: &mut Topology,
    ) -> Result<(), TopologyError> {
        if flow.reroutes.is_empty() {
            return Ok(());
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.stream("reroute").0);
        for change in &*flow.reroutes {
            let at = Time::ZERO + change.at;
            let (there, back) = self.both_ways(ends, &change.via, &mut rng, topology)?;
            let (old_there, old_back) = routes[change.subflow];
            topology.reroute(at, old_there, there)?;
            if old_back != old_there {
                topology.reroute(at, old_back, back)?;
            }
        }
        Ok(())
    }

    /// The link of this name, or a random one of the links that match the pattern.
    fn drawn(&self, name: &str, rng: &mut Xoshiro256PlusPlus) -> String {
        let links: Vec<&str> =
            self.links.iter().map(|link| &*link.name).filter(|link| one_of(name, link)).collect();
        if links.is_empty() {
            return name.to_owned();
        }
        links[draw::index(rng, links.len())].to_owned()
    }

    /// The links with the directions in which a route from `start` takes them. A name with a
    /// direction keeps it.
    fn oriented(&self, links: &[String], start: &str) -> Vec<String> {
        let mut at = start;
        let mut names = Vec::with_capacity(links.len());
        for name in links {
            let Some(link) = self.links.iter().find(|link| *link.name == **name) else {
                names.push(name.clone());
                continue;
            };
            let [a, b] = &link.between;
            let (direction, next) = if *at == **b { ("down", a) } else { ("up", b) };
            names.push(format!("{name}/{direction}"));
            at = next;
        }
        names
    }

    /// The wire time of a full packet on the slowest link.
    fn slowest_packet(&self) -> Span {
        let rates = self
            .links
            .iter()
            .flat_map(|link| [&link.up, &link.down].map(|one| one.profile().rate.base));
        let slowest = rates.filter(|rate| *rate > units::Rate::ZERO).min();
        slowest.map_or(Span::ZERO, |rate| FULL / rate)
    }
}

/// A host with these ends of flows and these gateways.
fn node(
    flow_ends: &[FlowEnd],
    plans: &[Arc<FlowPlan>],
    gateways: &[(Arc<GatewayPlan>, usize)],
) -> Node {
    let agents: SmallVec<[Seat<'_>; 1]> = flow_ends
        .iter()
        .map(|end| Seat::Flow(&plans[end.flow], end.is_sender))
        .chain(gateways.iter().map(|(plan, side)| Seat::Gateway(plan, *side)))
        .collect();
    let ends = (0..).zip(flow_ends).flat_map(|(number, end)| {
        let FlowPlan { first, routes, .. } = &*plans[end.flow];
        (0..index(routes.len())).map(move |subflow| (first + subflow, number, subflow))
    });
    let passing = (index(flow_ends.len())..).zip(gateways).flat_map(|(number, (plan, _))| {
        let numbered = (0..).zip(&plan.passengers);
        numbered.map(move |(place, passenger)| (passenger.connection, number, place))
    });
    Node::new(agents.into_iter(), ends.chain(passing))
}

/// The hosts of a flow, drawn where its file leaves a choice.
fn drawn_ends(flow: &FlowSpec, seed: Seed) -> [&str; 2] {
    if let (Place::Host(from), Place::Host(to)) = (&flow.from, &flow.to) {
        return [from, to];
    }
    let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed.stream("ends").0);
    // A single receiver is not drawn as the sender.
    let only = if let [only] = flow.to.hosts() { Some(&**only) } else { None };
    let from = drawn_host(&flow.from, only, rng);
    [from, drawn_host(&flow.to, Some(from), rng)]
}

/// One of the hosts of a place, except `not`.
fn drawn_host<'a>(place: &'a Place, not: Option<&str>, rng: &mut Xoshiro256PlusPlus) -> &'a str {
    let free = || place.hosts().iter().filter(|host| Some(&***host) != not);
    let at = draw::index(rng, free().count());
    free().nth(at).expect("the file's reader checked that there is one")
}

fn reversed(link: &str) -> String {
    match link.strip_suffix("/up") {
        Some(name) => format!("{name}/down"),
        None => format!("{}/up", link.trim_end_matches("/down")),
    }
}

fn index(n: usize) -> u32 {
    u32::try_from(n)
        .expect("the simulator refuses more than 16 million hosts and links long before")
}
