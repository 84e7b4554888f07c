//! From a [`Scenario`] and a seed to a simulation.

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
    Agent, Connection, Feed, Node, Reader, Socket, Sockets, Striped, Striping, Subflow, UdpSink,
    UdpSource, Writer,
};
use crate::packet::Packet;

/// The packet whose time on the slowest link is the bound of the jitter that a flow has by default.
const FULL: Bytes = Bytes(1_500);

/// A simulation, and where in it a scenario's flows and links are.
#[derive(Clone, Debug)]
pub struct Built {
    /// The simulation, at time zero.
    pub sim: Sim<Packet, Node>,
    /// Each flow's ends.
    pub flows: Vec<Ends>,
    /// Each link's directions.
    pub links: Vec<(LinkId, LinkId)>,
    /// Which flow and which of its subflows each connection is.
    pub connections: Vec<(usize, usize)>,
}

/// Where a flow's ends are: a host, and which of its agents.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The sender.
    pub from: (HostId, usize),
    /// The receiver.
    pub to: (HostId, usize),
    /// When it begins.
    pub start: Time,
}

/// One end of a flow, by the flow's number: its host makes the agent when it is made itself, where
/// it stays.
#[derive(Clone, Copy, Debug)]
struct Part {
    flow: usize,
    is_sender: bool,
}

/// The ends of flows that are at one host; most hosts have one.
type Parts = SmallVec<[Part; 1]>;

/// What both ends of a flow are made from, beside what the file says.
#[derive(Debug)]
struct FlowPlan {
    /// The number of the first connection.
    first: u32,
    start: Time,
    /// Each connection's way there and back.
    ways: SmallVec<[(Route, Route); 1]>,
    /// The flow's own.
    seed: Seed,
}

impl FlowPlan {
    /// The ways that packets of one end take.
    fn routes(&self, is_sender: bool) -> impl Iterator<Item = Route> + '_ {
        self.ways.iter().map(move |(there, back)| if is_sender { *there } else { *back })
    }
}

impl Scenario {
    /// Makes the simulation of the run with this seed.
    ///
    /// # Errors
    /// If there is no way for a flow.
    ///
    /// # Panics
    /// Never: the file's reader checked what this relies on.
    pub fn build(&self, seed: Seed) -> Result<Built, TopologyError> {
        // Whether each has yet to be added.
        let mut hosts: HashMap<&str, bool> = HashMap::with_capacity(2 * self.flows.len());
        hosts.extend(
            self.flows.iter().flat_map(|flow| [&*flow.from, &*flow.to]).map(|name| (name, true)),
        );
        let mut routers: HashSet<&str> = HashSet::new();
        // A network that hangs together has at most one node more than links.
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
        let mut parts = vec![Parts::new(); hosts.len()];
        let mut flows = Vec::with_capacity(self.flows.len());
        let mut plans = Vec::with_capacity(self.flows.len());
        let mut connections = Vec::with_capacity(self.flows.len());
        let mut stream = String::new();
        for (number, flow) in self.flows.iter().enumerate() {
            stream.clear();
            stream.extend(["flow/", &flow.name]);
            let plan =
                self.plan(flow, seed.stream(&stream), index(connections.len()), &mut topology)?;
            topology.jitter(&flow.from, flow.jitter.unwrap_or(slowest))?;
            let mut place = |host: HostId, is_sender: bool| {
                let parts = &mut parts[host.index()];
                parts.push(Part { flow: number, is_sender });
                (host, parts.len() - 1)
            };
            let (from, to) = (topology.host_id(&flow.from)?, topology.host_id(&flow.to)?);
            flows.push(Ends { from: place(from, true), to: place(to, false), start: plan.start });
            connections.extend((0..plan.ways.len()).map(|subflow| (number, subflow)));
            plans.push(plan);
        }
        let sim = topology.build(seed, |site| {
            let parts = &parts[site.id.index()];
            let agents = parts
                .iter()
                .map(|part| self.agent(&self.flows[part.flow], &plans[part.flow], part.is_sender));
            let ends = (0..).zip(parts).flat_map(|(number, part)| {
                let FlowPlan { first, ways, .. } = &plans[part.flow];
                (0..index(ways.len())).map(move |subflow| (first + subflow, number, subflow))
            });
            Node::new(agents, ends)
        })?;
        Ok(Built { sim, flows, links, connections })
    }

    /// When and where a flow sends. Its first connection has the number `first`.
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
        let ways = if let Some(subflows) = subflows {
            self.ways(flow, subflows, seed, topology)?
        } else {
            // Nothing comes back.
            let there = topology.route(&flow.from, &flow.to)?;
            smallvec![(there, there)]
        };
        Ok(FlowPlan { first, start, ways, seed })
    }

    /// One end of a flow.
    fn agent(&self, flow: &FlowSpec, plan: &FlowPlan, is_sender: bool) -> Agent {
        let stop = flow.stop.filter(|_| is_sender).map(|stop| Time::ZERO + stop);
        match &*flow.transport {
            Transport::Udp(_) if !is_sender => Agent::UdpSink(UdpSink::default()),
            Transport::Udp(spec) => {
                let FlowPlan { first, start, ways, seed } = plan;
                Agent::UdpSource(UdpSource::new(
                    *spec,
                    ways[0].0,
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

    /// One end of a TCP flow. The one that sends the bulk opens it, but for pages, where the reader
    /// does.
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
        let feed = Feed::new(&spec.workload, plan.start, plan.seed, is_sender);
        Connection::new(controller, subflows, feed, opens.then_some(plan.start), stop)
    }

    /// One end of a flow over a striped connection. The one that sends the bulk opens it, but for
    /// pages, where the reader does.
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
        let feed = Feed::new(&spec.workload, plan.start, plan.seed, is_sender);
        let routes = plan.routes(is_sender).collect();
        Striped::new(connection, routes, plan.first, feed, opens.then_some(plan.start), stop)
    }

    /// One end of a stream that is striped over sockets. The one that writes opens them.
    fn sockets(
        &self,
        spec: &SocketsSpec,
        plan: &FlowPlan,
        stop: Option<Time>,
        is_sender: bool,
    ) -> Sockets {
        let config = &spec.config;
        let end = if is_sender { Endpoint::client } else { Endpoint::server };
        let sockets = (plan.first..).zip(plan.routes(is_sender)).map(|(number, route)| {
            let controller = if is_sender { self.controller(&spec.controller) } else { plain() };
            Socket::new(
                controller,
                Subflow::new(end(Arc::clone(config), SubflowId(0)), route, number),
            )
        });
        let count = plan.ways.len();
        let striping = if is_sender {
            let buffer = usize::try_from(config.receive_buffer.0 / config.mss.0)
                .expect("a buffer fits the memory");
            Striping::Writes(Writer::new(count, buffer))
        } else {
            Striping::Reads(Reader::new(count))
        };
        Sockets::new(sockets.collect(), striping, config.mss, is_sender.then_some(plan.start), stop)
    }

    /// A controller of this name, new.
    fn controller(&self, name: &str) -> Box<dyn Controller> {
        self.controllers.make(name).expect("the file's reader checked the name")
    }

    /// Each subflow's way there and back; `seed` is the flow's.
    fn ways(
        &self,
        flow: &FlowSpec,
        subflows: &[Vec<String>],
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<SmallVec<[(Route, Route); 1]>, TopologyError> {
        // Most flows take the shortest way, and draw nothing.
        let mut rng = None;
        let mut ways = SmallVec::with_capacity(subflows.len());
        for links in subflows {
            if links.is_empty() {
                ways.push((
                    topology.route(&flow.from, &flow.to)?,
                    topology.route(&flow.to, &flow.from)?,
                ));
                continue;
            }
            let rng =
                rng.get_or_insert_with(|| Xoshiro256PlusPlus::seed_from_u64(seed.stream("ways").0));
            let drawn: Vec<String> = links.iter().map(|name| self.drawn(name, rng)).collect();
            let there = self.oriented(&drawn, &flow.from);
            let back: Vec<String> = there.iter().rev().map(|name| reversed(name)).collect();
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            let back: Vec<&str> = back.iter().map(String::as_str).collect();
            ways.push((
                topology.route_via(&flow.from, &there)?,
                topology.route_via(&flow.to, &back)?,
            ));
        }
        Ok(ways)
    }

    /// The link of this name, or any one of those that it stands for.
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

    /// The links with their directions, as one goes over them from `start`. A name that has a
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

    /// What a full packet takes on the slowest link.
    fn slowest_packet(&self) -> Span {
        let rates = self
            .links
            .iter()
            .flat_map(|link| [&link.up, &link.down].map(|one| one.profile().rate.base));
        let slowest = rates.filter(|rate| *rate > units::Rate::ZERO).min();
        slowest.map_or(Span::ZERO, |rate| FULL / rate)
    }
}

/// The controller of who only receives.
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
