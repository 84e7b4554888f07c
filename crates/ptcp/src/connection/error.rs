//! Errors: protocol violations of a peer, timeouts, and datagrams that cannot be sent.

use units::{Bytes, Span, SubflowId};
use wire::closing::CloseCode;

/// A datagram cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It is larger than the packets of some open path.
    #[error("a datagram of {size} is too large for the open paths: send at most {most}")]
    TooLarge {
        /// Its size.
        size: Bytes,
        /// The largest size: [`Connection::max_datagram`](crate::Connection::max_datagram).
        most: Bytes,
    },
    /// Too many are waiting ([`Config::max_datagrams`](crate::Config::max_datagrams)).
    #[error("{waiting} datagrams wait to be sent: drop this one, or send it later")]
    Full {
        /// The number of waiting datagrams.
        waiting: u32,
    },
    /// The path that it was meant for is not open.
    #[error("{path} is not open: send the datagram over another one")]
    NotOpen {
        /// The path.
        path: SubflowId,
    },
    /// The connection has ended.
    #[error("the connection has ended: a datagram has no way to the peer")]
    Ended,
}

/// The peer was not heard of for too long, which ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutError {
    /// The handshake did not complete within
    /// [`Config::handshake_timeout`](crate::Config::handshake_timeout).
    #[error("the handshake was not complete after {}", .after.brief())]
    Handshake {
        /// The time since the first packet.
        after: Span,
    },
    /// Nothing arrived for [`Config::idle_timeout`](crate::Config::idle_timeout).
    #[error("nothing has arrived for {}", .after.brief())]
    Idle {
        /// The time since the last packet.
        after: Span,
    },
}

impl TimeoutError {
    /// The code that is sent to the peer of an idle connection when it closes.
    pub const IDLE_CODE: u32 = CloseCode::Idle.number();
}

/// A protocol violation of the peer, which closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It acknowledged a packet that was never sent.
    #[error("the peer acknowledged packet {number} of {path}, which was never sent")]
    Acknowledged {
        /// The path.
        path: SubflowId,
        /// The packet number.
        number: u64,
    },
    /// It acknowledged data that was never sent.
    #[error("the peer acknowledged stream {stream} up to {offset}, which was never sent")]
    Delivered {
        /// The stream.
        stream: u32,
        /// The acknowledged offset.
        offset: u64,
    },
    /// It sent more than the flow control windows allow.
    #[error("the peer sent data of stream {stream} beyond the flow control window")]
    Window {
        /// The stream.
        stream: u32,
    },
    /// A stream ends in two places, or goes on after its end.
    #[error("the peer changed the end of stream {stream}, or sent data beyond it")]
    End {
        /// The stream.
        stream: u32,
    },
    /// It opened too many streams, or one of the local end's numbers.
    #[error("the peer may not open stream {stream}")]
    Stream {
        /// The stream.
        stream: u32,
    },
    /// It opened too many paths, or is a server and opened one.
    #[error("the peer may not open {path}")]
    Path {
        /// The path.
        path: SubflowId,
    },
    /// It used a packet number beyond the largest one (RFC 9000, section 12.3).
    #[error("the peer used packet number {number} on {path}, which is above the largest one")]
    Number {
        /// The path.
        path: SubflowId,
        /// The packet number.
        number: u64,
    },
}

impl PeerError {
    /// The code sent to the peer when the connection closes.
    #[must_use]
    pub fn code(&self) -> u32 {
        let code = match self {
            PeerError::Acknowledged { .. } => CloseCode::Acknowledged,
            PeerError::Delivered { .. } => CloseCode::Delivered,
            PeerError::Window { .. } => CloseCode::Window,
            PeerError::End { .. } => CloseCode::StreamEnd,
            PeerError::Stream { .. } => CloseCode::StreamNumber,
            PeerError::Path { .. } => CloseCode::PathNumber,
            PeerError::Number { .. } => CloseCode::PacketNumber,
        };
        code.number()
    }
}
