//! The transport below TLS: kernel TCP, or anything else with ordered streams of bytes.
//!
//! A carrier opens [`Stream`]s on the side that dials and accepts them on the side that listens.
//! TLS, frames, admission and supervision are the same over every carrier;
//! `examples/unix_carrier.rs` has a whole one over Unix sockets.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

pub use net::counters::TcpInfo;
use net::counters::{tcp_info, unsent};
use net::socket;
pub use net::socket::Attempt;
use tokio::net::{TcpListener, TcpStream};

use units::{Bytes, PathId, Rate, Span};

use crate::Fingerprint;
use events::{Background, PathState};

/// A future that a carrier returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open connection: an ordered stream of bytes with the readiness of a nonblocking socket.
///
/// The methods with a body are those of a carrier without addresses, counters, or a choice of
/// congestion control.
pub trait Stream: Send + Sync + 'static {
    /// Reads bytes that have arrived; zero at the end of the stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if none have.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as many bytes as there is room for, and returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is no room.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until [`Stream::try_read`] may succeed; one task at a time waits.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until [`Stream::try_write`] may succeed; one task at a time waits.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends the direction towards the peer, which then reads the end of the stream.
    ///
    /// # Errors
    /// Those of a broken connection.
    fn shutdown_write(&self) -> io::Result<()>;

    /// The key that the peer has proven to the carrier, if that authenticates its peers and seals
    /// every byte: then there is no TLS over the stream.
    fn peer_key(&self) -> Option<Fingerprint> {
        None
    }

    /// Takes the whole striped connection of which this is a stream: no further stream of it
    /// becomes a connection of its own. `None` for a stream of another kind.
    fn claim(&self) -> Option<stripe::Connection> {
        None
    }

    /// The striped connection of which this is a stream.
    fn striped(&self) -> Option<&stripe::Connection> {
        None
    }

    /// The socket, if this is a connection of TCP as the kernel has it.
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }

    /// The same, taken out. `None` where [`Stream::tcp`] has none.
    #[must_use]
    fn into_tcp(self: Box<Self>) -> Option<TcpStream> {
        None
    }

    /// The local address, if the carrier has any.
    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }

    /// The remote address, if the carrier has any.
    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }

    /// The kernel's counters; zeros where there are none.
    ///
    /// # Errors
    /// Those of a broken connection.
    fn counters(&self) -> io::Result<TcpInfo> {
        Ok(TcpInfo::default())
    }

    /// Of a carrier that repeats by itself what one of its routes loses: for how long nothing has
    /// got through over any of them, zero while something does. `None`: the stream is one
    /// connection over one line, and its counters show whether it moves.
    fn silence(&self) -> Option<Span> {
        None
    }

    /// Bytes written that have not left this host.
    ///
    /// # Errors
    /// Those of a broken connection.
    fn unsent(&self) -> io::Result<u64> {
        Ok(0)
    }

    /// Changes the congestion control of the direction towards the peer; `name` is the kernel's.
    ///
    /// # Errors
    /// The kernel's, for a name that may not be used; [`io::ErrorKind::Unsupported`] where there is
    /// no choice.
    fn set_congestion_control(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Marks what is sent towards the peer as lower effort (RFC 8622).
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::Unsupported`] where packets are not the stream's own.
    fn set_lower_effort(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Bounds the rate of what is sent towards the peer.
    ///
    /// # Errors
    /// As [`Stream::set_lower_effort`].
    fn set_pace(&self, _rate: Rate) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has the stream take bytes only while less than so many wait to be sent.
    ///
    /// # Errors
    /// As [`Stream::set_lower_effort`].
    fn set_most_unsent(&self, _bytes: Bytes) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Opens connections on the side that dials.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// Opens one connection. The future is dropped if the attempt takes too long.
    fn connect<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;

    /// The routes of a carrier whose connections use several at a time; `None` where each
    /// connection is a path of its own.
    fn routes(&self) -> Option<Vec<RouteReport>> {
        None
    }

    /// Has [`Carrier::routes`] be as of now: it may be a tenth of a second old.
    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// This much is still to be moved, within a bound of all paths together: a carrier with several
    /// routes decides whether those of [`PathClass::Overflow`](crate::PathClass::Overflow) are
    /// needed. Called some ten times a second.
    fn handle_rest(&self, _rest: Bytes, _bound: Option<Rate>) {}
}

/// A route of a carrier whose connections use several.
#[derive(Clone, Debug)]
pub struct RouteReport {
    /// Its number.
    pub path: PathId,
    /// Its name for people.
    pub name: String,
    /// Its state.
    pub state: PathState,
    /// The local address, once connected.
    pub local: Option<SocketAddr>,
    /// The remote address.
    pub remote: Option<SocketAddr>,
    /// Its smoothed round-trip time, if it is known.
    pub rtt: Option<Span>,
    /// Bytes sent over it.
    pub sent: Bytes,
    /// Bytes that arrived over it.
    pub received: Bytes,
    /// Packets that were lost.
    pub lost: u64,
    /// How often the connection, which all routes share, has changed its keys.
    pub key_updates: u64,
    /// The name of the congestion controller.
    pub controller: &'static str,
    /// What the background is like there.
    pub background: Option<Background>,
    /// Why its interface may carry no more in this month; `None` if it may.
    pub used_up: Option<String>,
}

/// Accepts connections on the side that listens.
pub trait Listener: Send + 'static {
    /// The next connection, and the address that it comes from, for people to read.
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
            // A connection that broke at once fails here, and again at its first use.
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

    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn into_tcp(self: Box<Self>) -> Option<TcpStream> {
        Some(*self)
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

    fn set_lower_effort(&self) -> io::Result<()> {
        socket::set_lower_effort(self)
    }

    fn set_pace(&self, rate: Rate) -> io::Result<()> {
        socket::set_pace(self, rate)
    }

    fn set_most_unsent(&self, bytes: Bytes) -> io::Result<()> {
        socket::set_most_unsent(self, bytes)
    }
}
