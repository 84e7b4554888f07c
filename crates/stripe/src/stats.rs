//! What a connection tells of its routes: events and counters.

use std::net::SocketAddr;

use units::{Bytes, Span};

/// A change of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteEvent {
    /// The route's number in the connection, in the order of being given or accepted.
    pub route: u32,
    /// Its name.
    pub name: String,
    /// What has happened.
    pub change: RouteChange,
}

/// What has happened to a route.
#[derive(Clone, Debug, PartialEq)]
pub enum RouteChange {
    /// The peer answered: it carries data.
    Opened,
    /// Acknowledgements are overdue; its data goes over the others, and it is probed.
    Silent,
    /// Acknowledgements arrive again.
    Back,
    /// Its socket fails, with the kernel's reason. It is tried again.
    Failing {
        /// The reason.
        reason: String,
    },
    /// The peer's address changed, or this end's.
    Moved {
        /// The peer's address.
        remote: SocketAddr,
    },
    /// It is not used any more.
    Removed,
}

/// The state of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteState {
    /// No answer has arrived over it yet.
    Opening,
    /// It carries data.
    Open,
    /// Acknowledgements are overdue.
    Silent,
}

/// Counters of one route, all of its subflows together.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStats {
    /// The route's number.
    pub route: u32,
    /// Its name.
    pub name: String,
    /// The local address, as far as it is known.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Its state.
    pub state: RouteState,
    /// Bytes of UDP payloads sent.
    pub sent: Bytes,
    /// Bytes of UDP payloads that arrived.
    pub received: Bytes,
    /// Datagrams sent and arrived.
    pub datagrams: u64,
    /// The sum of the congestion windows of its subflows.
    pub window: Bytes,
    /// The smoothed round-trip time of its first subflow.
    pub round_trip: Option<Span>,
    /// Packets sent that wanted an acknowledgement.
    pub packets: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets that arrived marked with congestion (ECN), by the peer's count.
    pub marked: u64,
    /// The largest UDP payload that it carries.
    pub datagram: Bytes,
    /// The lowest number of a route that shares its bottleneck, if any is known.
    pub shares_with: Option<u32>,
    /// Datagrams that the kernel did not take in time.
    pub dropped_here: u64,
}

/// Counters of a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Each route.
    pub routes: Vec<RouteStats>,
    /// Streams that are open.
    pub streams: usize,
    /// How often the keys were updated.
    pub key_updates: u64,
    /// The present receive buffer.
    pub receive_buffer: Bytes,
}
