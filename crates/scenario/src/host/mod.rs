//! Simulated hosts: a few agents each, with one deadline for all.

mod connection;
mod feed;
mod udp;

use netsim::Out;
use units::Time;

use crate::Packet;

pub use connection::{Connection, Subflow};
pub use feed::{Feed, Request};
pub use udp::{UdpSink, UdpSource};

/// Never.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// One end of a flow.
#[derive(Clone, Debug)]
pub enum Agent {
    /// Of TCP; boxed, since it is much larger than the others.
    Tcp(Box<Connection>),
    /// Sends datagrams.
    UdpSource(UdpSource),
    /// Receives datagrams.
    UdpSink(UdpSink),
}

impl Agent {
    fn poll_deadline(&self) -> Option<Time> {
        match self {
            Agent::Tcp(connection) => connection.poll_deadline(),
            Agent::UdpSource(source) => source.poll_deadline(),
            Agent::UdpSink(_) => None,
        }
    }
}

/// A host: agents, and for each connection that ends here, which agent and which subflow of it that is.
#[derive(Clone, Debug, Default)]
pub struct Node {
    agents: Vec<Agent>,
    /// By the connection's number, less that of the first.
    connections: Vec<(u32, u32)>,
    first: u32,
    deadlines: Vec<Time>,
    /// The least of the deadlines.
    next: Time,
}

impl Node {
    /// A host with these agents; `ends` are the connections that end here, in order: number, agent and subflow.
    #[must_use]
    pub fn new(agents: Vec<Agent>, ends: &[(u32, u32, u32)]) -> Node {
        let deadlines: Vec<Time> = agents.iter().map(|agent| agent.poll_deadline().unwrap_or(NEVER)).collect();
        let next = deadlines.iter().copied().min().unwrap_or(NEVER);
        let first = ends.first().map_or(0, |end| end.0);
        let count = ends.last().map_or(0, |end| end.0 - first + 1);
        let mut connections = vec![(u32::MAX, 0); count as usize];
        for (number, agent, subflow) in ends {
            connections[(number - first) as usize] = (*agent, *subflow);
        }
        Node { agents, connections, first, deadlines, next }
    }

    /// Its agents.
    #[must_use]
    pub fn agents(&self) -> &[Agent] {
        &self.agents
    }

    /// Notes an agent's deadline after something happened to it.
    #[inline]
    fn rearm(&mut self, agent: usize) {
        let at = self.agents[agent].poll_deadline().unwrap_or(NEVER);
        let before = std::mem::replace(&mut self.deadlines[agent], at);
        if at <= self.next {
            self.next = at;
        } else if before == self.next {
            self.next = self.deadlines.iter().copied().min().unwrap_or(NEVER);
        }
    }
}

impl netsim::Host<Packet> for Node {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet, out: &mut Out<Packet>) {
        let (agent, subflow) = self.connections[(packet.connection() - self.first) as usize];
        let agent = agent as usize;
        match (&mut self.agents[agent], &packet) {
            (Agent::Tcp(connection), Packet::Tcp { segment, ecn, .. }) => {
                connection.handle_segment(now, subflow as usize, segment, *ecn, out);
            }
            (Agent::UdpSink(sink), Packet::Udp { bytes, sent_at, .. }) => sink.handle_datagram(now, *bytes, *sent_at),
            _ => unreachable!("connections are numbered by the transport of their flow"),
        }
        self.rearm(agent);
    }

    #[inline]
    fn poll_deadline(&self) -> Option<Time> {
        (self.next < NEVER).then_some(self.next)
    }

    fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        for agent in 0..self.agents.len() {
            if self.deadlines[agent] > now {
                continue;
            }
            match &mut self.agents[agent] {
                Agent::Tcp(connection) => connection.handle_deadline(now, out),
                Agent::UdpSource(source) => source.handle_deadline(now, out),
                Agent::UdpSink(_) => {}
            }
            self.rearm(agent);
        }
    }
}
