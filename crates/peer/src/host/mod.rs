//! A host: the TCP and the UDP socket of one port, and the services behind them.
//!
//! The host admits connections and hands each to the service that its hello names. Bounds of
//! connections, the token, the list of authorized peers and the reports of refusals are those of
//! the host, whatever its services.

mod counted;
mod entering;
mod metrics;
mod newcomers;
mod over_udp;
mod probing;
mod service;
pub mod sockets;

use events::Events;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::socket::{listen, reachable};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::effort::Effort;
use wire::session::SessionId;

use metrics::HostMetrics;
use newcomers::Newcomers;
use over_udp::OverUdp;

use crate::carrier::Listener;
use crate::conn::{Conn, ConnError};
use crate::listen::Admitted;
use crate::listen::Refusals;
use crate::listen::admission::TokenCheck;
use crate::listen::by_peer::PeerPlace;
use crate::listen::connections::Connections;
use crate::listen::opening::OpeningSessions;
use crate::listen::own::{Announcer, OwnAddresses};
use crate::listen::waiting::{Waited, Waiting};
use crate::metrics::Registry;
use crate::striped::{UdpListener, carrier::StripedListener};
use crate::tls::ServerTls;
use crate::{AuthorizedPeers, Error, Fingerprint, ListenOptions, Peer, descriptors};
use service::{Join, Open, OpenRequest};
use sockets::{Sockets, at_free_port, place_of};

pub use service::{Asking, BARE, Entry, Meetings, Service, Services, SessionRequest};

/// The carriers at which a host listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriers {
    /// TCP, and UDP at the same ports. Without UDP, whose ports may be taken, at TCP alone.
    Both,
    /// UDP alone.
    Udp,
    /// TCP alone: a service has the UDP socket of the port.
    Tcp,
}

/// A host whose sockets are open.
pub struct Host {
    options: ListenOptions,
    events: Events,
    tcp: Vec<TcpListener>,
    udp: Option<UdpListener>,
    meetings: Option<Arc<dyn Meetings>>,
}

/// How long the last words over UDP may take.
const FAREWELL: Duration = Duration::from_millis(500);
/// The pause after accept(2) failed, most likely for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

impl Host {
    /// Opens the sockets; needs a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::System`], with the address that the kernel refused.
    pub fn bind(
        options: ListenOptions,
        carriers: Carriers,
        stripe: &stripe::Options,
        events: Events,
    ) -> Result<Host, Error> {
        if carriers == Carriers::Udp {
            let bind = |options: &ListenOptions| UdpListener::bind(options, stripe.clone());
            let (udp, notice) = at_free_port(&options, bind)?;
            if let Some(text) = notice {
                events.notice(text);
            }
            return Ok(Host { options, events, tcp: Vec::new(), udp: Some(udp), meetings: None });
        }
        if carriers == Carriers::Tcp {
            let bind = |options: &ListenOptions| Ok(listen(&options.addresses, options.port)?);
            let (tcp, notice) = at_free_port(&options, bind)?;
            if let Some(text) = notice {
                events.notice(text);
            }
            return Ok(Host { options, events, tcp, udp: None, meetings: None });
        }
        let Sockets { tcp, udp, notice } = Sockets::open(&options, stripe)?;
        if let Some(text) = notice {
            events.notice(text);
        }
        let fallback = |error| events.notice(format!("{error}; TCP alone is used until then"));
        let udp = udp.map_err(fallback).ok();
        Ok(Host { options, events, tcp, udp, meetings: None })
    }

    /// The same, which also waits to be met.
    #[must_use]
    pub fn meeting(self, meetings: Option<Arc<dyn Meetings>>) -> Host {
        Host { meetings, ..self }
    }

    /// The addresses at which it can be reached.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        if !self.tcp.is_empty() {
            return reachable(&self.tcp);
        }
        self.udp.as_ref().map(UdpListener::reachable).unwrap_or_default()
    }

    /// Where it listens with TCP: the addresses that were named, each with its port, or none for
    /// all; and the port of the first.
    #[must_use]
    pub fn place(&self) -> (Vec<SocketAddr>, u16) {
        place_of(&self.options, &self.tcp)
    }

    /// Whether it listens with UDP, whose ports may be taken.
    #[must_use]
    pub fn has_udp(&self) -> bool {
        self.udp.is_some()
    }

    /// The endpoint of striped connections, if it listens with UDP.
    #[must_use]
    pub fn endpoint(&self) -> Option<Arc<stripe::Endpoint>> {
        self.udp.as_ref().map(UdpListener::endpoint)
    }

    /// Accepts connections for these services until the result is dropped, which ends every
    /// connection.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the host's key.
    pub fn serve(self, mut services: Services) -> Result<Hosting, Error> {
        let (_, port) = self.place();
        let Host { options, events, tcp, udp, meetings } = self;
        let admitted = Admitted::new(options.authorized.clone());
        let boxed = |listener| Box::new(listener) as Box<dyn Listener>;
        let mut listeners: Vec<_> = tcp.into_iter().map(boxed).collect();
        if let Some(meetings) = &meetings {
            services = meetings.joins(services);
            listeners.extend(meetings.listeners(port));
        }
        let metrics = HostMetrics::new(services.names());
        let (mut over_udp, mut own) = (None, None);
        if let Some(udp) = udp {
            let relays = meetings.map(|meetings| meetings.awaiting()).unwrap_or_default();
            let udp = udp.waiting_at(relays);
            over_udp = Some(OverUdp::of(&udp));
            own = Some(udp.own());
            let traffic = metrics.traffic.clone();
            listeners.push(Box::new(StripedListener::counting(udp, admitted.clone(), traffic)));
        }
        let own = own.unwrap_or_else(OwnAddresses::follow);
        accept((services, metrics), options, (listeners, over_udp), admitted, (own, events))
    }
}

/// Accepts connections at listeners of any carrier, for these services; the addresses of `options`
/// are not listened at. Needs a Tokio runtime.
///
/// # Errors
/// [`Error::System`] if the library refuses the host's key.
pub fn serve_at(
    listeners: Vec<Box<dyn Listener>>,
    services: Services,
    options: ListenOptions,
    events: Events,
) -> Result<Hosting, Error> {
    let admitted = Admitted::new(options.authorized.clone());
    let metrics = HostMetrics::new(services.names());
    let own = OwnAddresses::follow();
    accept((services, metrics), options, (listeners, None), admitted, (own, events))
}

fn accept(
    (services, metrics): (Services, HostMetrics),
    options: ListenOptions,
    (listeners, over_udp): (Vec<Box<dyn Listener>>, Option<OverUdp>),
    admitted: Admitted,
    (own, events): (OwnAddresses, Events),
) -> Result<Hosting, Error> {
    let small = services.any_has_small_connections().then(descriptors::small_connections);
    let shared = Arc::new(HostState {
        tls: ServerTls::new(&options.identity)?,
        token: TokenCheck::new(options.token.clone(), options.holder),
        authorized: options.authorized,
        effort: options.effort,
        named: options.addresses,
        own,
        has_bare: services.any_takes_bare(),
        services,
        events,
        newcomers: Newcomers::default(),
        connections: Connections::new(small),
        waiting: Waiting::default(),
        opening: Arc::default(),
        refusals: Refusals::default(),
        metrics,
        admitted,
    });
    let mut accepting = JoinSet::new();
    for mut listener in listeners {
        let shared = Arc::clone(&shared);
        accepting.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, from)) => shared.admit(stream, from),
                    Err(error) => {
                        tracing::warn!(%error, "no connection could be taken in");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        });
    }
    Ok(Hosting { shared, over_udp, _accepting: accepting })
}

/// A host that accepts connections, until it is dropped.
pub struct Hosting {
    shared: Arc<HostState>,
    over_udp: Option<OverUdp>,
    _accepting: JoinSet<()>,
}

impl Hosting {
    /// The figures of this host and of its services, read whenever they are written down. Their
    /// names begin with `anabranch`; docs/host.md lists them.
    #[must_use]
    pub fn metrics(&self) -> Registry {
        let mut registry = Registry::with_prefix("anabranch");
        let shared = &self.shared;
        shared.metrics.register(&mut registry);
        shared.newcomers.register(&mut registry, shared.has_bare);
        shared.connections.register(&mut registry);
        if let Some(over_udp) = &self.over_udp {
            over_udp.register(&mut registry);
        }
        for service in &shared.services.all {
            service.register(registry.sub_registry_with_prefix(service.name()));
        }
        registry
    }

    /// Ends all connections. Peers over UDP are told, within half a second.
    pub async fn close(mut self) {
        let over_udp = self.over_udp.take();
        drop(self);
        if let Some(over_udp) = over_udp {
            let _ = timeout(FAREWELL, over_udp.wait_parted()).await;
        }
    }
}

impl Drop for Hosting {
    fn drop(&mut self) {
        self.shared.newcomers.close();
    }
}

struct HostState {
    services: Services,
    token: TokenCheck,
    authorized: AuthorizedPeers,
    /// That of all services.
    effort: Effort,
    /// The addresses that were named to listen at; none: all.
    named: Vec<SocketAddr>,
    /// Those of this host.
    own: OwnAddresses,
    events: Events,
    tls: ServerTls,
    /// Whether a service takes connections bare.
    has_bare: bool,
    newcomers: Newcomers,
    connections: Connections,
    waiting: Waiting,
    opening: Arc<OpeningSessions>,
    refusals: Refusals,
    metrics: HostMetrics,
    admitted: Admitted,
}

/// An authenticated connection.
struct Entered {
    conn: Conn,
    entry: Entering,
    service: &'static str,
    peer: Fingerprint,
    /// The entry of its peer among the authorized ones.
    known: Option<Peer>,
    place: PeerPlace,
}

/// What an authenticated connection is for.
enum Entering {
    Join(Joining),
    Open(Open, OpenRequest),
    /// To measure its path.
    Probe,
}

/// A connection that joins a session.
struct Joining {
    join: Join,
    service: &'static str,
    session: SessionId,
}

impl HostState {
    /// Serves an authorized connection as long as it has a place and its peer its rights.
    async fn serve_entered(&self, entered: Entered, from: SocketAddr) {
        let Entered { mut conn, entry, service, peer, known, place } = entered;
        let _counted = self.metrics.connection(service);
        self.metrics.watch(&mut conn, service);
        let mut announcer = Announcer::new(&self.own, &self.named);
        conn.announce(move |stream| announcer.changed(stream));
        tokio::select! {
            () = self.serve(conn, entry, service, from) => {}
            () = place.displaced.notified() => {
                tracing::info!(%from, "closed for a connection of another peer");
            }
            () = self.authorized.changed(peer, known.as_ref()) => {
                tracing::info!(%from, %peer, "its entry among the authorized peers changed");
            }
        }
    }

    /// Serves an authorized connection, after its wait if it waits.
    async fn serve(
        &self,
        mut conn: Conn,
        entry: Entering,
        service: &'static str,
        from: SocketAddr,
    ) {
        let ended = match entry {
            Entering::Join(joining) => {
                self.serve_member(conn, joining, from).await;
                return;
            }
            Entering::Probe => probing::answer(&mut conn).await,
            Entering::Open(open, opened) if opened.whole.is_some() => {
                let welcomed = conn.flush_to_reader().await;
                if welcomed.is_ok() {
                    self.serve_opener(conn, (open, opened), service, from).await;
                }
                welcomed
            }
            Entering::Open(open, opened) => match self.wait(&mut conn, opened.peer).await {
                Ok(None) => {
                    self.serve_opener(conn, (open, opened), service, from).await;
                    return;
                }
                Ok(Some(joining)) => {
                    drop(opened);
                    self.serve_member(conn, joining, from).await;
                    return;
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = ended {
            tracing::debug!(%from, %error, "connection ended while it waited");
        }
    }

    async fn serve_opener(
        &self,
        conn: Conn,
        (open, opened): (Open, OpenRequest),
        service: &'static str,
        from: SocketAddr,
    ) {
        self.metrics.session_opened(service);
        let _member = self.metrics.member(service, opened.session);
        open(conn, opened, from).await;
    }

    async fn serve_member(&self, conn: Conn, joining: Joining, from: SocketAddr) {
        let Joining { join, service, session } = joining;
        let _member = self.metrics.member(service, session);
        join(conn, from).await;
    }

    /// Waits until an authorized connection joins a session, or is about to open one (`None`).
    async fn wait(&self, conn: &mut Conn, peer: Fingerprint) -> Result<Option<Joining>, ConnError> {
        conn.flush_to_reader().await?;
        match self.waiting.wait(conn, peer).await? {
            Waited::Open => Ok(None),
            Waited::Join(id) => self.join(conn, id, peer).await.map(Some),
        }
    }
}
