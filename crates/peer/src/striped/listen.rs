//! The side that listens for striped connections.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use net::holder::{Holder, Transport};
use net::interfaces::own_addresses;
use net::socket::unmapped;
use stripe::{
    Connection, ConnectionError, Endpoint, EndpointError, Listening, Memory, ReceiveHalf, Stream,
};
use tokio::task::AbortHandle;
use units::Bytes;
use wire::asked::Asked;
use wire::session::MAX_ADDRESSES;

use super::announcement::{self, Announcing};
use super::awaiting::Awaiting;
use super::{punching, standings};
use crate::listen::announced;
use crate::listen::own::OwnAddresses;
use crate::tls::ServerTls;
use crate::{Error, Fingerprint, ListenOptions, WaitingRelay};

/// The receive buffer of an admitted peer, at most: 10 Gbit/s over 100 ms.
pub(super) const RECEIVE_BUFFER: Bytes = Bytes::mib(128);

/// Accepts striped connections at UDP ports.
#[derive(Debug)]
pub struct UdpListener {
    endpoint: Arc<Endpoint>,
    memory: Memory,
    /// The addresses that the caller named; none: all.
    named: Vec<SocketAddr>,
    own: OwnAddresses,
    /// Relays at which it waits.
    awaiting: Option<Awaiting>,
}

impl UdpListener {
    /// Listens at the addresses of `options`, or at its port of all addresses; needs a Tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error::System`], with the address that the kernel refused and, if it is taken, by whom.
    pub fn bind(options: &ListenOptions, stripe: stripe::Options) -> Result<UdpListener, Error> {
        let tls = ServerTls::new(&options.identity)?;
        let mut listening = Listening::everywhere(options.port);
        if !options.addresses.is_empty() {
            listening.addresses.clone_from(&options.addresses);
            listening.both_families = false;
        }
        listening.secret = Some(options.identity.udp_secret());
        let mut stripe = stripe::Options { qlog: options.qlog.clone(), ..stripe };
        stripe.config.effort = options.effort;
        let endpoint = Endpoint::listen(&listening, tls.config(), stripe).map_err(system)?;
        let (endpoint, named) = (Arc::new(endpoint), options.addresses.clone());
        let (memory, own) = (listening.rations.memory, OwnAddresses::follow());
        Ok(UdpListener { endpoint, memory, named, own, awaiting: None })
    }

    /// The same, which is also reached over these relays, where its host waits.
    pub(crate) fn waiting_at(self, relays: Vec<WaitingRelay>) -> UdpListener {
        if relays.is_empty() {
            return self;
        }
        let awaiting = Awaiting::begin(&self.endpoint, relays, &self.named, &self.own);
        UdpListener { awaiting: Some(awaiting), ..self }
    }

    /// The next connection, and the key that its peer has proven. It may be anybody's: the caller
    /// admits it or closes it, and until then it has little.
    pub async fn accept(&self) -> Option<(Connection, Fingerprint)> {
        let connection = self.endpoint.accept().await?;
        let peer = Fingerprint::of_spki(connection.peer_key());
        Some((connection, peer))
    }

    /// What admits peers, for a task of its own.
    #[must_use]
    pub fn admission(&self) -> Admission {
        let port = self.endpoint.local_addresses().first().map_or(0, SocketAddr::port);
        let ways = self.awaiting.clone().map(|awaiting| (awaiting, Arc::downgrade(&self.endpoint)));
        Admission { port, named: self.named.clone(), own: self.own.clone(), ways }
    }

    /// The addresses of this host.
    pub(crate) fn own(&self) -> OwnAddresses {
        self.own.clone()
    }

    /// What waits for the end of all connections.
    #[must_use]
    pub fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.endpoint)
    }

    /// The memory of all its connections.
    pub(crate) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// The addresses at which peers of other hosts reach it.
    #[must_use]
    pub fn reachable(&self) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for bound in self.endpoint.local_addresses() {
            if !bound.ip().is_unspecified() {
                addresses.push(*bound);
                continue;
            }
            let own = own_addresses().into_iter().filter(|ip| bound.is_ipv6() || ip.is_ipv4());
            addresses.extend(own.map(|ip| SocketAddr::new(ip, bound.port())));
        }
        addresses
    }

    /// The addresses of the listening sockets.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.endpoint.local_addresses().to_vec()
    }
}

/// Tells a peer the addresses of this host until it is dropped. A connection lasts as long as
/// anybody has it, and so would a host that is closed.
#[must_use]
pub struct Announcement(AbortHandle);

impl Drop for Announcement {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Admits peers.
#[derive(Clone, Debug)]
pub struct Admission {
    port: u16,
    named: Vec<SocketAddr>,
    own: OwnAddresses,
    /// What relays know of the endpoint, which opens ways for those that it has met.
    ways: Option<(Awaiting, Weak<Endpoint>)>,
}

impl Admission {
    /// Admits the peer of a connection: it may fill buffers, and learns the addresses of this host
    /// as long as the result lives. `first` is the first stream that was asked for at this side, as
    /// which the peer knows it: it is asked for before anything is read, which may open others.
    pub fn admit(
        &self,
        connection: &Connection,
        first: impl Future<Output = Result<Stream, ConnectionError>> + Send + 'static,
    ) -> Announcement {
        connection.admit(RECEIVE_BUFFER);
        let (admission, connection) = (self.clone(), connection.clone());
        let announcing = tokio::spawn(async move {
            tokio::select! {
                // A peer that does not take it is gone, or wants no more addresses.
                told = admission.announce(&connection, first) => if let Err(error) = told {
                    tracing::debug!(%error, "no announcement");
                },
                _ = connection.ended() => {}
            }
        });
        Announcement(announcing.abort_handle())
    }

    /// Does what the side that dials asks for, for ever.
    async fn serve_asked(&self, connection: &Connection, asking: ReceiveHalf) {
        let mut ways = self
            .ways
            .as_ref()
            .map(|(awaiting, endpoint)| (awaiting, punching::Ways::new(endpoint.clone())));
        let take = |asked| match (asked, &mut ways) {
            (Asked::Standings(of_paths), _) => standings::follow(connection, &of_paths),
            (Asked::Punches(wish), Some((awaiting, ways))) => ways.open(&wish, &awaiting.sources()),
            (Asked::Punches(_), None) => {}
        };
        if let Err(error) = announcement::read_asked(asking, take).await {
            tracing::debug!(%error, "a peer says nothing more of its paths");
        }
        std::future::pending::<()>().await;
    }

    /// Tells the peer of a connection the addresses of this host, and again when they change.
    async fn announce(
        &self,
        connection: &Connection,
        first: impl Future<Output = Result<Stream, ConnectionError>>,
    ) -> io::Result<()> {
        // The address that the peer used is among them, unless it is translated on its way.
        let used = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self.port);
        let peer = unmapped(connection.remote()).ip();
        let mut changes = self.own.changes();
        let (mut announcing, asking) = Announcing::new(first.await.map_err(io::Error::other)?);
        let mut ways = self.ways.clone();
        let serving = self.serve_asked(connection, asking);
        tokio::pin!(serving);
        loop {
            let mut addresses = announced(used, Some(peer), &self.named, &own_addresses());
            addresses.retain(|address| !address.ip().is_unspecified());
            if let Some((awaiting, _)) = &mut ways {
                // What a relay saw from outside comes first: there, the others lead to other hosts.
                let mut seen = awaiting.seen();
                seen.retain(|address| !addresses.contains(address));
                addresses.splice(0..0, seen);
                addresses.truncate(MAX_ADDRESSES);
            }
            announcing.tell(addresses).await?;
            let seen = async {
                match &mut ways {
                    Some((awaiting, _)) => awaiting.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                is_open = changes.changed() => if is_open.is_err() {
                    // The host is closed.
                    return Ok(());
                },
                () = seen => {}
                () = &mut serving => {}
            }
        }
    }
}

/// The error of an endpoint, as one of this host.
pub(super) fn system(error: EndpointError) -> Error {
    let source = match error {
        EndpointError::Listen { address, source } => {
            let source = Holder::explain(Transport::Udp, address, source);
            return Error::System { action: format!("listen on {address} (UDP)"), source };
        }
        EndpointError::System { action, source } => {
            return Error::System { action: action.into(), source };
        }
        error @ EndpointError::Settings(_) => io::Error::other(error),
    };
    Error::System { action: "set up TLS".into(), source }
}
