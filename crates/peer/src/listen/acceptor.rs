//! Accepts connections, authenticates them, and hands them to a service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::Frame;
use wire::frame::{AbortCode, Hello, SessionId, VERSION, Welcome};

use super::admission::{First, Unauthenticated, greet, refuse};
use super::by_peer::PeerPlace;
use super::connections::{Connections, no_place};
use super::opening::{OpeningPlace, OpeningSessions};
use super::refusals::Refusals;
use super::waiting::{Waited, Waiting};
use crate::carrier::{Listener, Stream};
use crate::conn::{Conn, ConnError};
use crate::tls::ServerTls;
use crate::{AuthorizedPeers, Error, Fingerprint, Identity, Peer, random};

/// A service for peers that dial this host.
pub trait Service: Send + Sync + 'static {
    /// An open session.
    type Session: Send;
    /// The permission of a peer that opens a session.
    type Grant: Send;

    /// The session of that id, if it is one of `peer`.
    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Self::Session>;

    /// The message to a peer when [`Service::find`] has no session for it.
    fn unknown_session(&self) -> String {
        "there is no such session here".into()
    }

    /// The permission of the holder of the key `peer` to open a session.
    ///
    /// # Errors
    /// The reason of a refusal, which is sent to the peer.
    fn authorize(&self, hello: &Hello, peer: Fingerprint) -> Result<Self::Grant, String>;

    /// The peers that are admitted by their keys. A peer whose entry changes loses its connections,
    /// and [`Service::find`] must find none of its sessions. The default is for a service that
    /// admits by other means.
    fn authorized(&self) -> AuthorizedPeers {
        AuthorizedPeers::default()
    }

    /// Reports that a connection was refused, and the number of earlier refusals that were not
    /// reported: strangers may come in any number. The default reports nothing.
    fn note_refused(&self, _from: SocketAddr, _reason: &str, _unreported: u64) {}

    /// Addresses at which the peer of `conn`, which is authorized, may reach this host; the default
    /// is for carriers without addresses.
    fn addresses(&self, _conn: &Conn) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Serves an authenticated connection to its end. The next flush sends a pending
    /// [`Frame::Joined`] to a connection that joins. The future is dropped with the [`Acceptor`].
    fn serve(
        self: Arc<Self>,
        conn: Conn,
        entry: Entry<Self>,
        from: SocketAddr,
    ) -> impl Future<Output = ()> + Send;
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
    /// Held until [`Service::find`] finds the session, or until it is clear that there will be
    /// none: connections that join wait for that.
    pub opening: OpeningPlace,
}

/// Accepts connections for a service until it is dropped, which ends every connection.
pub struct Acceptor<S> {
    shared: Arc<AcceptorState<S>>,
    _accepting: JoinSet<()>,
}

struct AcceptorState<S> {
    service: Arc<S>,
    tls: ServerTls,
    unauthenticated: Unauthenticated,
    connections: Connections,
    waiting: Waiting,
    opening: Arc<OpeningSessions>,
    refusals: Refusals,
    admitted: Admitted,
}

/// The keys of peers that were admitted, for carriers that give more to those. A key whose entry
/// among the authorized peers changes is a stranger's until it is admitted again.
#[derive(Clone, Debug)]
pub struct Admitted {
    authorized: AuthorizedPeers,
    /// Each with its entry when it was admitted.
    peers: Arc<watch::Sender<BTreeMap<Fingerprint, Option<Peer>>>>,
}

impl Admitted {
    /// Nobody yet; `authorized` are the peers that are admitted by their keys.
    #[must_use]
    pub fn new(authorized: AuthorizedPeers) -> Admitted {
        Admitted { authorized, peers: Arc::default() }
    }

    /// Waits until the holder of a key is admitted.
    pub async fn admitted(&self, peer: Fingerprint) {
        let mut peers = self.peers.subscribe();
        let is_there = |peers: &BTreeMap<_, _>| {
            peers.get(&peer).is_some_and(|entry| *entry == self.authorized.find(peer))
        };
        peers.wait_for(is_there).await.expect("this holds the sender");
    }

    /// Waits until the holder of a key, which was admitted, is so no longer.
    pub async fn removed(&self, peer: Fingerprint) {
        let entry = self.peers.borrow().get(&peer).cloned();
        if let Some(entry) = entry {
            self.authorized.changed(peer, entry.as_ref()).await;
        }
        self.peers.send_if_modified(|peers| peers.remove(&peer).is_some());
    }

    /// The holder of a key is admitted, by this entry or without one.
    fn insert(&self, peer: Fingerprint, entry: Option<Peer>) {
        self.peers.send_if_modified(|peers| {
            let is_new = peers.get(&peer) != Some(&entry);
            peers.insert(peer, entry);
            is_new
        });
    }
}

/// An authenticated connection.
struct Entered<S: Service> {
    conn: Conn,
    entry: Entry<S>,
    peer: Fingerprint,
    /// The entry of its peer among the authorized ones.
    known: Option<Peer>,
    place: PeerPlace,
}

/// The pause after accept(2) failed, most likely for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

impl<S: Service> Acceptor<S> {
    /// Accepts connections at all `listeners`; needs a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the host's key.
    pub fn start(
        service: Arc<S>,
        identity: &Identity,
        listeners: Vec<Box<dyn Listener>>,
    ) -> Result<Acceptor<S>, Error> {
        let admitted = Admitted::new(service.authorized());
        Acceptor::start_with(service, identity, listeners, admitted)
    }

    /// The same, with the place where admitted peers are written down.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the host's key.
    pub fn start_with(
        service: Arc<S>,
        identity: &Identity,
        listeners: Vec<Box<dyn Listener>>,
        admitted: Admitted,
    ) -> Result<Acceptor<S>, Error> {
        let shared = Arc::new(AcceptorState {
            service,
            tls: ServerTls::new(identity)?,
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
        Ok(Acceptor { shared, _accepting: accepting })
    }
}

impl<S> Drop for Acceptor<S> {
    fn drop(&mut self) {
        self.shared.unauthenticated.close();
    }
}

impl<S: Service> AcceptorState<S> {
    fn admit(self: &Arc<Self>, stream: Box<dyn Stream>, from: SocketAddr) {
        let shared = Arc::clone(self);
        tracing::debug!(%from, "connection accepted");
        self.unauthenticated.admit(from.ip(), |number| async move {
            let entering = shared.enter(stream, from);
            let Some(entered) = shared.unauthenticated.authenticated(number, entering).await else {
                return;
            };
            let Entered { conn, entry, peer, known, place } = entered;
            let authorized = shared.service.authorized();
            tokio::select! {
                () = shared.serve(conn, entry, from) => {}
                () = place.displaced.notified() => {
                    tracing::info!(%from, "closed for a connection of another peer");
                }
                () = authorized.changed(peer, known.as_ref()) => {
                    tracing::info!(%from, %peer, "its entry among the authorized peers changed");
                }
            }
        });
    }

    /// Serves an authorized connection, after its wait if it waits.
    async fn serve(&self, mut conn: Conn, entry: Entry<S>, from: SocketAddr) {
        let entry = match entry {
            Entry::Join(session) => Entry::Join(session),
            Entry::Open(request) => match self.wait(&mut conn, request).await {
                Ok(entry) => entry,
                Err(error) => {
                    tracing::debug!(%from, %error, "connection ended while it waited");
                    return;
                }
            },
        };
        Arc::clone(&self.service).serve(conn, entry, from).await;
    }

    /// The place of a connection of `peer` among all.
    async fn place(&self, conn: &mut Conn, peer: Fingerprint) -> Result<PeerPlace, ConnError> {
        match self.connections.enter(peer) {
            Some(place) => Ok(place),
            None => Err(refuse(conn, AbortCode::Crowded, no_place()).await),
        }
    }

    /// Waits until an authorized connection joins a session or opens one.
    async fn wait(
        &self,
        conn: &mut Conn,
        request: SessionRequest<S>,
    ) -> Result<Entry<S>, ConnError> {
        conn.flush_to_reader().await?;
        match self.waiting.wait(conn, request.peer).await? {
            Waited::Open => Ok(Entry::Open(request)),
            Waited::Join(id) => self.join(conn, id, request.peer).await.map(Entry::Join),
        }
    }

    /// The session of that id for a connection that joins it. Its peer may know of the session
    /// before this host has opened it.
    async fn join(
        &self,
        conn: &mut Conn,
        id: SessionId,
        peer: Fingerprint,
    ) -> Result<S::Session, ConnError> {
        let mut found = self.service.find(id, peer);
        if found.is_none() {
            self.opening.settled(id, peer).await;
            found = self.service.find(id, peer);
        }
        if let Some(session) = found {
            conn.push(&Frame::Joined);
            Ok(session)
        } else {
            Err(refuse(conn, AbortCode::NoSession, self.service.unknown_session()).await)
        }
    }

    /// Runs the handshake, reads the first frame, and checks the peer's permission. The addresses
    /// of this host are the answer to a hello: no stranger learns them.
    async fn enter(
        &self,
        stream: Box<dyn Stream>,
        from: SocketAddr,
    ) -> Result<Entered<S>, ConnError> {
        let (mut conn, peer, first) = greet(&self.tls, stream).await?;
        // Before it decides anything: a later change ends the connection.
        let known = self.service.authorized().find(peer);
        let (entry, place) = match first {
            First::Join(id) => {
                let session = self.join(&mut conn, id, peer).await?;
                let place = self.place(&mut conn, peer).await?;
                (Entry::Join(session), place)
            }
            First::Hello(hello) => match self.service.authorize(&hello, peer) {
                Ok(grant) => {
                    let place = self.place(&mut conn, peer).await?;
                    let session = random().map_err(std::io::Error::other)?;
                    let addresses = self.service.addresses(&conn);
                    conn.push(&Frame::Welcome(Welcome { version: VERSION, session, addresses }));
                    let opening = self.opening.begin(session, peer);
                    let request = SessionRequest { hello, grant, peer, session, opening };
                    (Entry::Open(request), place)
                }
                Err(reason) => {
                    tracing::info!(%peer, reason, "refused");
                    if let Some(unreported) = self.refusals.note(Instant::now()) {
                        self.service.note_refused(from, &reason, unreported);
                    }
                    return Err(refuse(&mut conn, AbortCode::Refused, reason).await);
                }
            },
        };
        self.admitted.insert(peer, known.clone());
        Ok(Entered { conn, entry, peer, known, place })
    }
}
