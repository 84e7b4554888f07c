//! A connection as a program uses it; its streams; what program and driver share.

pub(crate) mod cell;
pub(crate) mod inbox;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, broadcast, mpsc, oneshot, watch};
use units::{Bytes, Rate};

pub use stream::{DROPPED, ReceiveHalf, SendHalf, Stream};

use cell::StreamCell;
use inbox::{Command, Inbox, Key};

use crate::memory::PeerKey;
use crate::stats::{RouteEvent, Stats};
use crate::{
    Class, ConnectError, ConnectionError, DatagramError, Effort, PathStanding, Route, RouteId,
};

/// Events of routes that are kept for a receiver that is late.
pub(crate) const EVENTS: usize = 64;
/// Datagrams that arrived and wait to be received; more are dropped.
pub(crate) const DATAGRAMS: usize = 1_024;
/// Datagrams that wait to be sent.
const MOST_WAITING: usize = 256;

/// A striped connection: streams and datagrams over all of its routes together.
///
/// Copies are the same connection. When the last one and all streams are dropped, the connection is
/// closed with the code 0: wait for [`SendHalf::delivered`](crate::SendHalf::delivered) before, if
/// the peer has to have everything.
///
/// Beside [streams](Stream) it carries datagrams:
///
/// ```
/// use std::net::Ipv4Addr;
/// use std::sync::Arc;
///
/// use secure::testing::{Key, client, server};
/// use stripe::{Endpoint, Listening, Options, Route};
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
///     let (dialed, accepted) = (dialed?, accepted.expect("it listens"));
///
///     assert!(dialed.max_datagram() > 1_000);
///     dialed.send_datagram(b"once, or never".to_vec())?;
///     assert_eq!(accepted.receive_datagram().await?, b"once, or never");
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    key: Key,
    inbox: Arc<Inbox>,
    peer_key: PeerKey,
    remote: SocketAddr,
    protocol: Option<Vec<u8>>,
    effort: watch::Receiver<Effort>,
    ended: watch::Receiver<Option<ConnectionError>>,
    incoming: Arc<Mutex<mpsc::UnboundedReceiver<Arc<StreamCell>>>>,
    datagrams: Mutex<mpsc::Receiver<Vec<u8>>>,
    events: broadcast::Sender<RouteEvent>,
    outgoing: Arc<DatagramCount>,
    recent: Arc<Recent>,
    streams: watch::Receiver<usize>,
    parted: watch::Receiver<bool>,
    standings: watch::Receiver<Vec<PathStanding>>,
}

/// The datagrams that the program has handed over, as it and the driver count them.
#[derive(Debug, Default)]
pub(crate) struct DatagramCount {
    pub(crate) waiting: AtomicUsize,
    pub(crate) most: AtomicUsize,
}

/// The counters as the driver last wrote them down.
pub(crate) type Recent = std::sync::Mutex<Arc<Stats>>;

/// What the handshake came to.
pub(crate) struct Agreed {
    pub(crate) effort: Effort,
    /// As [`Connection::protocol`].
    pub(crate) protocol: Option<Vec<u8>>,
}

/// The driver's ends of a connection.
pub(crate) struct DriverEnds {
    pub(crate) ended: watch::Sender<Option<ConnectionError>>,
    pub(crate) incoming: mpsc::UnboundedSender<Arc<StreamCell>>,
    pub(crate) datagrams: mpsc::Sender<Vec<u8>>,
    pub(crate) events: broadcast::Sender<RouteEvent>,
    pub(crate) outgoing: Arc<DatagramCount>,
    pub(crate) recent: Arc<Recent>,
    /// How many streams are in use.
    pub(crate) streams: watch::Sender<usize>,
    /// Whether the peer knows of the end.
    pub(crate) parted: watch::Sender<bool>,
    /// How it stands to others.
    pub(crate) effort: watch::Sender<Effort>,
    /// What the paths of the side that dials are for.
    pub(crate) standings: watch::Sender<Vec<PathStanding>>,
}

impl Connection {
    pub(crate) fn new(
        key: Key,
        inbox: Arc<Inbox>,
        peer_key: PeerKey,
        remote: SocketAddr,
        agreed: Agreed,
    ) -> (Connection, DriverEnds) {
        let (ended, is_ended) = watch::channel(None);
        let (streams, count) = watch::channel(0);
        let (parted, has_parted) = watch::channel(false);
        let Agreed { effort, protocol } = agreed;
        let (effort, of_all) = watch::channel(effort);
        let (standings, told) = watch::channel(Vec::new());
        let (incoming, arrived) = mpsc::unbounded_channel();
        let (datagrams, received) = mpsc::channel(DATAGRAMS);
        let (events, _) = broadcast::channel(EVENTS);
        let outgoing = Arc::<DatagramCount>::default();
        let recent = Arc::<Recent>::default();
        let inner = Inner {
            key,
            inbox,
            peer_key,
            remote,
            protocol,
            effort: of_all,
            ended: is_ended,
            incoming: Arc::new(Mutex::new(arrived)),
            datagrams: Mutex::new(received),
            events: events.clone(),
            outgoing: Arc::clone(&outgoing),
            recent: Arc::clone(&recent),
            streams: count,
            parted: has_parted,
            standings: told,
        };
        let ends = DriverEnds {
            ended,
            incoming,
            datagrams,
            events,
            outgoing,
            recent,
            streams,
            parted,
            effort,
            standings,
        };
        (Connection(Arc::new(inner)), ends)
    }

    /// The key that the peer proved to have: a public key as TLS shows it (RFC 7250).
    #[must_use]
    pub fn peer_key(&self) -> &[u8] {
        &self.0.peer_key
    }

    /// Whether it is in the background: one end said so in the handshake, or this one since.
    #[must_use]
    pub fn effort(&self) -> Effort {
        *self.0.effort.borrow()
    }

    /// Has what is sent from here be in the background from now on, if `effort` says so; there is
    /// no way back. Unlike what [`Options`](crate::Options) say it is not told to the peer,
    /// which may want to know.
    pub fn set_effort(&self, effort: Effort) {
        self.push(Command::SetEffort { key: self.0.key, effort });
    }

    /// The protocol of both ends, of those that either named in its configuration of TLS (ALPN, RFC
    /// 7301).
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.0.protocol.as_deref()
    }

    /// Its number among the connections of its endpoint.
    #[must_use]
    pub fn key(&self) -> Key {
        self.0.key
    }

    /// Has the endpoint's [guest](crate::Guest) exchange raw datagrams with the peer. Without it
    /// raw datagrams of the peer are ignored.
    pub fn entrust(&self) {
        self.push(Command::Entrust { key: self.0.key });
    }

    /// The peer's address at the beginning.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Opens a stream, once the peer allows a further one. It is asked for when this is called: the
    /// peer gets streams in the order of calls, whichever task runs first.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn open_stream(
        &self,
    ) -> impl Future<Output = Result<Stream, ConnectionError>> + Send + use<> {
        let (reply, opened) = oneshot::channel();
        self.push(Command::OpenStream { key: self.0.key, reply });
        let connection = self.clone();
        async move {
            match opened.await {
                Ok(opened) => opened.map(|untaken| Stream::new(untaken.take(), connection)),
                Err(_) => Err(connection.reason()),
            }
        }
    }

    /// The next stream that the peer opened. One task at a time waits. If none does when this is
    /// called, the next stream is the caller's, even if another task waits sooner.
    ///
    /// # Errors
    /// If the connection has ended, and all streams were taken.
    pub fn accept_stream(
        &self,
    ) -> impl Future<Output = Result<Stream, ConnectionError>> + Send + use<> {
        let first = Arc::clone(&self.0.incoming).try_lock_owned();
        let connection = self.clone();
        async move {
            let mut incoming = match first {
                Ok(incoming) => incoming,
                Err(_) => Arc::clone(&connection.0.incoming).lock_owned().await,
            };
            let cell = incoming.recv().await;
            drop(incoming);
            cell.map(|cell| Stream::new(cell, connection.clone()))
                .ok_or_else(|| connection.reason())
        }
    }

    /// Hands over an unreliable datagram, which leaves as the windows allow.
    ///
    /// # Errors
    /// [`DatagramError`], if it is too large, too many wait, or the connection has ended.
    pub fn send_datagram(&self, bytes: Vec<u8>) -> Result<(), DatagramError> {
        if self.0.ended.borrow().is_some() {
            return Err(DatagramError::Ended);
        }
        let most = self.max_datagram();
        if bytes.len() > most {
            return Err(DatagramError::TooLarge { size: bytes.len(), most });
        }
        let waiting = &self.0.outgoing.waiting;
        let room = |waiting: usize| (waiting < MOST_WAITING).then_some(waiting + 1);
        if waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            return Err(DatagramError::Full);
        }
        self.push(Command::SendDatagram { key: self.0.key, bytes });
        Ok(())
    }

    /// The largest datagram that every open route carries.
    #[must_use]
    pub fn max_datagram(&self) -> usize {
        self.0.outgoing.most.load(Ordering::Relaxed)
    }

    /// The next datagram of the peer. One task at a time waits.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn receive_datagram(&self) -> Result<Vec<u8>, ConnectionError> {
        let datagram = self.0.datagrams.lock().await.recv().await;
        datagram.ok_or_else(|| self.reason())
    }

    /// Events of routes from here on. A receiver that is late misses the oldest.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<RouteEvent> {
        self.0.events.subscribe()
    }

    /// Adds a route, on the side that dialed, and returns its number. It carries data once the peer
    /// has answered over it ([`RouteChange::Opened`](crate::RouteChange::Opened)).
    ///
    /// # Errors
    /// [`ConnectError`], if its socket cannot be opened, or the connection has ended.
    pub async fn add_route(&self, route: Route) -> Result<RouteId, ConnectError> {
        let (reply, added) = oneshot::channel();
        self.push(Command::AddRoute { key: self.0.key, route, reply });
        added.await.unwrap_or(Err(ConnectError::Ended))
    }

    /// Removes a route: its data goes elsewhere, and the peer is told.
    pub fn remove_route(&self, route: RouteId) {
        self.push(Command::RemoveRoute { key: self.0.key, route });
    }

    /// Sets whether a route carries data only while no usual one does.
    pub fn set_class(&self, route: RouteId, class: Class) {
        self.push(Command::SetClass { key: self.0.key, route, class });
    }

    /// Limits what is sent over a route; `None`: not at all.
    pub fn set_rate(&self, route: RouteId, rate: Option<Rate>) {
        self.push(Command::SetRate { key: self.0.key, route, rate });
    }

    /// What the paths are for, as this side has it, which dialed: the other side is to be told, to
    /// [follow](Connection::follow_standings) it.
    #[must_use]
    pub fn standings(&self) -> watch::Receiver<Vec<PathStanding>> {
        self.0.standings.clone()
    }

    /// Has what is sent from here, the side that listens, keep to what the paths are for: these,
    /// and others as usual. Paths that come later keep to it too.
    pub fn follow_standings(&self, standings: Vec<PathStanding>) {
        self.push(Command::FollowStandings { key: self.0.key, standings });
    }

    /// The peer is welcome: it may be given receive buffers of up to this size, as the
    /// [memory](crate::Rations::memory) of the host allows. Before, at the side that listens, it
    /// has a place and the streams of a [stranger](crate::Rations::strangers), and its buffers stay
    /// below twice [`Options::buffer_before_admission`](crate::Options::buffer_before_admission).
    pub fn admit(&self, most: Bytes) {
        self.push(Command::SetReceiveBuffer { key: self.0.key, most });
    }

    /// Asks the peer for a sign of life over every path, and waits until anything arrives from it.
    ///
    /// # Errors
    /// If the connection ends before.
    pub async fn sign_of_life(&self) -> Result<(), ConnectionError> {
        let (heard, answer) = oneshot::channel();
        self.push(Command::Ask { key: self.0.key, heard });
        answer.await.map_err(|_| self.reason())
    }

    /// Updates the keys now, which happens by itself in time.
    pub fn update_keys(&self) {
        self.push(Command::UpdateKeys { key: self.0.key });
    }

    /// Counters, as of now. Those of a connection that has ended are empty.
    pub async fn stats(&self) -> Stats {
        let (reply, stats) = oneshot::channel();
        self.push(Command::Stats { key: self.0.key, reply });
        stats.await.unwrap_or_default()
    }

    /// Counters that are up to a tenth of a second old, at once; after the end of the connection
    /// its last ones.
    ///
    /// # Panics
    /// If the driver did.
    #[must_use]
    pub fn recent_stats(&self) -> Arc<Stats> {
        Arc::clone(&self.0.recent.lock().expect("no panic while held"))
    }

    /// Has [`Connection::recent_stats`] be as of now.
    ///
    /// # Panics
    /// If the driver did.
    pub async fn refresh_stats(&self) {
        let (reply, stats) = oneshot::channel();
        self.push(Command::Stats { key: self.0.key, reply });
        // A connection that has ended keeps its last ones.
        if let Ok(stats) = stats.await {
            *self.0.recent.lock().expect("no panic while held") = Arc::new(stats);
        }
    }

    /// Waits until no stream that was opened here is in use: each of them has ended in both
    /// directions, and what was written into it was delivered. Those that the peer opened are its
    /// own affair: it may keep one for as long as the connection lasts.
    pub async fn drained(&self) {
        let mut streams = self.0.streams.clone();
        // An error: the connection has ended.
        let _ = streams.wait_for(|count| *count == 0).await;
    }

    /// Closes the connection with a code for the peer. What is not delivered is lost.
    pub fn close(&self, code: u32) {
        self.push(Command::Close { key: self.0.key, code });
    }

    /// Waits until the connection has ended, and says why.
    pub async fn ended(&self) -> ConnectionError {
        let mut ended = self.0.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(ConnectionError::Ended),
            Err(_) => ConnectionError::Ended,
        }
    }

    /// Waits until the endpoint has forgotten the connection, some time after its end: its counters
    /// are written down then.
    pub async fn forgotten(&self) {
        let mut streams = self.0.streams.clone();
        // The other end of the channel goes with the state of the connection.
        while streams.changed().await.is_ok() {}
    }

    /// Waits until both ends know that the connection has ended, a round trip after it was closed;
    /// or until the peer could not be told, three probe timeouts after.
    pub async fn parted(&self) {
        let mut parted = self.0.parted.clone();
        // An error: the state of the connection is gone.
        let _ = parted.wait_for(|has_parted| *has_parted).await;
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.ended.borrow().is_some()
    }

    fn reason(&self) -> ConnectionError {
        self.0.ended.borrow().clone().unwrap_or(ConnectionError::Ended)
    }

    fn push(&self, command: Command) {
        self.0.inbox.push(command);
    }
}

/// Copies are the same connection.
impl PartialEq for Connection {
    fn eq(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.inbox.push(Command::Close { key: self.key, code: 0 });
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("remote", &self.0.remote).finish_non_exhaustive()
    }
}
