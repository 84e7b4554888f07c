//! A host: the TCP and the UDP socket of one port, and the services behind them.
//!
//! The host admits connections and hands each to the service that its hello names. Bounds of
//! connections, the token, the list of authorized peers and the reports of refusals are those of
//! the host, whatever its services.

mod probing;
mod service;
pub mod sockets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::socket::reachable;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::session::{AbortCode, Hello, SessionFrame, SessionId, VERSION, Welcome};

use crate::carrier::{Listener, Stream};
use crate::conn::{Conn, ConnError};
use crate::listen::Admitted;
use crate::listen::admission::{First, TokenCheck, Unauthenticated, greet, refuse};
use crate::listen::by_peer::PeerPlace;
use crate::listen::connections::{Connections, no_place};
use crate::listen::further_addresses;
use crate::listen::opening::OpeningSessions;
use crate::listen::predecessor::other_version;
use crate::listen::waiting::{Waited, Waiting};
use crate::listen::{Refusals, refusal_text};
use crate::striped::{UdpListener, carrier::StripedListener};
use crate::tls::ServerTls;
use crate::{AuthorizedPeers, Error, Fingerprint, ListenOptions, Peer, random};
use service::{Hosted, Join, Open, OpenRequest};
use sockets::{Sockets, at_free_port};

pub use service::{Asking, Entry, Service, Services, SessionRequest};

/// Where a host tells people what happens, as sentences: a function that must not block.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// The carriers at which a host listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriers {
    /// TCP, and UDP at the same ports. Without UDP, whose ports may be taken, at TCP alone.
    Both,
    /// UDP alone.
    Udp,
}

/// A host whose sockets are open.
pub struct Host {
    options: ListenOptions,
    tell: Tell,
    tcp: Vec<TcpListener>,
    udp: Option<UdpListener>,
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
        tell: Tell,
    ) -> Result<Host, Error> {
        if carriers == Carriers::Udp {
            let bind = |options: &ListenOptions| UdpListener::bind(options, stripe.clone());
            let (udp, notice) = at_free_port(&options, bind)?;
            if let Some(text) = notice {
                tell(text);
            }
            return Ok(Host { options, tell, tcp: Vec::new(), udp: Some(udp) });
        }
        let Sockets { tcp, udp, notice } = Sockets::open(&options, stripe)?;
        if let Some(text) = notice {
            tell(text);
        }
        let udp = udp.map_err(|error| tell(format!("{error}; TCP alone is used until then"))).ok();
        Ok(Host { options, tell, tcp, udp })
    }

    /// The addresses at which it can be reached.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        if !self.tcp.is_empty() {
            return reachable(&self.tcp);
        }
        self.udp.as_ref().map(UdpListener::reachable).unwrap_or_default()
    }

    /// Whether it listens with UDP, whose ports may be taken.
    #[must_use]
    pub fn has_udp(&self) -> bool {
        self.udp.is_some()
    }

    /// Accepts connections for these services until the result is dropped, which ends every
    /// connection.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the host's key.
    pub fn serve(self, services: Services) -> Result<Hosting, Error> {
        let Host { options, tell, tcp, udp } = self;
        let admitted = Admitted::new(options.authorized.clone());
        let boxed = |listener| Box::new(listener) as Box<dyn Listener>;
        let mut listeners: Vec<_> = tcp.into_iter().map(boxed).collect();
        let mut endpoint = None;
        if let Some(udp) = udp {
            endpoint = Some(udp.endpoint());
            listeners.push(Box::new(StripedListener::new(udp, admitted.clone())));
        }
        accept(services, options, (listeners, endpoint), admitted, tell)
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
    tell: Tell,
) -> Result<Hosting, Error> {
    let admitted = Admitted::new(options.authorized.clone());
    accept(services, options, (listeners, None), admitted, tell)
}

fn accept(
    services: Services,
    options: ListenOptions,
    (listeners, endpoint): (Vec<Box<dyn Listener>>, Option<Arc<stripe::Endpoint>>),
    admitted: Admitted,
    tell: Tell,
) -> Result<Hosting, Error> {
    let shared = Arc::new(HostState {
        tls: ServerTls::new(&options.identity)?,
        token: TokenCheck::new(options.token.clone(), options.holder),
        authorized: options.authorized,
        named: options.addresses,
        services,
        tell,
        unauthenticated: Unauthenticated::default(),
        connections: Connections::default(),
        waiting: Waiting::default(),
        opening: Arc::default(),
        refusals: Refusals::default(),
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
    Ok(Hosting { shared, endpoint, _accepting: accepting })
}

/// A host that accepts connections, until it is dropped.
pub struct Hosting {
    shared: Arc<HostState>,
    endpoint: Option<Arc<stripe::Endpoint>>,
    _accepting: JoinSet<()>,
}

impl Hosting {
    /// Ends all connections. Peers over UDP are told, within half a second.
    pub async fn close(mut self) {
        let endpoint = self.endpoint.take();
        drop(self);
        if let Some(endpoint) = endpoint {
            let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
        }
    }
}

impl Drop for Hosting {
    fn drop(&mut self) {
        self.shared.unauthenticated.close();
    }
}

struct HostState {
    services: Services,
    token: TokenCheck,
    authorized: AuthorizedPeers,
    /// The addresses that were named to listen at; none: all.
    named: Vec<SocketAddr>,
    tell: Tell,
    tls: ServerTls,
    unauthenticated: Unauthenticated,
    connections: Connections,
    waiting: Waiting,
    opening: Arc<OpeningSessions>,
    refusals: Refusals,
    admitted: Admitted,
}

/// An authenticated connection.
struct Entered {
    conn: Conn,
    entry: Entering,
    peer: Fingerprint,
    /// The entry of its peer among the authorized ones.
    known: Option<Peer>,
    place: PeerPlace,
}

/// What an authenticated connection is for.
enum Entering {
    Join(Join),
    Open(Open, OpenRequest),
    /// To measure its path.
    Probe,
}

impl HostState {
    fn admit(self: &Arc<Self>, stream: Box<dyn Stream>, from: SocketAddr) {
        let shared = Arc::clone(self);
        tracing::debug!(%from, "connection accepted");
        self.unauthenticated.admit(from.ip(), |number| async move {
            let entering = shared.enter(stream, from);
            let Some(entered) = shared.unauthenticated.authenticated(number, entering).await else {
                return;
            };
            let Entered { conn, entry, peer, known, place } = entered;
            tokio::select! {
                () = shared.serve(conn, entry, from) => {}
                () = place.displaced.notified() => {
                    tracing::info!(%from, "closed for a connection of another peer");
                }
                () = shared.authorized.changed(peer, known.as_ref()) => {
                    tracing::info!(%from, %peer, "its entry among the authorized peers changed");
                }
            }
        });
    }

    /// Serves an authorized connection, after its wait if it waits.
    async fn serve(&self, mut conn: Conn, entry: Entering, from: SocketAddr) {
        let ended = match entry {
            Entering::Join(join) => {
                join(conn, from).await;
                return;
            }
            Entering::Probe => probing::answer(&mut conn).await,
            Entering::Open(open, opened) if opened.whole.is_some() => {
                let welcomed = conn.flush_to_reader().await;
                if welcomed.is_ok() {
                    open(conn, opened, from).await;
                }
                welcomed
            }
            Entering::Open(open, opened) => match self.wait(&mut conn, opened.peer).await {
                Ok(None) => {
                    open(conn, opened, from).await;
                    return;
                }
                Ok(Some(join)) => {
                    drop(opened);
                    join(conn, from).await;
                    return;
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = ended {
            tracing::debug!(%from, %error, "connection ended while it waited");
        }
    }

    /// The place of a connection of `peer` among all.
    async fn place(&self, conn: &mut Conn, peer: Fingerprint) -> Result<PeerPlace, ConnError> {
        match self.connections.enter(peer) {
            Some(place) => Ok(place),
            None => Err(refuse(conn, AbortCode::Crowded, no_place()).await),
        }
    }

    /// Waits until an authorized connection joins a session, or is about to open one (`None`).
    async fn wait(&self, conn: &mut Conn, peer: Fingerprint) -> Result<Option<Join>, ConnError> {
        conn.flush_to_reader().await?;
        match self.waiting.wait(conn, peer).await? {
            Waited::Open => Ok(None),
            Waited::Join(id) => self.join(conn, id, peer).await.map(Some),
        }
    }

    /// The session of that id for a connection that joins it. Its peer may know of the session
    /// before this host has opened it.
    async fn join(
        &self,
        conn: &mut Conn,
        id: SessionId,
        peer: Fingerprint,
    ) -> Result<Join, ConnError> {
        let find = || self.services.0.iter().find_map(|service| service.find(id, peer));
        let mut found = find();
        if found.is_none() {
            self.opening.settled(id, peer).await;
            found = find();
        }
        if let Some(session) = found {
            conn.push(&SessionFrame::Joined);
            return Ok(session);
        }
        let text = "this host knows no such session";
        Err(refuse(conn, AbortCode::NoSession, text.into()).await)
    }

    /// Runs the handshake, reads the first frame, and checks the peer's permission. The addresses
    /// of this host are the answer to a hello: no stranger learns them.
    async fn enter(&self, stream: Box<dyn Stream>, from: SocketAddr) -> Result<Entered, ConnError> {
        let (mut conn, peer, first) = greet(&self.tls, stream).await?;
        // Before it decides anything: a later change ends the connection.
        let known = self.authorized.find(peer);
        let (entry, place) = match first {
            First::Join(id) => {
                let session = self.join(&mut conn, id, peer).await?;
                let place = self.place(&mut conn, peer).await?;
                (Entering::Join(session), place)
            }
            First::Hello(hello) => {
                let open = match self.authorize(&hello, peer, known.as_ref()) {
                    Ok(open) => open,
                    Err((code, reason)) => {
                        return Err(self.turn_away(&mut conn, peer, from, code, reason).await);
                    }
                };
                let place = self.place(&mut conn, peer).await?;
                let entry = self.welcome(&mut conn, peer, hello, open).await?;
                (entry, place)
            }
        };
        self.admitted.insert(peer, known.clone());
        Ok(Entered { conn, entry, peer, known, place })
    }

    /// Who may open what its hello names; `None` for a measurement of a path.
    fn authorize(
        &self,
        hello: &Hello,
        peer: Fingerprint,
        known: Option<&Peer>,
    ) -> Result<Option<Open>, (AbortCode, String)> {
        if hello.version != VERSION {
            return Err((AbortCode::Refused, other_version(hello.version)));
        }
        let asking = Asking { hello, peer, known, token: &self.token };
        let refused = |reason| (AbortCode::Refused, reason);
        if hello.service == wire::session::PROBE {
            // Whoever may anything here may know how fast.
            let mut reason = "this host has no services".to_string();
            for service in &self.services.0 {
                match service.authorize(&asking) {
                    Ok(_) => return Ok(None),
                    Err(why) => reason = why,
                }
            }
            return Err(refused(reason));
        }
        let Some(service) = self.services.named(&hello.service) else {
            // A stranger is not told what this host does.
            let any = |service: &dyn Hosted| service.authorize(&asking);
            let mut all = self.services.0.iter().map(|service| any(service.as_ref()));
            return Err(match all.find_map(Result::ok) {
                Some(_) => (AbortCode::NoService, format!("this host {}", self.services.do_what())),
                None => refused(
                    "its key may not do that on this host, and it showed no token that lets it"
                        .into(),
                ),
            });
        };
        service.authorize(&asking).map(Some).map_err(refused)
    }

    /// Answers the hello of a peer that is let in.
    async fn welcome(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
        hello: Hello,
        open: Option<Open>,
    ) -> Result<Entering, ConnError> {
        let session = random().map_err(std::io::Error::other)?;
        let takes_whole = self.services.named(&hello.service).is_some_and(Hosted::takes_whole);
        let whole = if takes_whole {
            let Some(whole) = conn.stream().claim() else {
                let text = "this service runs over UDP alone";
                return Err(refuse(conn, AbortCode::Refused, text.into()).await);
            };
            Some(whole)
        } else {
            None
        };
        let addresses = further_addresses(conn, &self.named);
        conn.push(&SessionFrame::Welcome(Welcome { version: VERSION, session, addresses }));
        let Some(open) = open else { return Ok(Entering::Probe) };
        let opening = self.opening.begin(session, peer);
        Ok(Entering::Open(open, OpenRequest { hello, peer, session, whole, opening }))
    }

    /// Refuses a peer, and reports it.
    async fn turn_away(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
        from: SocketAddr,
        code: AbortCode,
        reason: String,
    ) -> ConnError {
        tracing::info!(%peer, reason, "refused");
        if let Some(unreported) = self.refusals.note(Instant::now()) {
            (self.tell)(refusal_text(from, &reason, unreported));
        }
        refuse(conn, code, reason).await
    }
}
