//! Simulated hosts: each has one or more agents, and one deadline for all of them.

mod application;
mod connection;
mod crowd;
mod ended;
mod gaps;
mod gateway;
mod one_or_more;
mod plan;
mod pool;
mod sockets;
mod stripe;
mod striped;
mod udp;

use std::sync::Arc;

use netsim::Out;
use smallvec::SmallVec;
use units::Time;

use crate::Packet;
use crowd::{Crowd, Slot};

pub(crate) use application::file_size;
pub use application::{Application, Client, Request, Server, Sink, Stream, Trace};
pub use connection::{Connection, Subflow};
pub use ended::Ended;
pub(crate) use ended::EndedSender;
pub use gaps::Gaps;
pub use gateway::GatewayEnd;
pub(crate) use gateway::{GatewayPlan, Passenger};
pub(crate) use plan::FlowPlan;
pub use pool::Pool;
pub(crate) use pool::PoolCounts;
pub use sockets::{Socket, Sockets};
pub use stripe::{Reader, Writer};
pub use striped::Striped;
pub(crate) use striped::{EndedPath, PathState};
pub use udp::{UdpSink, UdpSource};

/// A deadline that never comes.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// One end of a flow.
#[derive(Clone, Debug)]
#[repr(u8)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are TCP, and a box costs a memory access per packet"
)]
pub enum Agent {
    /// An end of a TCP flow.
    Tcp(Connection),
    /// An end of a striped connection; boxed, since it is much larger than the others.
    Ptcp(Box<Striped>),
    /// An end of a stream that an application stripes over sockets.
    Sockets(Box<Sockets>),
    /// An end of the connections over which the requests of a flow go.
    Pool(Box<Pool>),
    /// Sends datagrams.
    UdpSource(UdpSource),
    /// Receives datagrams.
    UdpSink(UdpSink),
    /// An end of a pair of gateways, between the ends of flows.
    Gateway(Box<GatewayEnd>),
}

impl Agent {
    #[inline]
    fn poll_deadline(&self) -> Option<Time> {
        match self {
            Agent::Tcp(connection) => connection.poll_deadline(),
            Agent::Ptcp(striped) => striped.poll_deadline(),
            Agent::Sockets(sockets) => sockets.poll_deadline(),
            Agent::Pool(pool) => pool.poll_deadline(),
            Agent::UdpSource(source) => source.poll_deadline(),
            Agent::UdpSink(_) => None,
            Agent::Gateway(gateway) => gateway.poll_deadline(),
        }
    }

    #[inline]
    fn handle_packet(&mut self, now: Time, subflow: u32, packet: &Packet, out: &mut Out<Packet>) {
        match (self, packet) {
            (Agent::Tcp(connection), Packet::Tcp { segment, ecn, .. }) => {
                connection.handle_segment(now, subflow as usize, segment, *ecn, out);
            }
            (Agent::Ptcp(striped), Packet::Ptcp { packet, ecn, .. }) => {
                let path = u16::try_from(subflow).expect("paths are numbered in 16 bits");
                striped.handle_packet(now, path, packet, *ecn, out);
            }
            (Agent::Sockets(sockets), Packet::Tcp { segment, ecn, .. }) => {
                sockets.handle_segment(now, subflow as usize, segment, None, *ecn, out);
            }
            (Agent::Sockets(sockets), Packet::Record { piece, header, ecn, .. }) => {
                sockets.handle_segment(
                    now,
                    subflow as usize,
                    &header.segment(),
                    Some(*piece),
                    *ecn,
                    out,
                );
            }
            (Agent::Pool(pool), Packet::Tcp { segment, ecn, .. }) => {
                pool.handle_segment(now, subflow, segment, *ecn, out);
            }
            (Agent::UdpSink(sink), Packet::Udp { bytes, sent_at, .. }) => {
                sink.handle_datagram(now, *bytes, *sent_at);
            }
            (Agent::Gateway(gateway), packet) => gateway.handle_packet(now, subflow, packet, out),
            _ => unreachable!("connections are numbered by the transport of their flow"),
        }
    }

    fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        match self {
            Agent::Tcp(connection) => connection.handle_deadline(now, out),
            Agent::Ptcp(striped) => striped.handle_deadline(now, out),
            Agent::Sockets(sockets) => sockets.handle_deadline(now, out),
            Agent::Pool(pool) => pool.handle_deadline(now, out),
            Agent::UdpSource(source) => source.handle_deadline(now, out),
            Agent::UdpSink(_) => {}
            Agent::Gateway(gateway) => gateway.handle_deadline(now, out),
        }
    }

    /// The times without bytes in order, at a receiver of which they are measured.
    pub(crate) fn gaps(&self) -> Option<&Gaps> {
        match self {
            Agent::Tcp(connection) => connection.gaps(),
            Agent::Ptcp(striped) => striped.gaps(),
            Agent::Sockets(sockets) => sockets.gaps(),
            Agent::Pool(pool) => pool.gaps(),
            Agent::UdpSource(_) | Agent::UdpSink(_) | Agent::Gateway(_) => None,
        }
    }

    /// What is to be kept of it, if nothing more will come of it than answers to repeated segments.
    fn ended(&self) -> Option<Ended> {
        match self {
            Agent::Tcp(connection) => connection.ended(),
            Agent::UdpSource(source) => source.ended(),
            Agent::UdpSink(sink) => sink.ended(),
            Agent::Ptcp(striped) => striped.ended(),
            Agent::Sockets(_) | Agent::Pool(_) | Agent::Gateway(_) => None,
        }
    }
}

/// What an agent is made of.
pub(crate) enum Seat<'a> {
    /// An end of a flow; whether it is the sender's.
    Flow(&'a Arc<FlowPlan>, bool),
    /// The entry of a pair of gateways, or its exit.
    Gateway(&'a Arc<GatewayPlan>, usize),
}

impl Seat<'_> {
    fn agent(&self) -> Agent {
        match self {
            Seat::Flow(plan, is_sender) => plan.agent(*is_sender),
            Seat::Gateway(plan, side) => Agent::Gateway(Box::new(GatewayEnd::new(plan, *side))),
        }
    }
}

/// One end of a flow, as it is now.
#[derive(Clone, Copy, Debug)]
pub enum AgentState<'a> {
    /// It has not begun.
    Planned {
        /// Whether its flow is of UDP.
        is_udp: bool,
    },
    /// It lives, or is of a flow that is there for the whole run.
    Live(&'a Agent),
    /// It is over.
    Ended(&'a Ended),
}

/// A host: its agents, and the agent and subflow of each connection that ends here.
///
/// Most hosts have one agent with one connection, which is stored in the host itself. `repr(C)`
/// keeps the order of the fields, here and in the agent, its connection and its endpoint: fields
/// that each packet needs come first, rarely needed ones last. The nested structures then have
/// their hot fields side by side, and a simulation with thousands of hosts touches few cache lines
/// per packet.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Node {
    /// The least of the agents' deadlines.
    next: Time,
    first: u32,
    /// Whether exactly one connection ends here: subflow 0 of the only agent.
    is_single: bool,
    agents: Agents,
    /// Present if the host is not single.
    ends: Option<Box<[ConnectionEnd]>>,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a box costs a memory access per packet")]
enum Agents {
    One(Agent),
    Several(Crowd),
}

/// Where a connection ends at a host.
#[derive(Clone, Copy, Debug)]
struct ConnectionEnd {
    /// The number of the connection.
    number: u32,
    agent: u32,
    subflow: u32,
}

impl Node {
    /// A host with these agents; `ends` are the connections that end here or pass, in any order:
    /// number, agent and subflow.
    #[must_use]
    pub(crate) fn new<'a>(
        mut agents: impl ExactSizeIterator<Item = Seat<'a>>,
        ends: impl IntoIterator<Item = (u32, u32, u32)>,
    ) -> Node {
        let agents = if agents.len() == 1 {
            Agents::One(agents.next().expect("it has one").agent())
        } else {
            Agents::Several(Crowd::new(agents))
        };
        let mut ends: SmallVec<[_; 1]> = ends
            .into_iter()
            .map(|(number, agent, subflow)| ConnectionEnd { number, agent, subflow })
            .collect();
        ends.sort_by_key(|end| end.number);
        // A host that flows may draw and none has drawn has no ends.
        let first = ends.first().map_or(0, |end| end.number);
        let is_alone = matches!(agents, Agents::One(_));
        let is_single = is_alone && matches!(ends[..], [ConnectionEnd { subflow: 0, .. }]);
        let ends = (!is_single).then(|| ends.into_boxed_slice());
        let mut node = Node { next: NEVER, first, is_single, agents, ends };
        node.rearm();
        node
    }

    /// One of its agents; `None` if it has not begun or is over.
    ///
    /// # Panics
    /// If there is no such agent.
    #[must_use]
    pub fn agent(&self, index: usize) -> Option<&Agent> {
        match self.state(index) {
            AgentState::Live(agent) => Some(agent),
            AgentState::Planned { .. } | AgentState::Ended(_) => None,
        }
    }

    /// The state of one of its agents.
    ///
    /// # Panics
    /// If there is no such agent.
    #[must_use]
    pub fn state(&self, index: usize) -> AgentState<'_> {
        match &self.agents {
            Agents::One(agent) => {
                assert_eq!(index, 0, "the host has one agent");
                AgentState::Live(agent)
            }
            Agents::Several(crowd) => match crowd.slot(index).expect("there is such an agent") {
                Slot::Planned(plan, _) => AgentState::Planned { is_udp: plan.is_udp() },
                Slot::Live { agent, .. } => AgentState::Live(agent),
                Slot::Ended(ended) => AgentState::Ended(ended),
            },
        }
    }

    #[inline]
    fn rearm(&mut self) {
        let at = match &self.agents {
            Agents::One(agent) => agent.poll_deadline(),
            Agents::Several(crowd) => crowd.poll_deadline(),
        };
        self.next = at.unwrap_or(NEVER);
    }

    /// The agent and the subflow of a connection.
    #[inline]
    fn end(&self, connection: u32) -> (usize, u32) {
        if self.is_single {
            debug_assert_eq!(connection, self.first, "routes lead where their connections end");
            return (0, 0);
        }
        let ends = self.ends.as_ref().expect("a host that is not single has them");
        // The numbers are in order, and have no gaps at most hosts.
        let place = (connection - self.first) as usize;
        let end = match ends.get(place) {
            Some(end) if end.number == connection => end,
            _ => {
                let place = ends.partition_point(|end| end.number < connection);
                &ends[place]
            }
        };
        debug_assert_eq!(end.number, connection, "routes lead where their connections end");
        (end.agent as usize, end.subflow)
    }
}

impl netsim::Host<Packet> for Node {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet, out: &mut Out<Packet>) {
        let (agent, subflow) = self.end(packet.connection());
        match &mut self.agents {
            Agents::One(agent) => agent.handle_packet(now, subflow, &packet, out),
            Agents::Several(crowd) => crowd.handle_packet(now, agent, subflow, &packet, out),
        }
        self.rearm();
    }

    #[inline]
    fn poll_deadline(&self) -> Option<Time> {
        (self.next < NEVER).then_some(self.next)
    }

    fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        match &mut self.agents {
            Agents::One(agent) => agent.handle_deadline(now, out),
            Agents::Several(crowd) => crowd.handle_deadline(now, out),
        }
        self.rearm();
    }
}
