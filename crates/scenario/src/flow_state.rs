//! The state of a flow's ends during a run.

use units::{Bytes, Span};

use crate::build::{Built, Ends};
use crate::file::{FlowSpec, Transport};
use crate::host::{Agent, AgentState, Connection, Request, Subflow};

/// The sender of a flow's data.
pub(crate) fn sender<'a>(built: &'a Built, ends: &Ends) -> AgentState<'a> {
    built.sim.host(ends.from.0).state(ends.from.1)
}

/// The receiver of a flow's data.
pub(crate) fn receiver<'a>(built: &'a Built, ends: &Ends) -> AgentState<'a> {
    built.sim.host(ends.to.0).state(ends.to.1)
}

/// The state of a flow's sender.
#[derive(Clone, Copy)]
pub(crate) struct SenderState {
    /// The sum of the congestion windows of all subflows.
    pub(crate) window: Bytes,
    /// The largest smoothed RTT of all subflows.
    pub(crate) rtt: Option<Span>,
    /// Whether it has stopped writing and all that it wrote is acknowledged.
    is_done: bool,
}

/// The state of a flow's sender; `None` for UDP. Before a flow that arrives has done so, its window
/// is zero.
pub(crate) fn sender_state(built: &Built, ends: &Ends) -> Option<SenderState> {
    let agent = match sender(built, ends) {
        AgentState::Planned { is_udp } => {
            let state = SenderState { window: Bytes::ZERO, rtt: None, is_done: true };
            return (!is_udp).then_some(state);
        }
        AgentState::Ended(ended) => {
            return ended.sender.map(|sender| SenderState {
                window: sender.window,
                rtt: sender.rtt,
                is_done: true,
            });
        }
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(tcp) => Some(SenderState {
            window: tcp.window(),
            rtt: tcp.smoothed_rtt(),
            is_done: tcp.is_done(),
        }),
        Agent::Sockets(sockets) => Some(SenderState {
            window: sockets.window(),
            rtt: sockets.smoothed_rtt(),
            is_done: sockets.is_done(),
        }),
        Agent::Pool(pool) => Some(SenderState {
            window: pool.connections().map(Connection::window).sum(),
            rtt: pool.connections().filter_map(Connection::smoothed_rtt).max(),
            is_done: false,
        }),
        Agent::Ptcp(striped) => Some(SenderState {
            window: striped.connection().window(),
            rtt: striped.smoothed_rtt(),
            is_done: striped.is_done(),
        }),
        Agent::UdpSource(_) | Agent::UdpSink(_) => None,
    }
}

/// The state of a flow's sender while the flow lives: from its start until all data has been
/// acknowledged.
pub(crate) fn living_state(built: &Built, ends: &Ends) -> Option<SenderState> {
    let has_begun = ends.start < built.sim.now();
    sender_state(built, ends).filter(|state| has_begun && !state.is_done)
}

/// Counters of a flow's sender.
pub(crate) struct SenderCounts {
    /// Retransmitted packets; of pTCP, packets declared lost.
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
}

impl SenderCounts {
    /// The sums over TCP connections.
    fn of<'a>(connections: impl Iterator<Item = &'a Subflow>) -> SenderCounts {
        let mut counts = SenderCounts { retransmitted: 0, timeouts: 0 };
        for stats in connections.map(|connection| connection.endpoint.stats()) {
            counts.retransmitted += stats.retransmitted;
            counts.timeouts += stats.timeouts;
        }
        counts
    }
}

/// The counters of a flow's sender so far; `None` for UDP.
pub(crate) fn sender_counts(built: &Built, ends: &Ends) -> Option<SenderCounts> {
    let agent = match sender(built, ends) {
        AgentState::Planned { is_udp } => {
            return (!is_udp).then_some(SenderCounts { retransmitted: 0, timeouts: 0 });
        }
        AgentState::Ended(ended) => {
            return ended.sender.map(|sender| SenderCounts {
                retransmitted: sender.retransmitted,
                timeouts: sender.timeouts,
            });
        }
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(tcp) => Some(SenderCounts::of(tcp.subflows())),
        Agent::Sockets(sockets) => Some(SenderCounts::of(sockets.connections())),
        Agent::Pool(pool) => {
            let (retransmitted, timeouts) = pool.repeats();
            Some(SenderCounts { retransmitted, timeouts })
        }
        Agent::Ptcp(striped) => {
            let connection = striped.connection();
            let stats = || connection.paths().filter_map(|path| connection.stats(path));
            let retransmitted = stats().map(|stats| stats.lost).sum();
            Some(SenderCounts {
                retransmitted,
                timeouts: stats().map(|stats| stats.timeouts).sum(),
            })
        }
        Agent::UdpSource(_) | Agent::UdpSink(_) => None,
    }
}

/// The datagrams that arrived, and the sum of their delays; `None` of other transports.
pub(crate) fn datagrams(built: &Built, ends: &Ends) -> Option<(u64, Span)> {
    match receiver(built, ends) {
        AgentState::Live(Agent::UdpSink(sink)) => Some((sink.datagrams(), sink.delay())),
        AgentState::Ended(ended) => Some(ended.datagrams),
        AgentState::Live(_) | AgentState::Planned { .. } => None,
    }
}

/// The completed requests of a flow's receiver.
pub(crate) fn requests<'a>(built: &'a Built, ends: &Ends) -> &'a [Request] {
    match receiver(built, ends) {
        AgentState::Planned { .. } => &[],
        AgentState::Ended(ended) => &ended.requests,
        AgentState::Live(agent) => match agent {
            Agent::Tcp(connection) => connection.application().requests(),
            Agent::Ptcp(striped) => striped.application().requests(),
            Agent::Sockets(sockets) => sockets.application().requests(),
            Agent::Pool(pool) => pool.requests(),
            Agent::UdpSink(sink) => sink.requests(),
            Agent::UdpSource(_) => &[],
        },
    }
}

/// Payload received; of UDP, bytes on the wire.
pub(crate) fn received(built: &Built, ends: &Ends) -> Bytes {
    let agent = match receiver(built, ends) {
        AgentState::Planned { .. } => return Bytes::ZERO,
        AgentState::Ended(ended) => return ended.received,
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(connection) => connection.received(),
        Agent::Ptcp(striped) => striped.received(),
        Agent::Sockets(sockets) => sockets.received(),
        Agent::Pool(pool) => pool.received(),
        Agent::UdpSink(sink) => sink.received(),
        Agent::UdpSource(_) => Bytes::ZERO,
    }
}

/// The payload of a full packet in bytes; of UDP, its size on the wire.
pub(crate) fn packet_size(flow: &FlowSpec) -> f64 {
    match &*flow.transport {
        Transport::Tcp(spec) => spec.config.mss.as_f64(),
        Transport::Ptcp(spec) => spec.config.max_datagram.as_f64(),
        Transport::Sockets(spec) => spec.config.mss.as_f64(),
        Transport::Udp(spec) => spec.packet.mean(),
    }
}
