//! The side that listens: sessions over many paths.
//!
//! An [`Acceptor`] takes connections in. Each is unauthenticated until TLS has proven its key and
//! its first frame names a session of that key, or asks for a new one and is authorized; until then
//! its time and memory are small ([`admission`]). An authorized connection is told the addresses of
//! this host at once, and may wait until its session is open. Then the [`Service`] serves it.

mod acceptor;
pub mod admission;
mod waiting;

use std::net::SocketAddr;

pub use acceptor::{Acceptor, Entry, Opening, Service};
pub use admission::{TokenCheck, TokenRefusal};
use net::interfaces::discover;
use net::socket::unmapped;
pub use net::socket::{listen, reachable};

use crate::conn::Conn;

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
