//! The side that listens: sessions over many paths.
//!
//! An [`Acceptor`] takes connections in. Each is unauthenticated until TLS has proven its key and
//! its first frame names a session of that key, or asks for a new one and is authorized; until then
//! its time and memory are small ([`admission`]). Then the [`Service`] serves it.

mod acceptor;
pub mod admission;

use std::net::SocketAddr;

pub use acceptor::{Acceptor, Entry, Service};
pub use admission::{TokenCheck, TokenRefusal};
use net::interfaces::discover;
use net::socket::unmapped;
pub use net::socket::{listen, reachable};

use crate::conn::Conn;

/// The most connections of one session, on all its paths together: 16 paths, 48 further connections
/// of them, and connections that the dialing host has replaced and this one has not yet given up.
pub const MOST_CONNECTIONS: usize = 128;

/// The message to a peer whose session has [`MOST_CONNECTIONS`].
#[must_use]
pub fn too_many_connections() -> String {
    format!("the session has {MOST_CONNECTIONS} connections, and takes no more")
}

/// Addresses at which the peer of `conn` may reach this host: the one that it used, and those of
/// other interfaces towards it if `listen` is empty or names all addresses.
#[must_use]
pub fn further_addresses(conn: &Conn, listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(local) = conn.stream().local_addr() else { return Vec::new() };
    let mut addresses = vec![unmapped(local)];
    let peer = conn.stream().peer_addr().map(unmapped);
    let everywhere =
        listen.is_empty() || listen.iter().any(|address| address.ip().is_unspecified());
    if everywhere && let Some(peer) = peer {
        let found = discover(peer.ip());
        for path in found.map(|found| found.usable).unwrap_or_default() {
            let address = SocketAddr::new(path.address, local.port());
            if !addresses.contains(&address) && addresses.len() < wire::frame::MAX_ADDRESSES {
                addresses.push(address);
            }
        }
    }
    addresses
}

/// The IP address of a connection, for people.
#[must_use]
pub fn display_address(address: SocketAddr) -> String {
    unmapped(address).ip().to_string()
}
