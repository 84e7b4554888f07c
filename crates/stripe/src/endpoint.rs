//! The endpoint: a thread that drives connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::{ClientConfig, ServerConfig};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use crate::clock::StampedClock;
use crate::connection::Connection;
use crate::connection::inbox::{Command, Connect, Inbox};
use crate::driver::{Driver, Listener, Remaining};
use crate::guest::Guest;
use crate::passing::Passing;
use crate::preamble::ListeningLead;
use crate::socket::UdpSocket;
use crate::{ConnectError, EndpointError, Options, Rations, Route};

/// Where and how much an endpoint listens.
///
/// ```
/// use stripe::{Listening, Rations};
///
/// let rations = Rations { admitted: 16, ..Rations::default() };
/// let listening = Listening { rations, ..Listening::everywhere(7_707) };
/// assert!(listening.addresses[0].ip().is_unspecified());
/// ```
#[derive(Clone)]
pub struct Listening {
    /// The addresses.
    pub addresses: Vec<SocketAddr>,
    /// Whether a socket of IPv6 takes IPv4 too.
    pub both_families: bool,
    /// The connections at a time, and their memory.
    pub rations: Rations,
    /// What strangers may cost.
    pub limits: secure::Limits,
    /// The secret of answers without state; `None`: a new one. A host that keeps it and listens at
    /// the same addresses can tell peers of connections before its restart that these are gone.
    pub secret: Option<[u8; 32]>,
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Listening {
    /// At one address.
    #[must_use]
    pub fn at(address: SocketAddr) -> Listening {
        Listening {
            addresses: vec![address],
            both_families: false,
            rations: Rations::default(),
            limits: secure::Limits::default(),
            secret: None,
        }
    }

    /// At a port of all addresses: of both families where the system has both.
    #[must_use]
    pub fn everywhere(port: u16) -> Listening {
        let both = UdpSocket::listening((Ipv6Addr::UNSPECIFIED, port).into(), true);
        let (any, both_families) = match both {
            // Where the port is taken, the caller has to hear of it.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                (Ipv4Addr::UNSPECIFIED.into(), false)
            }
            _ => (Ipv6Addr::UNSPECIFIED.into(), true),
        };
        Listening { both_families, ..Listening::at(SocketAddr::new(any, port)) }
    }
}

/// A thread that drives connections: their sockets, timers, and state machines.
///
/// Connections live on when the endpoint is dropped; it only accepts no more.
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
///     // The keys of both sides are proven. Whether they are welcome is the program's decision.
///     assert_eq!(dialed?.peer_key(), far.public().as_ref());
///     assert_eq!(accepted.expect("it listens").peer_key(), near.public().as_ref());
///     // Both connections were dropped, which closes them: the peers are told.
///     endpoint.wait_idle().await;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Endpoint {
    inbox: Arc<Inbox>,
    addresses: Vec<SocketAddr>,
    accepted: Mutex<mpsc::Receiver<Connection>>,
    connections: watch::Receiver<Remaining>,
    failed: Arc<AtomicU64>,
}

impl Endpoint {
    /// An endpoint that only dials.
    ///
    /// # Errors
    /// [`EndpointError::System`], if the system has no descriptors or threads left.
    pub fn new() -> Result<Endpoint, EndpointError> {
        Endpoint::start(Endpoint::dialing(StampedClock::new())?)
    }

    /// The same, and what its thread does.
    pub(crate) fn dialing(clock: StampedClock) -> Result<(Endpoint, Driver), EndpointError> {
        let (_, accepted) = mpsc::channel(1);
        Endpoint::with_driver(Vec::new(), accepted, None, clock)
    }

    /// An endpoint that listens, and dials too. `tls` has to demand the peer's key; whether the key
    /// is welcome is the caller's decision, for each accepted connection.
    ///
    /// # Errors
    /// [`EndpointError`], if an address cannot be listened at, or the configuration is not usable.
    pub fn listen(
        listening: &Listening,
        tls: &Arc<ServerConfig>,
        options: Options,
    ) -> Result<Endpoint, EndpointError> {
        Endpoint::start(Endpoint::listening(listening, tls, options, StampedClock::new())?)
    }

    /// The same, and what its thread does.
    pub(crate) fn listening(
        listening: &Listening,
        tls: &Arc<ServerConfig>,
        options: Options,
        clock: StampedClock,
    ) -> Result<(Endpoint, Driver), EndpointError> {
        let mut sockets = Vec::new();
        for address in &listening.addresses {
            let socket = UdpSocket::listening(*address, listening.both_families);
            let failed = |source| EndpointError::Listen { address: *address, source };
            sockets.push(socket.map_err(failed)?);
        }
        let addresses = sockets.iter().map(UdpSocket::local).collect();
        let Rations { strangers, admitted, .. } = listening.rations;
        let (accept, accepted) = mpsc::channel(strangers + admitted);
        let listener = Listener::new(listening, tls, options, sockets, accept)?;
        Endpoint::with_driver(addresses, accepted, Some(listener), clock)
    }

    fn with_driver(
        addresses: Vec<SocketAddr>,
        accepted: mpsc::Receiver<Connection>,
        listener: Option<Listener>,
        clock: StampedClock,
    ) -> Result<(Endpoint, Driver), EndpointError> {
        let inbox = Arc::new(Inbox::new().map_err(system("open a descriptor"))?);
        let (count, connections) = watch::channel(Remaining::default());
        let failed = listener.as_ref().map(Listener::failed).unwrap_or_default();
        let driver = Driver::new(Arc::clone(&inbox), listener, clock, count)
            .map_err(system("wait for descriptors"))?;
        let accepted = Mutex::new(accepted);
        Ok((Endpoint { inbox, addresses, accepted, connections, failed }, driver))
    }

    fn start((endpoint, driver): (Endpoint, Driver)) -> Result<Endpoint, EndpointError> {
        std::thread::Builder::new()
            .name("stripe".into())
            .spawn(move || driver.run())
            .map_err(system("start a thread"))?;
        Ok(endpoint)
    }

    /// Connects to the peer that `tls` verifies, over all of these routes. The handshake takes the
    /// first one that answers; the others are opened behind it.
    ///
    /// # Errors
    /// [`ConnectError`], if no route leads to the peer, or one side refuses the other's key.
    pub async fn connect(
        &self,
        routes: Vec<Route>,
        tls: &Arc<ClientConfig>,
        options: Options,
    ) -> Result<Connection, ConnectError> {
        let (reply, connected) = oneshot::channel();
        let tls = Arc::clone(tls);
        self.inbox.push(Command::Connect(Box::new(Connect { routes, tls, options, reply })));
        connected.await.unwrap_or(Err(ConnectError::Ended))
    }

    /// The next connection of a peer. One task at a time waits. `None`: the endpoint has ended, or
    /// does not listen.
    pub async fn accept(&self) -> Option<Connection> {
        self.accepted.lock().await.recv().await
    }

    /// Takes a guest in, which the endpoint's thread serves until the endpoint is dropped, or
    /// another guest takes its place.
    ///
    /// # Errors
    /// The system's, if the guest's descriptor cannot be waited for.
    pub async fn attach(&self, guest: Box<dyn Guest>) -> io::Result<()> {
        let (reply, attached) = oneshot::channel();
        self.inbox.push(Command::Attach { guest, reply });
        attached.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Looks again at what the guest has to send and at its deadline, after changes that did not
    /// come from this thread.
    pub fn wake_guest(&self) {
        self.inbox.push(Command::WakeGuest);
    }

    /// Has datagrams that are none of the endpoint's passed on: `make` gets the listening sockets,
    /// to send from.
    ///
    /// # Errors
    /// Those of `make`; the system's, if it has no descriptors left; [`io::ErrorKind::BrokenPipe`]
    /// if the endpoint does not listen.
    pub async fn pass_on(
        &self,
        make: impl FnOnce(Vec<UdpSocket>) -> io::Result<Box<dyn Passing>> + Send + 'static,
    ) -> io::Result<()> {
        let (reply, done) = oneshot::channel();
        self.inbox.push(Command::PassOn { make: Box::new(make), reply });
        done.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Peers reach the listening sockets by way of these relays from now on, and of no others.
    pub fn listen_over(&self, leads: Vec<ListeningLead>) {
        self.inbox.push(Command::ListenOver { leads });
    }

    /// Sends a datagram that is none of a connection's from a listening socket, from this local
    /// address if there is one.
    pub fn send_listening(&self, to: SocketAddr, source: Option<IpAddr>, bytes: Vec<u8>) {
        self.inbox.push(Command::SendListening { to, source, bytes });
    }

    /// The addresses of the listening sockets.
    #[must_use]
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The number of handshakes of peers that have failed.
    #[must_use]
    pub fn failed_handshakes(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Waits until all connections have ended and their peers were told, some round trips after
    /// they were closed. A program that exits before leaves its peers to their timeouts.
    pub async fn wait_idle(&self) {
        let mut connections = self.connections.clone();
        // An error: the thread has ended, and the connections with it.
        let _ = connections.wait_for(|remaining| remaining.all == 0).await;
    }

    /// Waits until the peers of all connections know that these have ended: a round trip after they
    /// were closed, where [`Endpoint::wait_idle`] waits for packets that are late.
    pub async fn wait_parted(&self) {
        let mut connections = self.connections.clone();
        let _ = connections.wait_for(|remaining| !remaining.has_peers).await;
    }
}

/// What the system refused, as an endpoint's error.
fn system(action: &'static str) -> impl Fn(io::Error) -> EndpointError {
    move |source| EndpointError::System { action, source }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.inbox.push(Command::End);
    }
}
