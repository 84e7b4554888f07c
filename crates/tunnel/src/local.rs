//! Sockets of local programs and of targets: TCP, or a Unix socket.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::sleep;

use crate::bounds::PAUSE;
use crate::place::Place;

/// An open connection of a program.
#[derive(Debug)]
pub(crate) enum Local {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Connections that the kernel may queue before they are accepted.
const BACKLOG: i32 = 1_024;

impl Local {
    /// A TCP connection: small segments leave at once, and a host that vanished is noticed.
    pub(crate) fn tcp(stream: TcpStream) -> Local {
        let socket = SockRef::from(&stream);
        let (time, interval) = (Duration::from_secs(60), Duration::from_secs(15));
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval);
        // A connection without them works, too.
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_tcp_keepalive(&keepalive);
        Local::Tcp(stream)
    }

    /// Reads what has arrived; zero bytes at the end.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let read = match self {
                Local::Tcp(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read(into)
                }
                Local::Unix(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_read(into)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Writes what there is room for.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_writable(cx))?;
            let written = match self {
                Local::Tcp(stream) => stream.try_write(bytes),
                Local::Unix(stream) => stream.try_write(bytes),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// Waits until there is room.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Local::Tcp(stream) => stream.poll_write_ready(cx),
            Local::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Waits until the connection has failed.
    pub(crate) async fn failed(&self) -> io::Error {
        let (waited, error) = match self {
            Local::Tcp(stream) => (stream.ready(Interest::ERROR).await, stream.take_error()),
            Local::Unix(stream) => (stream.ready(Interest::ERROR).await, stream.take_error()),
        };
        match (waited, error) {
            (Err(error), _) | (_, Err(error) | Ok(Some(error))) => error,
            (Ok(_), Ok(None)) => io::ErrorKind::ConnectionReset.into(),
        }
    }

    /// Ends the direction towards the program.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        SockRef::from(&self.as_fd()).shutdown(std::net::Shutdown::Write)
    }

    /// Closes the connection so that the program's next operation fails.
    pub(crate) fn reset(self) {
        if let Local::Tcp(stream) = &self {
            // A socket that is gone has nobody to tell.
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// The address that it was accepted at: with transparent interception, that of the target.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Local::Tcp(stream) => stream.local_addr().ok(),
            Local::Unix(_) => None,
        }
    }

    /// The address of its other end.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Local::Tcp(stream) => stream.peer_addr().ok(),
            Local::Unix(_) => None,
        }
    }
}

impl AsFd for Local {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Local::Tcp(stream) => stream.as_fd(),
            Local::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Door {
    /// Listens at a place: one socket for each address. `is_transparent`: connections to any
    /// address may be handed to them.
    ///
    /// # Errors
    /// The kernel's, with the address.
    pub(crate) fn open(
        place: &Place,
        is_transparent: bool,
    ) -> Result<Vec<Door>, (String, io::Error)> {
        if let Place::Unix(path) = place {
            let door = unix(path).map_err(|error| (path.display().to_string(), error))?;
            return Ok(vec![door]);
        }
        let mut doors: Vec<Door> = Vec::new();
        for mut address in place.addresses() {
            // The second family gets the port that the first one got.
            if let Some(first) = doors.first().and_then(Door::address) {
                address.set_port(first.port());
            }
            match tcp(address, is_transparent) {
                Ok(listener) => doors.push(Door::Tcp(listener)),
                // The host may have one family only.
                Err(error) if !doors.is_empty() && error.kind() != io::ErrorKind::AddrInUse => {
                    tracing::debug!(%address, %error, "not listening");
                }
                Err(error) => return Err((address.to_string(), error)),
            }
        }
        Ok(doors)
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Door::Tcp(listener) => listener.local_addr().ok(),
            Door::Unix(..) => None,
        }
    }

    /// The next connection. Where the kernel has no descriptors or memory left, it waits a moment.
    pub(crate) async fn accept(&self) -> Local {
        loop {
            let accepted = match self {
                Door::Tcp(listener) => {
                    listener.accept().await.map(|(stream, _)| Local::tcp(stream))
                }
                Door::Unix(listener, _) => {
                    listener.accept().await.map(|(stream, _)| Local::Unix(stream))
                }
            };
            match accepted {
                Ok(local) => return local,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    // An aborted connection is nobody's fault.
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Door::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Door::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(error) => error.fmt(f),
            },
            Door::Unix(_, path) => path.display().fmt(f),
        }
    }
}

fn tcp(address: SocketAddr, is_transparent: bool) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    match address {
        SocketAddr::V4(_) if is_transparent => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) if is_transparent => socket.set_ip_transparent_v6(true)?,
        _ => {}
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A socket that only its owner may connect to. One that nobody listens at any more is replaced.
fn unix(path: &Path) -> io::Result<Door> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    // Nobody can connect before it listens.
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    Ok(Door::Unix(UnixListener::from_std(socket.into())?, path.to_path_buf()))
}
