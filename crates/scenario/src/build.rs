//! Builds a simulation from a [`Scenario`] and a seed.

use std::mem;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use netsim::{HostId, LinkId, Route, Sim, Topology, TopologyError};
use policy::cc::{Controller, Reno, Uncoupled};
use policy::sched::packet;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use smallvec::{SmallVec, smallvec};
use tcp::Endpoint;
use units::{Bytes, Seed, Span, SubflowId, Time};

use crate::draw;
use crate::file::{
    FlowSpec, PtcpSpec, Scenario, SocketsSpec, Start, TcpSpec, Transport, Workload, one_of,
};
use crate::host::{
    Agent, Application, Connection, Node, Socket, Sockets, Striped, Subflow, UdpSink, UdpSource,
};
use crate::packet::Packet;

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
    /// The flow and the subflow of each connection.
    pub connections: Vec<(usize, usize)>,
}

/// The ends of a flow: for each, the host and the index of the agent there.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The sender.
    pub from: (HostId, usize),
    /// The receiver.
    pub to: (HostId, usize),
    /// The start of the flow.
    pub start: Time,
}

/// One end of a flow. Its agent is made together with the host, in its final place in memory.
#[derive(Clone, Copy, Debug)]
struct FlowEnd {
    flow: usize,
    is_sender: bool,
}

/// The flow ends at one host; most hosts have one.
type FlowEnds = SmallVec<[FlowEnd; 1]>;

/// The values of a flow that both ends share and that are not in the file.
#[derive(Debug)]
struct FlowPlan {
    /// The number of the first connection.
    first: u32,
    start: Time,
    /// The forward and the return route of each connection.
    routes: SmallVec<[(Route, Route); 1]>,
    /// The seed of the flow.
    seed: Seed,
}

impl FlowPlan {
    /// The routes of the packets that one end sends.
    fn routes(&self, is_sender: bool) -> impl Iterator<Item = Route> + '_ {
        self.routes.iter().map(move |(there, back)| if is_sender { *there } else { *back })
    }
}

impl Scenario {
    /// Makes the simulation of the run with this seed.
    ///
    /// # Errors
    /// If there is no route for a flow.
    ///
    /// # Panics
    /// Never: the file's reader checked what this relies on.
    pub fn build(&self, seed: Seed) -> Result<Built, TopologyError> {
        // The value is true until the host is added.
        let mut hosts: HashMap<&str, bool> = HashMap::with_capacity(2 * self.flows.len());
        hosts.extend(
            self.flows.iter().flat_map(|flow| [&*flow.from, &*flow.to]).map(|name| (name, true)),
        );
        let mut routers: HashSet<&str> = HashSet::new();
        // A connected network has at most one node more than links.
        let mut topology = Topology::with_capacity(self.links.len() + 1, 2 * self.links.len());
        for node in self.links.iter().flat_map(|link| &link.between) {
            if let Some(is_new) = hosts.get_mut(&**node) {
                if mem::take(is_new) {
                    topology.add_host(Arc::clone(node))?;
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
        let mut stream = String::new();
        for (number, flow) in self.flows.iter().enumerate() {
            stream.clear();
            stream.extend(["flow/", &flow.name]);
            let plan =
                self.plan(flow, seed.stream(&stream), index(connections.len()), &mut topology)?;
            let first = u64::from(plan.first);
            let own = first..first + plan.routes.len() as u64;
            topology.jitter_flows(&flow.from, own, flow.jitter.unwrap_or(slowest))?;
            let mut add = |host: HostId, is_sender: bool| {
                let flow_ends = &mut flow_ends[host.index()];
                flow_ends.push(FlowEnd { flow: number, is_sender });
                (host, flow_ends.len() - 1)
            };
            let (from, to) = (topology.host_id(&flow.from)?, topology.host_id(&flow.to)?);
            flows.push(Ends { from: add(from, true), to: add(to, false), start: plan.start });
            connections.extend((0..plan.routes.len()).map(|subflow| (number, subflow)));
            plans.push(plan);
        }
        let sim = topology.build(seed, |site| {
            let flow_ends = &flow_ends[site.id.index()];
            let agents = flow_ends
                .iter()
                .map(|end| self.agent(&self.flows[end.flow], &plans[end.flow], end.is_sender));
            let ends = (0..).zip(flow_ends).flat_map(|(number, end)| {
                let FlowPlan { first, routes, .. } = &plans[end.flow];
                (0..index(routes.len())).map(move |subflow| (first + subflow, number, subflow))
            });
            Node::new(agents, ends)
        })?;
        Ok(Built { sim, flows, links, connections })
    }

    /// The start and the routes of a flow. Its first connection has the number `first`.
    fn plan(
        &self,
        flow: &FlowSpec,
        seed: Seed,
        first: u32,
        topology: &mut Topology,
    ) -> Result<FlowPlan, TopologyError> {
        let start = match flow.start {
            Start::At(at) => Time::ZERO + at,
            Start::Within(from, to) => draw::within(
                &mut Xoshiro256PlusPlus::seed_from_u64(seed.stream("start").0),
                from,
                to,
            ),
        };
        let subflows = match &*flow.transport {
            Transport::Udp(_) => None,
            Transport::Tcp(spec) => Some(&spec.subflows),
            Transport::Ptcp(spec) => Some(&spec.subflows),
            Transport::Sockets(spec) => Some(&spec.subflows),
        };
        let routes = if let Some(subflows) = subflows {
            self.routes(flow, subflows, seed, topology)?
        } else {
            // UDP has no return traffic.
            let there = self.shortest([&flow.from, &flow.to], seed, ("there", 0), topology)?;
            smallvec![(there, there)]
        };
        self.add_changes(flow, seed, &routes, topology)?;
        Ok(FlowPlan { first, start, routes, seed })
    }

    /// One end of a flow.
    fn agent(&self, flow: &FlowSpec, plan: &FlowPlan, is_sender: bool) -> Agent {
        let stop = flow.stop.filter(|_| is_sender).map(|stop| Time::ZERO + stop);
        match &*flow.transport {
            Transport::Udp(_) if !is_sender => Agent::UdpSink(UdpSink::default()),
            Transport::Udp(spec) => {
                let FlowPlan { first, start, routes, seed } = plan;
                Agent::UdpSource(UdpSource::new(
                    *spec,
                    routes[0].0,
                    *first,
                    *start,
                    stop,
                    seed.stream("udp"),
                ))
            }
            Transport::Tcp(spec) => Agent::Tcp(self.tcp(spec, plan, stop, is_sender)),
            Transport::Ptcp(spec) => Agent::Ptcp(Box::new(self.ptcp(spec, plan, stop, is_sender))),
            Transport::Sockets(spec) => {
                Agent::Sockets(Box::new(self.sockets(spec, plan, stop, is_sender)))
            }
        }
    }

    /// One end of a TCP flow. The sender of the data opens it, except for web pages, where the
    /// reader does.
    fn tcp(
        &self,
        spec: &TcpSpec,
        plan: &FlowPlan,
        stop: Option<Time>,
        is_sender: bool,
    ) -> Connection {
        let opens = is_sender != matches!(spec.workload, Workload::Web(_));
        let end = if opens { Endpoint::client } else { Endpoint::server };
        let subflows = (0..).zip(plan.routes(is_sender)).map(|(number, route)| {
            Subflow::new(
                end(Arc::clone(&spec.config), SubflowId(number)),
                route,
                plan.first + number,
            )
        });
        let controller = if is_sender { self.controller(&spec.controller) } else { plain() };
        let application = Application::new(&spec.workload, plan.start, plan.seed, is_sender);
        Connection::new(controller, subflows, application, opens.then_some(plan.start), stop)
    }

    /// One end of a striped connection. The sender of the data opens it, except for web pages,
    /// where the reader does.
    fn ptcp(
        &self,
        spec: &PtcpSpec,
        plan: &FlowPlan,
        stop: Option<Time>,
        is_sender: bool,
    ) -> Striped {
        let opens = is_sender != matches!(spec.workload, Workload::Web(_));
        let scheduler =
            packet::by_name(&spec.scheduler).expect("the file's reader checked the name");
        let (end, name): (fn(_, _, _, _) -> _, _) = if opens {
            (ptcp::Connection::client, "client")
        } else {
            (ptcp::Connection::server, "server")
        };
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(plan.seed.stream(name).0));
        let connection =
            end(spec.config.clone(), self.controller(&spec.controller), scheduler, tokens);
        let application = Application::new(&spec.workload, plan.start, plan.seed, is_sender);
        let routes = plan.routes(is_sender).collect();
        Striped::new(connection, routes, plan.first, application, opens.then_some(plan.start), stop)
    }

    /// One end of a stream that is striped over sockets. The sender of the data opens them, except
    /// for web pages, where the reader does.
    fn sockets(
        &self,
        spec: &SocketsSpec,
        plan: &FlowPlan,
        stop: Option<Time>,
        is_sender: bool,
    ) -> Sockets {
        let config = &spec.config;
        let opens = is_sender != matches!(spec.workload, Workload::Web(_));
        let end = if opens { Endpoint::client } else { Endpoint::server };
        let sockets = (plan.first..).zip(plan.routes(is_sender)).map(|(number, route)| {
            let controller = if is_sender { self.controller(&spec.controller) } else { plain() };
            Socket::new(
                controller,
                Subflow::new(end(Arc::clone(config), SubflowId(0)), route, number),
            )
        });
        let application = Application::new(&spec.workload, plan.start, plan.seed, is_sender);
        Sockets::new(
            sockets.collect(),
            config.receive_buffer,
            application,
            opens.then_some(plan.start),
            stop,
        )
    }

    /// A new controller of this name.
    fn controller(&self, name: &str) -> Box<dyn Controller> {
        self.controllers.make(name).expect("the file's reader checked the name")
    }

    /// The forward and the return route of each subflow; `seed` is the flow's.
    fn routes(
        &self,
        flow: &FlowSpec,
        subflows: &[Vec<String>],
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<SmallVec<[(Route, Route); 1]>, TopologyError> {
        // Most flows take the shortest route, and draw nothing.
        let mut rng = None;
        let mut routes = SmallVec::with_capacity(subflows.len());
        for (number, links) in subflows.iter().enumerate() {
            if links.is_empty() {
                let there =
                    self.shortest([&flow.from, &flow.to], seed, ("there", number), topology)?;
                let back =
                    self.shortest([&flow.to, &flow.from], seed, ("back", number), topology)?;
                routes.push((there, back));
                continue;
            }
            let rng =
                rng.get_or_insert_with(|| Xoshiro256PlusPlus::seed_from_u64(seed.stream("ways").0));
            routes.push(self.both_ways(flow, links, rng, topology)?);
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
        flow: &FlowSpec,
        links: &[String],
        rng: &mut Xoshiro256PlusPlus,
        topology: &mut Topology,
    ) -> Result<(Route, Route), TopologyError> {
        let drawn: Vec<String> = links.iter().map(|name| self.drawn(name, rng)).collect();
        let there = self.oriented(&drawn, &flow.from);
        let back: Vec<String> = there.iter().rev().map(|name| reversed(name)).collect();
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        let back: Vec<&str> = back.iter().map(String::as_str).collect();
        Ok((topology.route_via(&flow.from, &there)?, topology.route_via(&flow.to, &back)?))
    }

    /// Adds the changes of a flow's routes.
    fn add_changes(
        &self,
        flow: &FlowSpec,
        seed: Seed,
        routes: &[(Route, Route)],
        topology: &mut Topology,
    ) -> Result<(), TopologyError> {
        if flow.reroutes.is_empty() {
            return Ok(());
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.stream("reroute").0);
        for change in &flow.reroutes {
            let at = Time::ZERO + change.at;
            let (there, back) = self.both_ways(flow, &change.via, &mut rng, topology)?;
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
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "fewer links than 2^52, and from 0 to less than their number"
        )]
        let at = ((1.0 - draw::unit(rng)) * links.len() as f64) as usize;
        links[at].to_owned()
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

/// A controller for ends that only receive.
fn plain() -> Box<dyn Controller> {
    Box::new(Uncoupled::new(Reno::default()))
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
