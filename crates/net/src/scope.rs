//! The scopes of link-local addresses (RFC 4007): the interface is a part of such an address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Whether an address means nothing without its interface. IPv4 has no scopes.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => Ipv6Addr::is_unicast_link_local(&address),
    }
}

/// The interface's number in an IPv6 address; zero if there is none.
pub(crate) fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}

/// A link-local address without a scope in that of the interface `index`; any other address
/// unchanged.
pub(crate) fn in_scope(address: SocketAddr, index: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() == 0 && v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), index).into()
        }
        _ => address,
    }
}
