//! What a service of a host is: it lets peers in by its own rights, and serves their sessions.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;
use wire::effort::Effort;
use wire::session::{Hello, SessionId};

use crate::carrier::Listener;
use crate::conn::Conn;
use crate::listen::opening::OpeningPlace;
use crate::listen::{TokenCheck, TokenRefusal};
use crate::metrics::Registry;
use crate::{Fingerprint, Peer, WaitingRelay};

/// A service for peers that dial this host.
pub trait Service: Send + Sync + 'static {
    /// An open session, which further connections join.
    type Session: Send + 'static;
    /// The permission of a peer that opens a session.
    type Grant: Send + 'static;

    /// Its name in hellos.
    fn name(&self) -> &'static str;

    /// What it does, behind "this host", for peers that ask for another service.
    fn does(&self) -> &'static str;

    /// Whether it takes a whole striped connection with all its streams, instead of connections of
    /// sessions: see [`SessionRequest::whole`].
    fn takes_whole(&self) -> bool {
        false
    }

    /// Whether whoever it lets in is told the addresses of the host.
    fn tells_addresses(&self) -> bool {
        true
    }

    /// Whether each of its connections holds so little of this host that there may be more of them
    /// than of others: [`crate::descriptors::small_connections`]. One may have a further descriptor
    /// open in the long run, as for the file that it writes.
    fn has_small_connections(&self) -> bool {
        false
    }

    /// Whether it takes connections of TCP that begin with this octet in place of a TLS record: see
    /// [`Service::serve_bare`].
    fn takes_bare(&self, _first: u8) -> bool {
        false
    }

    /// The session of that id, if it is one of `peer` and its rights are those with which it was
    /// let in.
    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Self::Session>;

    /// The permission of a peer to open a session.
    ///
    /// # Errors
    /// The reason of a refusal, which is sent to the peer.
    fn authorize(&self, asking: &Asking<'_>) -> Result<Self::Grant, String>;

    /// Registers the figures of this service. Their names get the host's prefix and this service's
    /// [name](Service::name); the values of their labels are few, and no peer's choice.
    fn register(&self, _registry: &mut Registry) {}

    /// Serves an authenticated connection to its end. The next flush sends a pending answer to a
    /// connection that joins. The future is dropped with the host, and when the peer's entry among
    /// the authorized ones changes.
    fn serve(
        self: Arc<Self>,
        conn: Conn,
        entry: Entry<Self>,
        from: SocketAddr,
    ) -> impl Future<Output = ()> + Send;

    /// Serves a connection without TLS, of which `begin` was read and whose peer is unknown. The
    /// future is dropped with the host.
    fn serve_bare(
        self: Arc<Self>,
        _stream: TcpStream,
        _begin: [u8; BARE],
        _from: SocketAddr,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Where a listening host waits to be met: listeners beside those of its sockets.
pub trait Meetings: fmt::Debug + Send + Sync {
    /// Accept what comes to a host whose sockets have this port. Needs a Tokio runtime.
    fn listeners(&self, port: u16) -> Vec<Box<dyn Listener>>;

    /// The relays over which datagrams come to such a host. Needs a Tokio runtime.
    fn awaiting(&self) -> Vec<WaitingRelay>;

    /// Adds what it needs to the services of the host.
    fn joins(&self, services: Services) -> Services;
}

/// The octets that are read of a connection before a service [takes](Service::serve_bare) it bare.
pub const BARE: usize = 16;

/// A peer that asks to be let in. It has proven its key.
pub struct Asking<'a> {
    /// What it said.
    pub hello: &'a Hello,
    /// Its key.
    pub peer: Fingerprint,
    /// The address that the connection comes from.
    pub from: SocketAddr,
    /// Its entry among the authorized peers.
    pub known: Option<&'a Peer>,
    pub(super) token: &'a TokenCheck,
}

impl Asking<'_> {
    /// Whether it holds the host's token, which is its own from then on.
    ///
    /// # Errors
    /// The reason why the token does not let it in.
    pub fn holds_token(&self) -> Result<(), TokenRefusal> {
        self.token.admit(self.hello, self.peer)
    }
}

/// The request of an authenticated connection.
pub enum Entry<S: Service + ?Sized> {
    /// To join a session.
    Join(S::Session),
    /// To open a session.
    Open(SessionRequest<S>),
}

/// The request of an authorized connection to open a session. The frames behind its hello are still
/// to be read.
pub struct SessionRequest<S: Service + ?Sized> {
    /// The first frame of the connection.
    pub hello: Hello,
    /// The permission of its peer.
    pub grant: S::Grant,
    /// The key of its peer.
    pub peer: Fingerprint,
    /// The id of the session, of which the peer knows.
    pub session: SessionId,
    /// The striped connection whose first stream this connection is; `None` but for a service that
    /// [`takes_whole`](Service::takes_whole) ones.
    pub whole: Option<stripe::Connection>,
    /// Held until [`Service::find`] finds the session, or until it is clear that there will be
    /// none: connections that join wait for that.
    pub opening: OpeningPlace,
}

/// What serves a connection to its end.
pub(super) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;
/// What serves a connection that joins.
pub(super) type Join = Box<dyn FnOnce(Conn, SocketAddr) -> Serving + Send>;
/// What serves a connection that opens a session.
pub(super) type Open = Box<dyn FnOnce(Conn, OpenRequest, SocketAddr) -> Serving + Send>;

/// A [`SessionRequest`] without its permission.
pub(super) struct OpenRequest {
    pub(super) hello: Hello,
    pub(super) peer: Fingerprint,
    pub(super) session: SessionId,
    pub(super) whole: Option<stripe::Connection>,
    pub(super) opening: OpeningPlace,
}

/// A service beside others of other types.
pub(super) trait Hosted: Send + Sync {
    fn name(&self) -> &'static str;
    fn does(&self) -> &'static str;
    fn takes_whole(&self) -> bool;
    fn tells_addresses(&self) -> bool;
    fn has_small_connections(&self) -> bool;
    fn takes_bare(&self, first: u8) -> bool;
    fn serve_bare(&self, stream: TcpStream, begin: [u8; BARE], from: SocketAddr) -> Serving;
    fn register(&self, registry: &mut Registry);
    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Join>;
    fn authorize(&self, asking: &Asking<'_>) -> Result<Open, String>;
}

impl<S: Service> Hosted for Arc<S> {
    fn name(&self) -> &'static str {
        S::name(self)
    }

    fn does(&self) -> &'static str {
        S::does(self)
    }

    fn takes_whole(&self) -> bool {
        S::takes_whole(self)
    }

    fn tells_addresses(&self) -> bool {
        S::tells_addresses(self)
    }

    fn has_small_connections(&self) -> bool {
        S::has_small_connections(self)
    }

    fn takes_bare(&self, first: u8) -> bool {
        S::takes_bare(self, first)
    }

    fn serve_bare(&self, stream: TcpStream, begin: [u8; BARE], from: SocketAddr) -> Serving {
        Box::pin(S::serve_bare(Arc::clone(self), stream, begin, from))
    }

    fn register(&self, registry: &mut Registry) {
        S::register(self, registry);
    }

    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Join> {
        let (service, session) = (Arc::clone(self), S::find(self, id, peer)?);
        Some(Box::new(|conn, from| Box::pin(service.serve(conn, Entry::Join(session), from))))
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<Open, String> {
        let (service, grant) = (Arc::clone(self), S::authorize(self, asking)?);
        Ok(Box::new(|conn, opened, from| {
            let OpenRequest { hello, peer, session, whole, opening } = opened;
            let request = SessionRequest { hello, grant, peer, session, whole, opening };
            Box::pin(service.serve(conn, Entry::Open(request), from))
        }))
    }
}

/// The services of a host.
#[derive(Default)]
pub struct Services {
    pub(super) all: Vec<Box<dyn Hosted>>,
    /// Those in the background, by name.
    efforts: BTreeMap<String, Effort>,
}

impl Services {
    /// None yet.
    #[must_use]
    pub fn new() -> Services {
        Services::default()
    }

    /// One more, with a name of its own.
    #[must_use]
    pub fn with<S: Service>(mut self, service: &Arc<S>) -> Services {
        self.all.push(Box::new(Arc::clone(service)));
        self
    }

    /// Has the service of that name be in the background, if `effort` says so: what it sends and
    /// what is sent to it, over connections of its peers that understand; to others what it sends.
    #[must_use]
    pub fn with_effort(mut self, name: &str, effort: Effort) -> Services {
        self.efforts.insert(name.into(), effort);
        self
    }

    /// That of what the service of that name sends.
    pub(super) fn effort(&self, name: &str) -> Effort {
        self.efforts.get(name).copied().unwrap_or_default()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.all.iter().map(|service| service.name())
    }

    pub(super) fn named(&self, name: &str) -> Option<&dyn Hosted> {
        self.all.iter().find(|service| service.name() == name).map(AsRef::as_ref)
    }

    /// Whether connections of the service of that name are small.
    pub(super) fn has_small_connections(&self, name: &str) -> bool {
        self.named(name).is_some_and(Hosted::has_small_connections)
    }

    /// Whether those of any service are.
    pub(super) fn any_has_small_connections(&self) -> bool {
        self.all.iter().any(|service| service.has_small_connections())
    }

    /// The place of the service that takes connections beginning with this octet bare.
    pub(super) fn taking_bare(&self, first: u8) -> Option<usize> {
        self.all.iter().position(|service| service.takes_bare(first))
    }

    /// Whether any service takes connections bare.
    pub(super) fn any_takes_bare(&self) -> bool {
        (0..=u8::MAX).any(|first| self.taking_bare(first).is_some())
    }

    /// What the host does, as a clause.
    pub(super) fn do_what(&self) -> String {
        let all: Vec<&str> = self.all.iter().map(|service| service.does()).collect();
        match all.split_last() {
            None => "does nothing".into(),
            Some((last, [])) => (*last).into(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        }
    }
}
