//! The time that a connection over a path takes to open.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::time::{Instant, timeout};
use units::Span;

use super::LocalPath;
use crate::scope::{in_scope, scope};

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
    socket.bind_device(path.device().map(str::as_bytes))?;
    let to = in_scope(to, path.index);
    socket.bind(in_scope(SocketAddr::new(path.address, 0), scope(to)))?;
    let start = Instant::now();
    let connected = timeout(patience, socket.connect(to)).await;
    connected.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer"))??;
    Ok(start.elapsed().into())
}
