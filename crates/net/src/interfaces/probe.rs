//! The time that a connection over a path takes to open.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::time::{Instant, timeout};
use units::Span;

use super::LocalPath;

/// Opens a TCP connection to `to` over `path` and closes it. Returns the time until it was open,
/// about a round trip. No data is sent.
///
/// # Errors
/// The kernel's; [`io::ErrorKind::TimedOut`] after `patience`.
pub async fn connect_time(
    path: &LocalPath,
    to: SocketAddr,
    patience: Duration,
) -> io::Result<Span> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind_device(Some(path.interface.as_bytes()))?;
    socket.bind(scoped(SocketAddr::new(path.address, 0), path.index))?;
    let start = Instant::now();
    let connected = timeout(patience, socket.connect(scoped(to, path.index))).await;
    connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer"))??;
    Ok(start.elapsed().into())
}

/// A link-local address means nothing without its interface.
fn scoped(address: SocketAddr, index: u32) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, address.port(), 0, index).into()
        }
        _ => address,
    }
}
