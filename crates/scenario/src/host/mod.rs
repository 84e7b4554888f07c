//! Simulated hosts: a few agents each, with one deadline for all.

mod connection;
mod feed;
mod few;
mod sockets;
mod stripe;
mod striped;
mod udp;

use netsim::Out;
use smallvec::SmallVec;
use units::Time;

use crate::Packet;
use few::Few;

pub use connection::{Connection, Subflow};
pub use feed::{Client, Feed, Request, Server, Sink, Stream, Trace};
pub use sockets::{Socket, Sockets, Striping};
pub use stripe::{Reader, Writer};
pub use striped::Striped;
pub use udp::{UdpSink, UdpSource};

/// Never.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// One end of a flow.
#[derive(Clone, Debug)]
#[repr(u8)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of TCP, and an address less to follow counts at each packet"
)]
pub enum Agent {
    /// Of TCP.
    Tcp(Connection),
    /// Of a striped connection; boxed, since it is much larger than the others.
    Ptcp(Box<Striped>),
    /// Of a stream that an application stripes over sockets.
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

/// A host: agents, and for each connection that ends here, which agent and which subflow of it that
/// is.
///
/// Most hosts have one agent with one connection; those are in the host itself. Here and in all
/// that it is made of, the order of the fields is kept: what each packet needs lies together in
/// front, each part's own before that of the part in it, and behind all of that, the other way
/// round, what packets rarely need. So thousands of hosts in turn take few lines of the processor's
/// cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Node {
    /// The least of the agents' deadlines.
    next: Time,
    first: u32,
    /// Whether there is one agent.
    is_alone: bool,
    /// Whether one connection ends here, the agent's first.
    is_single: bool,
    agents: Few<Agent>,
    /// Of a host that is not single.
    several: Option<Box<Several>>,
}

/// What a host with several agents or connections knows of them.
#[derive(Clone, Debug)]
struct Several {
    /// When each agent wants to be called.
    deadlines: Vec<Time>,
    /// By the connection's number, less that of the first.
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
        let agents = Few::new(agents);
        let is_alone = agents.len() == 1;
        let deadlines = || agents.iter().map(|agent| agent.poll_deadline().unwrap_or(NEVER));
        let next = deadlines().min().unwrap_or(NEVER);
        let ends: SmallVec<[_; 1]> = ends.into_iter().collect();
        let first = ends.first().map_or(0, |end| end.0);
        let is_single = is_alone && matches!(ends[..], [(_, 0, 0)]);
        let several = (!is_single).then(|| {
            let count = ends.last().map_or(0, |end| end.0 - first + 1);
            let mut connections = vec![(u32::MAX, 0); count as usize];
            for (number, agent, subflow) in ends {
                connections[(number - first) as usize] = (agent, subflow);
            }
            Box::new(Several { deadlines: deadlines().collect(), connections })
        });
        Node { next, first, is_alone, is_single, agents, several }
    }

    /// One of its agents.
    ///
    /// # Panics
    /// If there is no such agent.
    #[must_use]
    pub fn agent(&self, index: usize) -> &Agent {
        &self.agents[index]
    }

    /// How many agents there are.
    #[inline]
    fn count(&self) -> usize {
        if self.is_alone { 1 } else { self.agents.len() }
    }

    /// When an agent wants to be called.
    #[inline]
    fn deadline(&self, agent: usize) -> Time {
        if self.is_alone { self.next } else { self.several().deadlines[agent] }
    }

    #[inline]
    fn several(&self) -> &Several {
        self.several.as_ref().expect(SEVERAL)
    }

    /// Notes an agent's deadline after something happened to it.
    #[inline]
    fn rearm(&mut self, agent: usize) {
        let at = self.agents[agent].poll_deadline().unwrap_or(NEVER);
        if self.is_alone {
            self.next = at;
            return;
        }
        let deadlines = &mut self.several.as_mut().expect(SEVERAL).deadlines;
        let before = std::mem::replace(&mut deadlines[agent], at);
        if at <= self.next {
            self.next = at;
        } else if before == self.next {
            self.next = earliest(deadlines);
        }
    }

    /// Which agent a connection is of, and which of its subflows it is.
    #[inline]
    fn end(&self, connection: u32) -> (usize, u32) {
        if self.is_single {
            debug_assert_eq!(connection, self.first, "routes lead where their connections end");
            return (0, 0);
        }
        let (agent, subflow) = self.several().connections[(connection - self.first) as usize];
        (agent as usize, subflow)
    }
}

const SEVERAL: &str = "who is not single has several";

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
            (Agent::Sockets(sockets), Packet::Record { number, header, ecn, .. }) => {
                sockets.handle_segment(
                    now,
                    subflow as usize,
                    &header.segment(),
                    Some(*number),
                    *ecn,
                    out,
                );
            }
            (Agent::UdpSink(sink), Packet::Udp { bytes, sent_at, .. }) => {
                sink.handle_datagram(now, *bytes, *sent_at)
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
