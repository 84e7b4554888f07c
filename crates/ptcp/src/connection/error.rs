//! What a peer did that no honest one does, and what cannot be done for the application.

use units::Bytes;

/// A datagram cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It fits no packet.
    #[error("a datagram of {size} is too large for the open paths: send at most {most}")]
    TooLarge {
        /// Its size.
        size: Bytes,
        /// The most there may be: [`Connection::max_datagram`](crate::Connection::max_datagram).
        most: Bytes,
    },
    /// Too many wait already ([`Config::max_datagrams`](crate::Config::max_datagrams)).
    #[error("{waiting} datagrams wait to be sent: drop this one, or send it later")]
    Full {
        /// How many.
        waiting: u32,
    },
}

/// The peer broke the protocol: the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It acknowledged a packet that was never sent.
    #[error("the peer acknowledged packet {number} of path {path}, which was never sent")]
    Acknowledged {
        /// Which path.
        path: u16,
        /// Which packet.
        number: u64,
    },
    /// It says that data arrived that was never sent.
    #[error("the peer says it has stream {stream} up to {offset}, which was never sent")]
    Delivered {
        /// Which stream.
        stream: u32,
        /// Up to where.
        offset: u64,
    },
    /// It sent more than the windows allow.
    #[error("the peer sent more of stream {stream} than it was allowed to")]
    Window {
        /// Which stream.
        stream: u32,
    },
    /// A stream ends in two places, or goes on after its end.
    #[error("stream {stream} of the peer does not end where it said")]
    End {
        /// Which stream.
        stream: u32,
    },
    /// It opened too many streams, or one that is ours to open.
    #[error("the peer may not open stream {stream}")]
    Stream {
        /// Which stream.
        stream: u32,
    },
    /// It opened too many paths, or one though it is the server.
    #[error("the peer may not open path {path}")]
    Path {
        /// Which path.
        path: u16,
    },
    /// Its packets are numbered beyond what a path can count (RFC 9000, section 12.3).
    #[error(
        "the peer numbered a packet of path {path} with {number}, beyond all numbers there are"
    )]
    Number {
        /// Which path.
        path: u16,
        /// Which packet.
        number: u64,
    },
}

impl PeerError {
    /// The code with which the connection is closed.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            PeerError::Acknowledged { .. } => 0x101,
            PeerError::Delivered { .. } => 0x102,
            PeerError::Window { .. } => 0x103,
            PeerError::End { .. } => 0x104,
            PeerError::Stream { .. } => 0x105,
            PeerError::Path { .. } => 0x106,
            PeerError::Number { .. } => 0x107,
        }
    }
}
