//! The side that listens: sessions over many paths.
//!
//! A [`Host`](crate::host::Host) takes connections in. Each is unauthenticated until TLS has proven
//! its key and its first frame names a session of that key, or asks for a new one and is
//! authorized; until then its time and memory are small ([`admission`]). An authorized connection
//! is told the addresses of this host at once, and may wait until its session is open. Then the
//! [`Service`](crate::host::Service) that its hello names serves it.

pub mod admission;
pub(crate) mod admitted;
pub(crate) mod by_peer;
pub(crate) mod connections;
pub(crate) mod opening;
pub(crate) mod own;
pub(crate) mod predecessor;
mod refusals;
pub(crate) mod traffic;
pub(crate) mod waiting;

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

pub use admission::{TokenCheck, TokenRefusal};
pub use admitted::Admitted;
use net::interfaces::{common_prefix, own_addresses};
use net::socket::unmapped;
pub use net::socket::{listen, reachable};
pub use opening::OpeningPlace;
pub use refusals::{Refusals, refusal_text};
pub(crate) use traffic::Traffic;

use crate::carrier::Stream;

/// The most connections of one session, on all its paths together: 16 paths, 48 further connections
/// of them, and connections that the dialing host has replaced and this one has not yet given up.
pub const MOST_CONNECTIONS: usize = 128;

/// The message to a peer whose session has [`MOST_CONNECTIONS`].
#[must_use]
pub fn too_many_connections() -> String {
    format!("the session has {MOST_CONNECTIONS} connections, and takes no more")
}

/// Addresses at which the peer of `stream` may reach this host: the one that it used, and if
/// `listen` is empty or names all addresses of a family, those of every interface that is up (see
/// [`own_addresses`]), as many as a frame holds. Those that share the most leading bits with the
/// peer's address come first: they are probably in a network that it is in.
///
/// Link-local IPv6 addresses are left out, even the used one, because their zones have other names
/// at the peer. A peer on this host has no use for another address than the one that it used.
#[must_use]
pub fn further_addresses(stream: &dyn Stream, listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(used) = stream.local_addr().map(unmapped) else { return Vec::new() };
    let peer = stream.peer_addr().map(|peer| unmapped(peer).ip());
    announced(used, peer, listen, &own_addresses())
}

/// [`further_addresses`] of a host with the addresses `own`.
pub(crate) fn announced(
    used: SocketAddr,
    peer: Option<IpAddr>,
    listen: &[SocketAddr],
    own: &[IpAddr],
) -> Vec<SocketAddr> {
    let is_link_local = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let mut addresses: Vec<SocketAddr> =
        Some(used).into_iter().filter(|used| !is_link_local(used)).collect();
    let Some(peer) = peer.filter(|peer| !peer.is_loopback() && !own.contains(peer)) else {
        return addresses;
    };
    // Port 0 became the port of the connection.
    let port = |ip: &IpAddr| {
        let everywhere =
            |at: &&SocketAddr| at.ip().is_unspecified() && at.is_ipv4() == ip.is_ipv4();
        match listen.iter().find(everywhere) {
            Some(at) if at.port() != 0 => Some(at.port()),
            Some(_) => Some(used.port()),
            None => listen.is_empty().then_some(used.port()),
        }
    };
    let mut nearest: Vec<&IpAddr> = own.iter().collect();
    nearest.sort_by_key(|ip| Reverse(common_prefix(**ip, peer)));
    for ip in nearest {
        let address = port(ip).map(|port| SocketAddr::new(*ip, port));
        addresses.extend(address.filter(|address| !addresses.contains(address)));
    }
    addresses.truncate(wire::session::MAX_ADDRESSES);
    addresses
}

/// The IP address of a connection, for people.
#[must_use]
pub fn display_address(address: SocketAddr) -> String {
    unmapped(address).ip().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [&str; 6] =
        ["10.1.0.2", "192.168.5.2", "192.168.7.2", "172.20.0.9", "2001:db8:1::2", "fd00:5::2"];

    /// The announced addresses of a host with [`OWN`].
    fn told(used: &str, peer: &str, listen: &[&str]) -> Vec<String> {
        let own = OWN.map(|ip| ip.parse().unwrap());
        let listen: Vec<SocketAddr> = listen.iter().map(|at| at.parse().unwrap()).collect();
        let told = announced(used.parse().unwrap(), peer.parse().ok(), &listen, &own);
        told.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_address_is_announced_the_used_and_the_near_ones_first() {
        let all = [
            "10.1.0.2:7707",
            "192.168.7.2:7707",
            "192.168.5.2:7707",
            "172.20.0.9:7707",
            "[2001:db8:1::2]:7707",
            "[fd00:5::2]:7707",
        ];
        assert_eq!(told("10.1.0.2:7707", "192.168.7.9", &[]), all);
        let from_ipv6 = told("[2001:db8:1::2]:7707", "fd00:5::1", &[]);
        assert_eq!(from_ipv6[..2], ["[2001:db8:1::2]:7707", "[fd00:5::2]:7707"]);
        assert_eq!(from_ipv6.len(), all.len());
        // The used one may be translated on its way.
        assert_eq!(told("198.51.100.7:80", "203.0.113.5", &[]).len(), all.len() + 1);
    }

    #[test]
    fn only_what_is_listened_on_is_announced() {
        let used = "10.1.0.2:7707";
        assert_eq!(told(used, "10.1.0.1", &["10.1.0.2:7707", "192.168.5.2:7707"]), [used]);
        let ipv4 = told(used, "10.1.0.1", &["0.0.0.0:7707"]);
        assert!(ipv4.len() == 4 && ipv4.iter().all(|at| !at.contains('[')), "{ipv4:?}");
        let both = told(used, "10.1.0.1", &["0.0.0.0:0", "[::]:7709"]);
        assert_eq!(both[4..], ["[2001:db8:1::2]:7709", "[fd00:5::2]:7709"]);
        assert_eq!(both[0], used);
    }

    #[test]
    fn addresses_that_mean_nothing_to_the_peer_are_left_out() {
        let link_local = told("[fe80::2]:7707", "fe80::1", &[]);
        assert!(link_local.iter().all(|at| !at.contains("fe80")), "{link_local:?}");
        assert_eq!(link_local.len(), OWN.len());
        for (used, peer) in [("127.0.0.1:80", "127.0.0.1"), ("10.1.0.2:80", "192.168.5.2")] {
            assert_eq!(told(used, peer, &[]), [used]);
        }
    }

    #[test]
    fn a_frame_holds_the_announced_addresses() {
        let own: Vec<IpAddr> = (0..=255).map(|i| [10, 1, 0, i].into()).collect();
        let used = "192.0.2.1:80".parse().unwrap();
        let told = announced(used, "10.1.1.1".parse().ok(), &[], &own);
        assert_eq!((told.len(), told[0]), (wire::session::MAX_ADDRESSES, used));
    }
}
