//! What a connection tells of its routes: events and counters.

use crate::{BackgroundStats, RouteId};
use std::net::{IpAddr, SocketAddr};

use units::{Bytes, PathId, Span, SubflowId};

/// A change of a route.
///
/// ```
/// use std::net::Ipv4Addr;
/// use std::sync::Arc;
///
/// use secure::testing::{Key, client, server};
/// use stripe::{Endpoint, Listening, Options, Route, RouteChange};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (near, far) = (Key::generate(), Key::generate());
///     let listening = Listening::at((Ipv4Addr::LOCALHOST, 0).into());
///     let listener = Endpoint::listen(&listening, &Arc::new(server(&far)), Options::default())?;
///     let remote = listener.local_addresses()[0];
///     let endpoint = Endpoint::new()?;
///     let tls = Arc::new(client(&near, &far));
///     let dialing = endpoint.connect(vec![Route::to(remote)], &tls, Options::default());
///     let (dialed, accepted) = tokio::join!(dialing, listener.accept());
///     let (dialed, _accepted) = (dialed?, accepted.expect("it listens"));
///
///     let mut events = dialed.events();
///     let second = dialed.add_route(Route::to(remote)).await?;
///     let event = events.recv().await?;
///     assert_eq!((event.route, event.change), (second, RouteChange::Opened));
///     dialed.remove_route(second);
///     assert_eq!(events.recv().await?.change, RouteChange::Removed);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RouteEvent {
    /// The route's number in the connection, in the order of being given or accepted.
    pub route: RouteId,
    /// The number of its path, by the count of the side that dialed; at the side that accepted it,
    /// as [`RouteEvent::route`].
    pub path: PathId,
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
    /// It carries no packets of 1,200 octets, the least that a route has to: it is given up.
    Narrow,
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
    pub route: RouteId,
    /// As [`RouteEvent::path`].
    pub path: PathId,
    /// Its name.
    pub name: String,
    /// The local address, as far as it is known.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Its state.
    pub state: RouteState,
    /// The numbers of its subflows: the paths of the connection that it has.
    pub subflows: Vec<SubflowId>,
    /// Whether it is in reserve: it carries while no other one does.
    pub is_in_reserve: bool,
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
    /// Of streams: copies over it of what was in flight on another route.
    pub copies: Bytes,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets that arrived marked with congestion (ECN), by the peer's count.
    pub marked: u64,
    /// The largest UDP payload that it carries.
    pub datagram: Bytes,
    /// What the background is like there, by its first subflow; `None` of a connection that is not
    /// in the background.
    pub background: Option<BackgroundStats>,
    /// The lowest number of a route that shares its bottleneck, if any is known.
    pub shares_with: Option<RouteId>,
    /// Datagrams that the kernel did not take in time.
    pub dropped_here: u64,
    /// Why the relay that it leads over is of no use at present, as a clause; `None`: it is, or
    /// there is none.
    pub failure: Option<String>,
}

/// What a connection has moved between this host and an address of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The address; `None`: all further ones of a peer that came from many.
    pub remote: Option<IpAddr>,
    /// Bytes of UDP payloads sent there.
    pub sent: Bytes,
    /// Bytes of UDP payloads that came from there, and were the peer's.
    pub received: Bytes,
}

/// Counters of a connection.
///
/// ```
/// use std::net::Ipv4Addr;
/// use std::sync::Arc;
///
/// use secure::testing::{Key, client, server};
/// use stripe::{Endpoint, Listening, Options, Route, RouteState};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (near, far) = (Key::generate(), Key::generate());
///     let listening = Listening::at((Ipv4Addr::LOCALHOST, 0).into());
///     let listener = Endpoint::listen(&listening, &Arc::new(server(&far)), Options::default())?;
///     let remote = listener.local_addresses()[0];
///     let endpoint = Endpoint::new()?;
///     let tls = Arc::new(client(&near, &far));
///     let routes = vec![Route::to(remote), Route::to(remote)];
///     let dialing = endpoint.connect(routes, &tls, Options::default());
///     let (dialed, accepted) = tokio::join!(dialing, listener.accept());
///     let (dialed, accepted) = (dialed?, accepted.expect("it listens"));
///
///     dialed.send_datagram(vec![0; 1_000])?;
///     accepted.receive_datagram().await?;
///     let stats = dialed.stats().await;
///     assert_eq!(stats.routes.len(), 2);
///     let open = stats.routes.iter().find(|route| route.state == RouteState::Open);
///     let open = open.expect("the handshake was made over it");
///     assert!(open.remote == remote && open.window > open.datagram);
///     assert!(stats.routes.iter().map(|route| route.sent.0).sum::<u64>() > 1_000);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Each route.
    pub routes: Vec<RouteStats>,
    /// What was moved in the connection's whole life, by addresses of the peer: these counts never
    /// go back, also where routes end.
    pub carried: Vec<Carried>,
    /// Whether nothing gets through: acknowledgements are overdue on every route, or there is none.
    pub is_silent: bool,
    /// Streams that are open.
    pub streams: usize,
    /// How often the keys were updated.
    pub key_updates: u64,
    /// The present receive buffer.
    pub receive_buffer: Bytes,
}
