//! What carries the bytes of a path: kernel TCP, or whatever else has an ordered stream.
//!
//! A carrier opens [`Stream`]s on the side that dials and accepts them on the side that listens.
//! TLS, frames, admission and supervision are the same over every carrier.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use net::counters::{TcpInfo, tcp_info, unsent};
use net::socket;
pub use net::socket::Attempt;
use tokio::net::{TcpListener, TcpStream};

/// A future that a carrier returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open connection: an ordered stream of bytes with readiness, as a nonblocking socket has it.
pub trait Stream: Send + Sync + 'static {
    /// Reads what has arrived.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if nothing has.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until [`Stream::try_read`] may succeed; one task at a time waits.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until [`Stream::try_write`] may succeed; one task at a time waits.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends the direction towards the peer.
    ///
    /// # Errors
    /// Those of a connection that is gone.
    fn shutdown_write(&self) -> io::Result<()>;

    /// The local address, if the carrier has any.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// The remote address, if the carrier has any.
    fn peer_addr(&self) -> Option<SocketAddr>;

    /// The kernel's counters; zeros where there are none.
    ///
    /// # Errors
    /// Those of a connection that is gone.
    fn counters(&self) -> io::Result<TcpInfo>;

    /// Bytes that were written and that have not left this host.
    ///
    /// # Errors
    /// Those of a connection that is gone.
    fn unsent(&self) -> io::Result<u64>;

    /// Changes the congestion control of what is sent from here.
    ///
    /// # Errors
    /// Those of a name that may not be used, or a carrier without a choice.
    fn set_congestion_control(&self, name: &str) -> io::Result<()>;
}

/// Opens connections on the side that dials.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// Opens one connection.
    fn connect<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// Accepts connections on the side that listens.
pub trait Listener: Send + 'static {
    /// The next connection, and the address that it comes from.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, SocketAddr)>>;
}

/// Kernel TCP.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Carrier for Tcp {
    fn connect<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = socket::connect(attempt).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, from) = TcpListener::accept(self).await?;
            // A connection that died at once fails here; its first use finds that out.
            let _ = socket::tune(&stream);
            Ok((Box::new(stream) as Box<dyn Stream>, from))
        })
    }
}

impl Stream for TcpStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::try_read(self, buffer)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(slices)
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_read_ready(self, cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_write_ready(self, cx)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        socket::shutdown_write(self)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        TcpStream::local_addr(self).ok()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        TcpStream::peer_addr(self).ok()
    }

    fn counters(&self) -> io::Result<TcpInfo> {
        tcp_info(self)
    }

    fn unsent(&self) -> io::Result<u64> {
        unsent(self)
    }

    fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        socket::set_congestion_control(self, name)
    }
}
