//! Errors, by who must act.

use std::io;
use std::net::SocketAddr;

use ptcp::{PeerError, TimeoutError};
use secure::{HandshakeError, SettingsError};
use wire::closing::Closing;

/// A connection could not be made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no route to try.
    #[error("no route to the peer was given")]
    NoRoute,
    /// The socket of no route could be opened; the reason of the last one.
    #[error("{route}: {reason}")]
    Socket {
        /// The route's name.
        route: String,
        /// The kernel's reason.
        reason: String,
    },
    /// The settings or the TLS configuration are not usable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The handshake has failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// No route carries packets as large as the handshake's.
    #[error(
        "the line of {route} carries packets of up to {mtu} octets, and the handshake needs \
         {least}"
    )]
    Narrow {
        /// The route's name.
        route: String,
        /// The largest packet of the network layer that the system knows to pass.
        mtu: u32,
        /// What it would have to be.
        least: u32,
    },
    /// The peer's host, or a firewall, refuses packets to that port over every route.
    #[error("packets to that port are refused ({reason})")]
    Refused {
        /// The kernel's reason.
        reason: String,
    },
    /// The peer's parameters are invalid.
    #[error("the peer sent invalid parameters of the connection")]
    Parameters,
    /// The endpoint has ended.
    #[error("the endpoint has ended")]
    Ended,
}

/// A connection has ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConnectionError {
    /// This side closed it.
    #[error("the connection was closed here")]
    Closed,
    /// The peer's application closed it.
    #[error("the peer closed the connection{}", because(*code))]
    ClosedByPeer {
        /// The application's code.
        code: u32,
    },
    /// Nothing was heard of the peer for too long, over any path.
    #[error("{0}")]
    TimedOut(TimeoutError),
    /// The last route that was left carries no packets of 1,200 octets.
    #[error("the line loses packets of 1,200 octets, which this protocol needs, and no others")]
    Narrow,
    /// The peer broke the protocol.
    #[error("{0}")]
    Peer(PeerError),
    /// The peer sent what no honest one does under the keys of the connection.
    #[error("the peer broke the rules of packet protection: {0}")]
    Protection(secure::OpenError),
    /// The peer does not know the connection any more: it was started again.
    #[error("the peer does not know the connection any more")]
    Reset,
    /// The peer's host refuses packets over every route: no program has the port any more.
    #[error("the other host refuses packets: no program has that port any more")]
    Refused,
    /// The peer did not accept the handshake in the end.
    #[error(transparent)]
    Handshake(HandshakeError),
    /// The endpoint has ended.
    #[error("the endpoint has ended")]
    Ended,
}

/// A stream has ended before its end was reached.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StreamError {
    /// The peer reset its half.
    #[error("the peer reset the stream{}", because(*code))]
    Reset {
        /// The application's code.
        code: u32,
    },
    /// The peer does not want to read this half.
    #[error("the peer stopped reading the stream{}", because(*code))]
    Stopped {
        /// The application's code.
        code: u32,
    },
    /// This half was finished or reset here.
    #[error("the stream was ended here")]
    Ended,
    /// The connection has ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// What a code says, as the end of a sentence; nothing for an application's own.
fn because(code: u32) -> String {
    Closing::of_number(code).map_or_else(String::new, |row| format!(": {row}"))
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> io::Error {
        let kind = match &error {
            StreamError::Reset { .. } => io::ErrorKind::ConnectionReset,
            StreamError::Stopped { .. } | StreamError::Ended => io::ErrorKind::BrokenPipe,
            StreamError::Connection(ConnectionError::TimedOut(_)) => io::ErrorKind::TimedOut,
            StreamError::Connection(ConnectionError::Closed | ConnectionError::Ended) => {
                io::ErrorKind::NotConnected
            }
            StreamError::Connection(_) => io::ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

/// A datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It is larger than the packets of some open path.
    #[error("a datagram of {size} bytes is too large for the open paths: send at most {most}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The largest size in bytes.
        most: usize,
    },
    /// Too many are waiting.
    #[error("too many datagrams wait to be sent: drop this one, or send it later")]
    Full,
    /// The connection has ended.
    #[error("the connection has ended: a datagram has no way to the peer")]
    Ended,
}

/// An endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A socket cannot be opened at an address.
    #[error("listen on {address} (UDP): {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The TLS configuration is not usable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The system refused a descriptor, a thread or random numbers.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}
