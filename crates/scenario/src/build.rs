//! From a [`Scenario`] and a seed to a simulation.

use std::mem;
use std::sync::Arc;

use hashbrown::HashSet;
use netsim::{HostId, LinkId, Route, Sim, Topology, TopologyError};
use policy::cc::{Controller, Reno, Uncoupled};
use policy::sched::packet;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use smallvec::SmallVec;
use tcp::Endpoint;
use units::{Bytes, Seed, Span, SubflowId, Time};

use crate::draw;
use crate::file::{FlowSpec, PtcpSpec, Scenario, SocketsSpec, Source, Start, TcpSpec, Transport, one_of};
use crate::host::{
    Agent, Connection, Feed, Node, Reader, Socket, Sockets, Striped, Striping, Subflow, UdpSink, UdpSource, Writer,
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

/// Agents of a host that is being made, and the connections that end there.
#[derive(Debug, Default)]
struct Draft {
    agents: Vec<Agent>,
    ends: SmallVec<[(u32, u32, u32); 1]>,
}

impl Draft {
    /// Adds an agent with `count` connections, the first of which has the number `first`. Gives the agent's number.
    fn add(&mut self, agent: Agent, first: u32, count: usize) -> usize {
        let number = self.agents.len();
        self.ends.extend((0..count).map(|subflow| (first + index(subflow), index(number), index(subflow))));
        if self.agents.is_empty() {
            // Most hosts have one, and it is large.
            self.agents.reserve_exact(1);
        }
        self.agents.push(agent);
        number
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
        let hosts: HashSet<&str> = self.flows.iter().flat_map(|flow| [&*flow.from, &*flow.to]).collect();
        let mut known: HashSet<&str> = HashSet::with_capacity(hosts.len());
        let mut topology = Topology::with_capacity(hosts.len(), 2 * self.links.len());
        for node in self.links.iter().flat_map(|link| &link.between) {
            if !known.insert(node) {
                continue;
            }
            if hosts.contains(&**node) {
                topology.host(Arc::clone(node))?;
            } else {
                topology.router(Arc::clone(node))?;
            }
        }
        let mut drafts: Vec<Draft> = hosts.iter().map(|_| Draft::default()).collect();
        let mut links = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let ([up, down], [a, b]) = (&link.directions, &link.between);
            let up = topology.link(Arc::clone(up), a, b, link.up.clone())?;
            let down = topology.link(Arc::clone(down), b, a, link.down.clone())?;
            links.push((up, down));
        }
        let slowest = self.slowest_packet();
        let mut flows = Vec::with_capacity(self.flows.len());
        let mut connections = Vec::with_capacity(self.flows.len());
        for (number, flow) in self.flows.iter().enumerate() {
            let first = index(connections.len());
            let flow_seed = seed.stream(&["flow/", &flow.name].concat());
            let jitter = flow.jitter.unwrap_or(slowest);
            let (ends, count) = self.add(flow, flow_seed, first, jitter, &mut topology, &mut drafts)?;
            connections.extend((0..count).map(|subflow| (number, subflow)));
            flows.push(ends);
        }
        let sim = topology.build(seed, |site| {
            let draft = mem::take(&mut drafts[site.id.index()]);
            Node::new(draft.agents, &draft.ends)
        })?;
        Ok(Built { sim, flows, links, connections })
    }

    /// Adds both ends of a flow that sends with this jitter, and whose first connection has the number `first`. Gives where they are, and how many connections it has.
    fn add(
        &self,
        flow: &FlowSpec,
        seed: Seed,
        first: u32,
        jitter: Span,
        topology: &mut Topology,
        drafts: &mut [Draft],
    ) -> Result<(Ends, usize), TopologyError> {
        let start = match flow.start {
            Start::At(at) => Time::ZERO + at,
            Start::Within(from, to) => {
                draw::within(&mut Xoshiro256PlusPlus::seed_from_u64(seed.stream("start").0), from, to)
            }
        };
        let stop = flow.stop.map(|stop| Time::ZERO + stop);
        let (sender, receiver, count) = match &*flow.transport {
            Transport::Udp(spec) => {
                let route = topology.route(&flow.from, &flow.to)?;
                let source = UdpSource::new(*spec, route, first, start, stop, seed.stream("udp"));
                (Agent::UdpSource(source), Agent::UdpSink(UdpSink::default()), 1)
            }
            Transport::Tcp(spec) => {
                let ways = self.ways(flow, &spec.subflows, seed.stream("ways"), topology)?;
                let controller = self.controller(&spec.controller);
                let (sender, receiver) = tcp(spec, controller, &ways, first, start, stop, seed);
                (Agent::Tcp(sender), Agent::Tcp(receiver), ways.len())
            }
            Transport::Ptcp(spec) => {
                let ways = self.ways(flow, &spec.subflows, seed.stream("ways"), topology)?;
                let controllers = [self.controller(&spec.controller), self.controller(&spec.controller)];
                let (sender, receiver) = ptcp(spec, controllers, &ways, first, start, stop, seed);
                (Agent::Ptcp(Box::new(sender)), Agent::Ptcp(Box::new(receiver)), ways.len())
            }
            Transport::Sockets(spec) => {
                let ways = self.ways(flow, &spec.subflows, seed.stream("ways"), topology)?;
                let controller = || self.controller(&spec.controller);
                let (sender, receiver) = sockets(spec, controller, &ways, first, start, stop);
                (Agent::Sockets(Box::new(sender)), Agent::Sockets(Box::new(receiver)), ways.len())
            }
        };
        topology.jitter(&flow.from, jitter)?;
        let mut place = |host: HostId, agent: Agent| (host, drafts[host.index()].add(agent, first, count));
        let (from, to) = (topology.host_id(&flow.from)?, topology.host_id(&flow.to)?);
        Ok((Ends { from: place(from, sender), to: place(to, receiver), start }, count))
    }

    /// A controller of this name, new.
    fn controller(&self, name: &str) -> Box<dyn Controller> {
        self.controllers.make(name).expect("the file's reader checked the name")
    }

    /// Each subflow's way there and back.
    fn ways(
        &self,
        flow: &FlowSpec,
        subflows: &[Vec<String>],
        seed: Seed,
        topology: &mut Topology,
    ) -> Result<Vec<(Route, Route)>, TopologyError> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        let mut ways = Vec::with_capacity(subflows.len());
        for links in subflows {
            if links.is_empty() {
                ways.push((topology.route(&flow.from, &flow.to)?, topology.route(&flow.to, &flow.from)?));
                continue;
            }
            let drawn: Vec<String> = links.iter().map(|name| self.drawn(name, &mut rng)).collect();
            let there = self.oriented(&drawn, &flow.from);
            let back: Vec<String> = there.iter().rev().map(|name| reversed(name)).collect();
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            let back: Vec<&str> = back.iter().map(String::as_str).collect();
            ways.push((topology.route_via(&flow.from, &there)?, topology.route_via(&flow.to, &back)?));
        }
        Ok(ways)
    }

    /// The link of this name, or any one of those that it stands for.
    fn drawn(&self, name: &str, rng: &mut Xoshiro256PlusPlus) -> String {
        let links: Vec<&str> = self.links.iter().map(|link| &*link.name).filter(|link| one_of(name, link)).collect();
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

    /// The links with their directions, as one goes over them from `start`. A name that has a direction keeps it.
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
        let rates = self.links.iter().flat_map(|link| [&link.up, &link.down].map(|one| one.profile().rate.base));
        let slowest = rates.filter(|rate| *rate > units::Rate::ZERO).min();
        slowest.map_or(Span::ZERO, |rate| FULL / rate)
    }
}

/// Both ends of a TCP flow. The one that sends the bulk opens it, but for pages, where the reader does.
fn tcp(
    spec: &TcpSpec,
    controller: Box<dyn Controller>,
    ways: &[(Route, Route)],
    first: u32,
    start: Time,
    stop: Option<Time>,
    seed: Seed,
) -> (Connection, Connection) {
    let reader_opens = matches!(spec.source, Source::Web(_));
    let config = &spec.config;
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for (number, (out, home)) in (0..).zip(ways) {
        let id = SubflowId(number);
        let client = Endpoint::client(Arc::clone(config), id);
        let server = Endpoint::server(Arc::clone(config), id);
        let (sender, receiver) = if reader_opens { (server, client) } else { (client, server) };
        there.push(Subflow::new(sender, *out, first + number));
        back.push(Subflow::new(receiver, *home, first + number));
    }
    let (sender, receiver) = Feed::pair(&spec.source, start, seed.stream("source"));
    let plain: Box<dyn Controller> = Box::new(Uncoupled::new(Reno::default()));
    let opens = Some(start);
    (
        Connection::new(controller, there, sender, opens.filter(|_| !reader_opens), stop),
        Connection::new(plain, back, receiver, opens.filter(|_| reader_opens), None),
    )
}

/// Both ends of a flow over a striped connection. The one that sends the bulk opens it, but for pages, where the reader does.
fn ptcp(
    spec: &PtcpSpec,
    [near, far]: [Box<dyn Controller>; 2],
    ways: &[(Route, Route)],
    first: u32,
    start: Time,
    stop: Option<Time>,
    seed: Seed,
) -> (Striped, Striped) {
    let reader_opens = matches!(spec.source, Source::Web(_));
    let (there, back): (Vec<Route>, Vec<Route>) = ways.iter().copied().unzip();
    let (sender, receiver) = Feed::pair(&spec.source, start, seed.stream("source"));
    let end = |controller, is_client: bool| {
        let scheduler = packet::by_name(&spec.scheduler).expect("the file's reader checked the name");
        let name = if is_client { "client" } else { "server" };
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(seed.stream(name).0));
        let make = if is_client { ptcp::Connection::client } else { ptcp::Connection::server };
        make(spec.config.clone(), controller, scheduler, tokens)
    };
    let opens = Some(start);
    (
        Striped::new(end(near, !reader_opens), there, first, sender, opens.filter(|_| !reader_opens), stop),
        Striped::new(end(far, reader_opens), back, first, receiver, opens.filter(|_| reader_opens), None),
    )
}

/// Both ends of a stream that is striped over sockets. The one that writes opens them.
fn sockets(
    spec: &SocketsSpec,
    controller: impl Fn() -> Box<dyn Controller>,
    ways: &[(Route, Route)],
    first: u32,
    start: Time,
    stop: Option<Time>,
) -> (Sockets, Sockets) {
    let config = &spec.config;
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for (number, (out, home)) in (first..).zip(ways) {
        let (client, server) =
            (Endpoint::client(Arc::clone(config), SubflowId(0)), Endpoint::server(Arc::clone(config), SubflowId(0)));
        there.push(Socket::new(controller(), Subflow::new(client, *out, number)));
        back.push(Socket::new(Box::new(Uncoupled::new(Reno::default())), Subflow::new(server, *home, number)));
    }
    let buffer = usize::try_from(config.receive_buffer.0 / config.mss.0).expect("a buffer fits the memory");
    let (writer, reader) = (Writer::new(ways.len(), buffer), Reader::new(ways.len()));
    (
        Sockets::new(there, Striping::Writes(writer), config.mss, Some(start), stop),
        Sockets::new(back, Striping::Reads(reader), config.mss, None, None),
    )
}

fn reversed(link: &str) -> String {
    match link.strip_suffix("/up") {
        Some(name) => format!("{name}/down"),
        None => format!("{}/up", link.trim_end_matches("/down")),
    }
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("the simulator refuses more than 16 million hosts and links long before")
}
