//! Simulated hosts: each has one or more agents, and one deadline for all of them.

mod application;
mod connection;
mod one_or_more;
mod sockets;
mod stripe;
mod striped;
mod udp;

use netsim::Out;
use smallvec::SmallVec;
use units::Time;

use crate::Packet;
use one_or_more::OneOrMore;

pub(crate) use application::REQUEST;
pub use application::{Application, Client, Request, Server, Sink, Stream, Trace};
pub use connection::{Connection, Subflow};
pub use sockets::{Socket, Sockets};
pub use stripe::{Reader, Writer};
pub use striped::Striped;
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
    /// Sends datagrams.
    UdpSource(UdpSource),
    /// Receives datagrams.
    UdpSink(UdpSink),
}

impl Agent {
    fn poll_deadline(&self) -> Option<Time> {
        match self {
            Agent::Tcp(connection) => connection.poll_deadline(),
            Agent::Ptcp(striped) => striped.poll_deadline(),
            Agent::Sockets(sockets) => sockets.poll_deadline(),
            Agent::UdpSource(source) => source.poll_deadline(),
            Agent::UdpSink(_) => None,
        }
    }
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
    /// Whether there is exactly one agent.
    is_alone: bool,
    /// Whether exactly one connection ends here: subflow 0 of the only agent.
    is_single: bool,
    agents: OneOrMore<Agent>,
    /// Present if the host is not single.
    demux: Option<Box<Demux>>,
}

/// The agents and connections of a host with several.
#[derive(Clone, Debug)]
struct Demux {
    /// The deadline of each agent.
    deadlines: Vec<Time>,
    /// Agent and subflow, by the number of the connection minus the first number.
    connections: Vec<(u32, u32)>,
}

impl Node {
    /// A host with these agents; `ends` are the connections that end here, in order: number, agent
    /// and subflow.
    ///
    /// # Panics
    /// If there is no agent.
    #[must_use]
    pub fn new(
        agents: impl IntoIterator<Item = Agent>,
        ends: impl IntoIterator<Item = (u32, u32, u32)>,
    ) -> Node {
        let agents = OneOrMore::new(agents);
        let is_alone = agents.len() == 1;
        let deadlines = || agents.iter().map(|agent| agent.poll_deadline().unwrap_or(NEVER));
        let next = deadlines().min().unwrap_or(NEVER);
        let ends: SmallVec<[_; 1]> = ends.into_iter().collect();
        let first = ends.first().map_or(0, |end| end.0);
        let is_single = is_alone && matches!(ends[..], [(_, 0, 0)]);
        let demux = (!is_single).then(|| {
            let count = ends.last().map_or(0, |end| end.0 - first + 1);
            let mut connections = vec![(u32::MAX, 0); count as usize];
            for (number, agent, subflow) in ends {
                connections[(number - first) as usize] = (agent, subflow);
            }
            Box::new(Demux { deadlines: deadlines().collect(), connections })
        });
        Node { next, first, is_alone, is_single, agents, demux }
    }

    /// One of its agents.
    ///
    /// # Panics
    /// If there is no such agent.
    #[must_use]
    pub fn agent(&self, index: usize) -> &Agent {
        &self.agents[index]
    }

    /// The number of agents.
    #[inline]
    fn count(&self) -> usize {
        if self.is_alone { 1 } else { self.agents.len() }
    }

    /// The deadline of an agent.
    #[inline]
    fn deadline(&self, agent: usize) -> Time {
        if self.is_alone { self.next } else { self.demux().deadlines[agent] }
    }

    #[inline]
    fn demux(&self) -> &Demux {
        self.demux.as_ref().expect(HAS_DEMUX)
    }

    /// Updates the deadline of an agent after an event.
    #[inline]
    fn rearm(&mut self, agent: usize) {
        let at = self.agents[agent].poll_deadline().unwrap_or(NEVER);
        if self.is_alone {
            self.next = at;
            return;
        }
        let deadlines = &mut self.demux.as_mut().expect(HAS_DEMUX).deadlines;
        let before = std::mem::replace(&mut deadlines[agent], at);
        if at <= self.next {
            self.next = at;
        } else if before == self.next {
            self.next = earliest(deadlines);
        }
    }

    /// The agent and the subflow of a connection.
    #[inline]
    fn end(&self, connection: u32) -> (usize, u32) {
        if self.is_single {
            debug_assert_eq!(connection, self.first, "routes lead where their connections end");
            return (0, 0);
        }
        let (agent, subflow) = self.demux().connections[(connection - self.first) as usize];
        (agent as usize, subflow)
    }
}

const HAS_DEMUX: &str = "a host that is not single has one";

fn earliest(deadlines: &[Time]) -> Time {
    deadlines.iter().copied().min().unwrap_or(NEVER)
}

impl netsim::Host<Packet> for Node {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet, out: &mut Out<Packet>) {
        let (agent, subflow) = self.end(packet.connection());
        match (&mut self.agents[agent], &packet) {
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
            (Agent::UdpSink(sink), Packet::Udp { bytes, sent_at, .. }) => {
                sink.handle_datagram(now, *bytes, *sent_at);
            }
            _ => unreachable!("connections are numbered by the transport of their flow"),
        }
        self.rearm(agent);
    }

    #[inline]
    fn poll_deadline(&self) -> Option<Time> {
        (self.next < NEVER).then_some(self.next)
    }

    fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        for agent in 0..self.count() {
            if self.deadline(agent) > now {
                continue;
            }
            match &mut self.agents[agent] {
                Agent::Tcp(connection) => connection.handle_deadline(now, out),
                Agent::Ptcp(striped) => striped.handle_deadline(now, out),
                Agent::Sockets(sockets) => sockets.handle_deadline(now, out),
                Agent::UdpSource(source) => source.handle_deadline(now, out),
                Agent::UdpSink(_) => {}
            }
            self.rearm(agent);
        }
    }
}
