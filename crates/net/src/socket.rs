//! TCP sockets of both ends: their device and address, their options, listening.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
pub use sys::datagram::unmapped;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use units::{Bytes, Rate};

use crate::holder::{Holder, Transport};
use crate::interfaces::own_addresses;
use crate::scope::{in_scope, scope};
use crate::{CongestionControl, Error};

/// The parameters of one attempt to connect.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The device to bind to; `None` for loopback, which needs none.
    pub device: Option<String>,
    /// The local address to bind to.
    pub local: IpAddr,
    /// The remote address.
    pub remote: SocketAddr,
    /// The congestion control of the data sent from here.
    pub congestion_control: CongestionControl,
    /// Whether to announce a segment size that fits every line, for lines whose real MTU is smaller
    /// than the interface's.
    pub small_segments: bool,
}

/// The largest segment on a line with the minimum MTU of IPv6 (1280; RFC 8200, 5), with room for
/// options, in bytes.
pub const SMALL_SEGMENT: u32 = 1_180;
/// The lower-effort codepoint (RFC 8622, section 2) in the octet of the traffic class.
const LOWER_EFFORT: u32 = 1 << 2;
/// Connections that the kernel may queue before they are accepted.
const BACKLOG: i32 = 1_024;

/// Opens a connection with the options of [`tune`].
///
/// # Errors
/// The kernel's; the text names a congestion control that may not be used.
pub async fn connect(attempt: &Attempt) -> io::Result<TcpStream> {
    let domain = Domain::for_address(attempt.remote);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let Some(device) = &attempt.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    socket.bind(&in_scope(SocketAddr::new(attempt.local, 0), scope(attempt.remote)).into())?;
    if attempt.small_segments {
        socket.set_tcp_mss(SMALL_SEGMENT)?;
    }
    let name = attempt.congestion_control.first();
    let chosen = socket.set_tcp_congestion(name.as_bytes());
    if let (Err(error), CongestionControl::Named(name)) = (chosen, &attempt.congestion_control) {
        let why = format!(
            "congestion control {name}: {error}; net.ipv4.tcp_allowed_congestion_control lists \
             what is allowed"
        );
        return Err(io::Error::new(error.kind(), why));
    }
    tune(&socket)?;
    TcpSocket::from_std_stream(socket.into()).connect(attempt.remote).await
}

/// Sets the options of every connection: no delay of small segments, keepalive after 10 s, failure
/// after 60 s without an acknowledgement.
///
/// # Errors
/// The kernel's.
pub fn tune(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5));
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(60)))
}

/// Changes the congestion control of a connection to the kernel's `name`.
///
/// # Errors
/// The kernel's, for a name that may not be used.
pub fn set_congestion_control(socket: &impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(socket).set_tcp_congestion(name.as_bytes())
}

/// Marks what a connection sends as lower effort (RFC 8622). ECN stays what it is.
///
/// # Errors
/// The kernel's.
pub fn set_lower_effort(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    // A socket of IPv6 may have a peer of IPv4.
    let of_ipv6 = socket.set_tclass_v6(LOWER_EFFORT);
    let of_ipv4 = socket.set_tos_v4(LOWER_EFFORT);
    of_ipv4.or(of_ipv6)
}

/// Bounds the rate of what a connection sends; the kernel paces it.
///
/// # Errors
/// The kernel's.
pub fn set_pace(socket: &impl AsFd, rate: Rate) -> io::Result<()> {
    sys::sockopt::set_max_pacing_rate(socket, (rate.as_bits() / 8).max(1))
}

/// Lets a connection count as writable only while less than so much waits to be sent.
///
/// # Errors
/// The kernel's.
pub fn set_most_unsent(socket: &impl AsFd, bytes: Bytes) -> io::Result<()> {
    sys::sockopt::set_unsent_low_water(socket, u32::try_from(bytes.0).unwrap_or(u32::MAX))
}

/// Opens listening sockets at the addresses; if there are none, one at `port` of all addresses of
/// IPv6 and IPv4.
///
/// # Errors
/// [`Error`], with the address that the kernel refused and, if it is taken, by whom.
pub fn listen(addresses: &[SocketAddr], port: u16) -> Result<Vec<TcpListener>, Error> {
    if !addresses.is_empty() {
        return addresses.iter().map(|address| bind(*address, false)).collect();
    }
    // One socket for both families where the system has both, else IPv4 alone.
    let listener = match bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), true) {
        Err(error) if error.source.kind() != io::ErrorKind::AddrInUse => {
            bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), false)
        }
        both => both,
    }?;
    Ok(vec![listener])
}

fn bind(address: SocketAddr, both_families: bool) -> Result<TcpListener, Error> {
    let open = || -> io::Result<TcpListener> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(!both_families)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|source| {
        let source = Holder::explain(Transport::Tcp, address, source);
        Error { action: format!("listen on {address}"), source }
    })
}

/// The addresses at which listening sockets can be reached; for a socket at the unspecified
/// address, those of all interfaces.
#[must_use]
pub fn reachable(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for bound in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
        if !bound.ip().is_unspecified() {
            addresses.push(bound);
            continue;
        }
        for address in own_addresses() {
            if bound.is_ipv6() || address.is_ipv4() {
                addresses.push(SocketAddr::new(address, bound.port()));
            }
        }
    }
    addresses
}

/// Ends the direction towards the peer, which then reads the end of the stream.
///
/// # Errors
/// The kernel's, for a connection that is gone.
pub fn shutdown_write(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).shutdown(std::net::Shutdown::Write)
}
