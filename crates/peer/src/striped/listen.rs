//! The side that listens for striped connections.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use net::holder::{Holder, Transport};
use net::interfaces::own_addresses;
use net::socket::unmapped;
use stripe::{Connection, Endpoint, EndpointError, Listening, Memory};
use units::Bytes;

use super::announcement::announce;
use crate::listen::announced;
use crate::tls::ServerTls;
use crate::{Error, Fingerprint, ListenOptions};

/// The receive buffer of an admitted peer, at most: 10 Gbit/s over 100 ms.
pub(super) const RECEIVE_BUFFER: Bytes = Bytes::mib(128);

/// Accepts striped connections at UDP ports.
#[derive(Debug)]
pub struct UdpListener {
    endpoint: Arc<Endpoint>,
    memory: Memory,
    /// The addresses that the caller named; none: all.
    named: Vec<SocketAddr>,
}

impl UdpListener {
    /// Listens at the addresses of `options`, or at its port of all addresses.
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
        let stripe = stripe::Options { qlog: options.qlog.clone(), ..stripe };
        let endpoint = Endpoint::listen(&listening, tls.config(), stripe).map_err(system)?;
        let (endpoint, named) = (Arc::new(endpoint), options.addresses.clone());
        Ok(UdpListener { endpoint, memory: listening.rations.memory, named })
    }

    /// The next connection, and the key that its peer has proven. It may be anybody's: the caller
    /// admits it or closes it, and until then it has little.
    pub async fn accept(&self) -> Option<(Connection, Fingerprint)> {
        let connection = self.endpoint.accept().await?;
        let peer = Fingerprint::of_spki(connection.peer_key());
        Some((connection, peer))
    }

    /// Admits the peer of a connection: it may fill buffers, and learns the addresses of this host.
    pub fn admit(&self, connection: &Connection) {
        self.admission().admit(connection);
    }

    /// What admits peers, for a task of its own.
    #[must_use]
    pub fn admission(&self) -> Admission {
        let port = self.endpoint.local_addresses().first().map_or(0, SocketAddr::port);
        Admission { port, named: self.named.clone() }
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

/// Admits peers.
#[derive(Clone, Debug)]
pub struct Admission {
    port: u16,
    named: Vec<SocketAddr>,
}

impl Admission {
    /// As [`UdpListener::admit`].
    pub fn admit(&self, connection: &Connection) {
        connection.admit(RECEIVE_BUFFER);
        // The address that the peer used is among them, unless it is translated on its way.
        let used = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self.port);
        let peer = unmapped(connection.remote()).ip();
        let mut addresses = announced(used, Some(peer), &self.named, &own_addresses());
        addresses.retain(|address| !address.ip().is_unspecified());
        let connection = connection.clone();
        tokio::spawn(async move {
            // A peer that does not take it is gone, or wants no more addresses.
            if let Err(error) = announce(&connection, addresses).await {
                tracing::debug!(%error, "no announcement");
            }
        });
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
        error @ EndpointError::Settings(_) => std::io::Error::other(error),
    };
    Error::System { action: "set up TLS".into(), source }
}
