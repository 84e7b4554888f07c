//! The state of a flow's ends during a run.

use recovery::Sending;
use smallvec::SmallVec;
use units::{Bytes, Span, Time};

use crate::build::{Built, Ends};
use crate::file::{FlowSpec, Transport};
use crate::host::{
    Agent, AgentState, Connection, EndedPath, EndedSender, PathState, PoolCounts, Request, Subflow,
};

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

impl SenderState {
    /// The state of the sender of a striped connection.
    fn of_paths(paths: impl Iterator<Item = PathState>, is_done: bool) -> SenderState {
        let mut state = SenderState { window: Bytes::ZERO, rtt: None, is_done };
        for path in paths {
            state.window += path.window;
            state.rtt = state.rtt.max(path.rtt);
        }
        state
    }
}

/// The states of the paths of a striped connection that is over.
fn ended_paths(paths: &[EndedPath]) -> impl Iterator<Item = PathState> + '_ {
    paths.iter().map(|path| path.state)
}

/// The state of a flow's sender; `None` for UDP. Before a flow that arrives has done so, its window
/// is zero.
pub(crate) fn sender_state(built: &Built, ends: &Ends) -> Option<SenderState> {
    let agent = match sender(built, ends) {
        AgentState::Planned { is_udp } => {
            let state = SenderState { window: Bytes::ZERO, rtt: None, is_done: true };
            return (!is_udp).then_some(state);
        }
        AgentState::Ended(ended) if !ended.paths.is_empty() => {
            return Some(SenderState::of_paths(ended_paths(&ended.paths), true));
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
        Agent::Ptcp(striped) => Some(SenderState::of_paths(striped.paths(), striped.is_done())),
        Agent::UdpSource(_) | Agent::UdpSink(_) | Agent::Gateway(_) => None,
    }
}

/// The state of a flow's sender while the flow lives: from its start until all data has been
/// acknowledged.
pub(crate) fn living_state(built: &Built, ends: &Ends) -> Option<SenderState> {
    let has_begun = ends.start < built.sim.now();
    sender_state(built, ends).filter(|state| has_begun && !state.is_done)
}

/// Whether a flow has ended: it has stopped writing and all that it wrote is acknowledged, or of
/// UDP, it has sent all that it is to send. A flow that has not begun has not ended.
pub(crate) fn has_ended(built: &Built, ends: &Ends) -> bool {
    match sender(built, ends) {
        AgentState::Planned { .. } => false,
        AgentState::Ended(_) => true,
        AgentState::Live(Agent::UdpSource(source)) => source.poll_deadline().is_none(),
        AgentState::Live(_) => sender_state(built, ends).is_some_and(|state| state.is_done),
    }
}

/// The longest time from `from` to now in which no bytes arrived in order at the receiver, while
/// the flow lived; `None` if it has not begun, and of UDP. Only if it is measured.
pub(crate) fn longest_gap(built: &Built, ends: &Ends, from: Time) -> Option<Span> {
    let now = built.sim.now();
    if ends.start >= now {
        return None;
    }
    let gaps = match receiver(built, ends) {
        // Nothing has arrived yet.
        AgentState::Planned { is_udp } => {
            return (!is_udp).then(|| now.since(ends.start.max(from)));
        }
        AgentState::Ended(ended) => ended.gaps.as_deref(),
        AgentState::Live(agent) => agent.gaps(),
    };
    let lasting = Some(now).filter(|_| !has_ended(built, ends));
    gaps.map(|gaps| gaps.longest(from, lasting))
}

/// Counters of a flow's sender.
#[derive(Clone, Copy, Default)]
pub(crate) struct SenderCounts {
    /// Packets with data, those sent again included.
    pub(crate) sent: u64,
    /// Retransmitted packets; of pTCP, packets declared lost.
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
}

impl SenderCounts {
    /// The sums over TCP connections.
    fn of<'a>(connections: impl Iterator<Item = &'a Subflow>) -> SenderCounts {
        let mut counts = SenderCounts::default();
        for stats in connections.map(|connection| connection.endpoint.stats()) {
            counts.sent += stats.sent;
            counts.retransmitted += stats.retransmitted;
            counts.timeouts += stats.timeouts;
        }
        counts
    }

    /// The sums over the paths of a striped connection.
    fn of_paths(paths: impl Iterator<Item = PathState>) -> SenderCounts {
        let mut counts = SenderCounts::default();
        for path in paths {
            counts.sent += path.sent;
            counts.retransmitted += path.lost;
            counts.timeouts += path.timeouts;
        }
        counts
    }
}

/// The counters of a flow's sender so far; `None` for UDP.
pub(crate) fn sender_counts(built: &Built, ends: &Ends) -> Option<SenderCounts> {
    let agent = match sender(built, ends) {
        AgentState::Planned { is_udp } => {
            return (!is_udp).then(SenderCounts::default);
        }
        AgentState::Ended(ended) if !ended.paths.is_empty() => {
            return Some(SenderCounts::of_paths(ended_paths(&ended.paths)));
        }
        AgentState::Ended(ended) => {
            return ended.sender.map(|sender| SenderCounts {
                sent: ended.sent,
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
            let PoolCounts { sent, retransmitted, timeouts, .. } = pool.counts();
            Some(SenderCounts { sent, retransmitted, timeouts })
        }
        Agent::Ptcp(striped) => Some(SenderCounts::of_paths(striped.paths())),
        Agent::UdpSource(_) | Agent::UdpSink(_) | Agent::Gateway(_) => None,
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
            Agent::UdpSource(_) | Agent::Gateway(_) => &[],
        },
    }
}

/// The packets with data that a flow's sender has sent so far.
pub(crate) fn sent(built: &Built, ends: &Ends) -> u64 {
    match sender(built, ends) {
        AgentState::Ended(ended) if ended.paths.is_empty() => ended.sent,
        AgentState::Live(Agent::UdpSource(source)) => source.sent(),
        _ => sender_counts(built, ends).map_or(0, |counts| counts.sent),
    }
}

/// The packets that have arrived at a flow's receiver with a mark (ECN), modulo 2^32; `None` if the
/// flow is not ECN-capable.
pub(crate) fn marked(built: &Built, ends: &Ends, flow: &FlowSpec) -> Option<u64> {
    let is_capable = match &*flow.transport {
        Transport::Tcp(spec) => spec.config.ecn,
        Transport::Sockets(spec) => spec.config.ecn,
        Transport::Ptcp(spec) => spec.config.ecn,
        Transport::Udp(_) => false,
    };
    if !is_capable {
        return None;
    }
    let agent = match receiver(built, ends) {
        AgentState::Planned { .. } => return Some(0),
        AgentState::Ended(ended) if !ended.paths.is_empty() => {
            return Some(ended.paths.iter().map(|path| path.arrived.marked).sum());
        }
        AgentState::Ended(ended) => return Some(ended.marked),
        AgentState::Live(agent) => agent,
    };
    let of = |connection: &Subflow| u64::from(connection.endpoint.marked());
    match agent {
        Agent::Tcp(tcp) => Some(tcp.subflows().map(of).sum()),
        Agent::Sockets(sockets) => Some(sockets.connections().map(of).sum()),
        Agent::Pool(pool) => Some(pool.counts().marked),
        Agent::Ptcp(striped) => {
            Some((0..striped.routes().len()).map(|path| striped.arrived_over(path).marked).sum())
        }
        Agent::UdpSource(_) | Agent::UdpSink(_) | Agent::Gateway(_) => None,
    }
}

/// The state of one subflow's sender.
#[derive(Clone, Copy, Default)]
pub(crate) struct SubflowState {
    pub(crate) window: Bytes,
    pub(crate) rtt: Option<Span>,
    pub(crate) sent: u64,
    pub(crate) retransmitted: u64,
}

impl SubflowState {
    fn of_path(path: PathState) -> SubflowState {
        let PathState { window, rtt, sent, lost, .. } = path;
        SubflowState { window, rtt, sent, retransmitted: lost }
    }
}

/// For each open subflow of a striped connection with several, the number of its bottleneck from 1
/// on, or 0 if none is known.
pub(crate) fn bottlenecks(built: &Built, ends: &Ends) -> Vec<u16> {
    let paths: SmallVec<[PathState; 4]> = match sender(built, ends) {
        AgentState::Live(Agent::Ptcp(striped)) => striped.paths().collect(),
        AgentState::Ended(ended) => ended_paths(&ended.paths).collect(),
        AgentState::Live(_) | AgentState::Planned { .. } => return Vec::new(),
    };
    let has_several = paths.len() > 1;
    paths.iter().filter(|_| has_several).filter_map(|path| path.bottleneck).collect()
}

/// The state of the sender of a subflow: zero before a path opens.
pub(crate) fn subflow_state(built: &Built, ends: &Ends, index: usize) -> SubflowState {
    let of = |subflow: Option<&Subflow>, window| {
        let endpoint = subflow.map(|subflow| &subflow.endpoint);
        let stats = endpoint.map(tcp::Endpoint::stats).unwrap_or_default();
        SubflowState {
            window,
            rtt: endpoint.and_then(tcp::Endpoint::smoothed_rtt),
            sent: stats.sent,
            retransmitted: stats.retransmitted,
        }
    };
    let agent = match sender(built, ends) {
        AgentState::Planned { .. } => return SubflowState::default(),
        AgentState::Ended(ended) if !ended.paths.is_empty() => {
            return SubflowState::of_path(ended.paths[index].state);
        }
        // Of TCP, only flows with one subflow are put away when they end.
        AgentState::Ended(ended) => {
            let state = |sender: EndedSender| SubflowState {
                window: sender.window,
                rtt: sender.rtt,
                sent: ended.sent,
                retransmitted: sender.retransmitted,
            };
            return ended.sender.map_or_else(SubflowState::default, state);
        }
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(tcp) => of(tcp.subflows().nth(index), tcp.subflow_window(index)),
        Agent::Sockets(sockets) => {
            of(sockets.connections().nth(index), sockets.connection_window(index))
        }
        Agent::Ptcp(striped) => SubflowState::of_path(striped.path(index)),
        Agent::Pool(_) | Agent::UdpSource(_) | Agent::UdpSink(_) | Agent::Gateway(_) => {
            SubflowState::default()
        }
    }
}

/// What the sender of a subflow does, and what it waits for, while the flow lives; `None` of UDP
/// and of flows with a connection for each request.
pub(crate) fn subflow_sending(built: &Built, ends: &Ends, index: usize) -> Option<Sending> {
    living_state(built, ends)?;
    let now = built.sim.now();
    match sender(built, ends) {
        AgentState::Live(Agent::Tcp(tcp)) => tcp.subflow_sending(now, index),
        AgentState::Live(Agent::Sockets(sockets)) => sockets.connection_sending(now, index),
        AgentState::Live(Agent::Ptcp(striped)) => striped.path_sending(now, index),
        AgentState::Live(_) | AgentState::Planned { .. } | AgentState::Ended(_) => None,
    }
}

/// Payload that arrived over a subflow: of TCP each byte once, of a striped connection with that of
/// copies.
pub(crate) fn subflow_arrived(built: &Built, ends: &Ends, index: usize) -> Bytes {
    let of = |subflow: Option<&Subflow>| subflow.map_or(Bytes::ZERO, |one| one.endpoint.arrived());
    let agent = match receiver(built, ends) {
        AgentState::Planned { .. } => return Bytes::ZERO,
        AgentState::Ended(ended) if !ended.paths.is_empty() => {
            return ended.paths[index].arrived.payload;
        }
        AgentState::Ended(ended) => return ended.arrived,
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(tcp) => of(tcp.subflows().nth(index)),
        Agent::Sockets(sockets) => of(sockets.connections().nth(index)),
        Agent::Ptcp(striped) => striped.arrived_over(index).payload,
        Agent::Pool(_) | Agent::UdpSource(_) | Agent::UdpSink(_) | Agent::Gateway(_) => Bytes::ZERO,
    }
}

/// Payload that has arrived, in order or not, each byte once; of UDP, bytes on the wire.
pub(crate) fn arrived(built: &Built, ends: &Ends) -> Bytes {
    let agent = match receiver(built, ends) {
        AgentState::Planned { .. } => return Bytes::ZERO,
        AgentState::Ended(ended) => return ended.arrived,
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(connection) => connection.arrived(),
        Agent::Ptcp(striped) => striped.arrived(),
        Agent::Sockets(sockets) => sockets.arrived(),
        Agent::Pool(pool) => pool.counts().arrived,
        Agent::UdpSink(sink) => sink.received(),
        Agent::UdpSource(_) | Agent::Gateway(_) => Bytes::ZERO,
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
