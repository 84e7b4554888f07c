//! Packets of the striped connection (pTCP), in typed form: one packet, one body.
//!
//! A packet goes over one path in one UDP datagram: a body, and for [`Body::Data`],
//! [`Body::Datagram`] and [`Body::Raw`] the payload behind it. Every transmission takes a new
//! number on its path, so that the number can be the nonce of the cipher; stream and offset alone
//! identify the data. An acknowledgement names packet numbers of a path, for congestion control,
//! and an offset of a stream, to free buffers.
//!
//! Typed packets are small: a simulation carries them as they are, with [`Packet::wire_len`] as
//! their size. Only an acknowledgement with [`OlderRanges`] has memory of its own. [`Packet::emit`]
//! and [`Packet::parse`] translate to bytes and back without loss. `docs/wire.md` has every octet:
//!
//! | part | octets | |
//! |---|---|---|
//! | octet 0 | 1 | [`datagram`] |
//! | label of path and direction | 8 | |
//! | packet number, its lower half | 4 | |
//! | kind | 1 | [`Packet::emit`], sealed from here on |
//! | body | by kind | |
//! | payload | the rest | the caller's |
//! | tag of the cipher | 16 | |
//!
//! All integers are big-endian. Pieces of the handshake, [`Body::Flight`], have headers of their
//! own.

mod ack;
mod flight;
mod parameters;
mod parse;

use units::{Bytes, SubflowId};

use crate::bind::BIND;
use crate::datagram::{self, DATA_NUMBER_AT};

pub use ack::{Ack, Marks, OlderRanges, PacketRange};
pub use flight::{Flight, Piece};
pub use parameters::ConnectionParameters;
pub use parse::Parsed;

/// IPv4 and UDP headers.
pub const DATAGRAM_HEADERS: Bytes = Bytes(28);
/// Octets of the packet number: all packets of a size carry the same payload.
pub const NUMBER: usize = 4;
/// Octets in front of the body: octet 0, label, number, kind.
pub const HEADER: usize = DATA_NUMBER_AT + NUMBER + 1;
/// Octets of the cipher's tag.
pub const TAG: usize = datagram::TAG;
/// Octets of padding that make a ping as long as a relay's question: a relay to which it came from
/// an address that it does not know asks, and with no more than it got.
#[expect(clippy::cast_possible_truncation, reason = "it is compared")]
pub const PING_PADDING: u16 = {
    let padding = BIND.saturating_sub(HEADER + PING_BODY + TAG);
    assert!(padding <= u16::MAX as usize);
    padding as u16
};
/// Octets of a ping without padding.
const PING_BODY: usize = 2;
/// Octets of a [`StreamData`] body before its payload.
pub const DATA: usize = 18;
/// In a [`Body::StreamWindow`] the number of no stream: its limit is the number of streams that the
/// peer may have open, in place of a smaller one.
pub const ALL_STREAMS: u32 = u32::MAX;
/// The least size of the first packets on a path. A path that cannot carry them is not used, and a
/// peer with a false address cannot provoke more bytes than it sends (RFC 9000, section 8.1).
pub const MIN_FULL: Bytes = Bytes(1_200);
/// Octets of a body that fills such a packet.
#[expect(clippy::cast_possible_truncation, reason = "it is 1,200")]
const FULL_BODY: usize = MIN_FULL.0 as usize - HEADER - TAG;

/// A packet, without the path that it is sent over. 56 bytes, so that a simulated one fits a cache
/// line with room for its connection and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number on the path: new for each transmission.
    pub number: u64,
    /// Its body.
    pub body: Body,
}

/// The path for the answer to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Over this path.
    Path(SubflowId),
    /// Every path, at once: the sender has had no answer on this one for too long.
    All,
}

/// The body of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A piece of a stream.
    Data(StreamData),
    /// A datagram of the application, delivered at most once and in any order.
    Datagram {
        /// Its size.
        len: u16,
        /// Where acknowledgements are to go.
        reply: Reply,
    },
    /// A datagram of the application on a path of its choice, outside of the windows; it is not
    /// acknowledged.
    Raw {
        /// Its size.
        len: u16,
    },
    /// An acknowledgement.
    Ack(Ack),
    /// The flow control limit of a stream.
    StreamWindow {
        /// The stream, or [`ALL_STREAMS`].
        stream: u32,
        /// The offset that may not be passed.
        limit: u64,
    },
    /// The sender asks for a receive buffer of this size.
    Need {
        /// In bytes.
        buffer: u64,
    },
    /// The sender ends this stream early; lost data is not retransmitted.
    Reset {
        /// The stream.
        stream: u32,
        /// The application's reason.
        code: u32,
        /// Where it ends for flow control.
        end: u64,
    },
    /// The receiver does not want more of this stream.
    Stop {
        /// The stream.
        stream: u32,
        /// The application's reason.
        code: u32,
    },
    /// The path is retired; its number is never reused.
    Retire {
        /// The path.
        path: SubflowId,
    },
    /// The connection ends.
    Close {
        /// The application's reason.
        code: u32,
    },
    /// Asks for an acknowledgement, and nothing else.
    Ping {
        /// Octets of padding.
        padding: u16,
        /// Where the acknowledgement is to go.
        reply: Reply,
    },
    /// The receiver answers with the same token on the same path.
    Challenge {
        /// An unpredictable number.
        token: u64,
        /// Octets of padding, beyond [`MIN_FULL`]: whether the path carries packets of that size.
        padding: u16,
    },
    /// The same without padding, to an address that may not get as much before it answers.
    ShortChallenge {
        /// An unpredictable number.
        token: u64,
    },
    /// The answer to [`Body::Challenge`] and [`Body::ShortChallenge`].
    Response {
        /// The challenge's token.
        token: u64,
    },
    /// A part of the handshake.
    Flight(Piece),
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamData {
    /// Its offset in the stream: the data sequence number.
    pub offset: u64,
    /// The stream.
    pub stream: u32,
    /// When it was sent, by the sender's clock in microseconds; wraps.
    pub stamp: u32,
    /// Octets of payload.
    pub len: u16,
    /// Where acknowledgements are to go.
    pub reply: Reply,
    /// Whether the stream ends behind it.
    pub is_last: bool,
}

impl Packet {
    /// Whether its receiver has to acknowledge it.
    #[must_use]
    pub const fn is_eliciting(&self) -> bool {
        !matches!(
            self.body,
            Body::Ack(_)
                | Body::Response { .. }
                | Body::Challenge { .. }
                | Body::ShortChallenge { .. }
                | Body::Flight(_)
                | Body::Close { .. }
                | Body::Raw { .. }
        )
    }

    /// A number that stands for its content in digests of simulations: equal for equal packets, and
    /// for hardly any others.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        let (kind, a, b) = match self.body {
            Body::Data(StreamData { offset, stream, len, .. }) => {
                (1, offset, (stream as u64) << 16 | len as u64)
            }
            Body::Datagram { len, .. } => (2, len as u64, 0),
            Body::Ack(Ack { largest, delivered, limit, path, first, ref older, .. }) => (
                3,
                largest ^ delivered.rotate_left(20) ^ older.fingerprint(),
                (limit as u64) << 32 | (path.0 as u64) << 16 | first as u64,
            ),
            Body::StreamWindow { stream, limit } => (4, limit, stream as u64),
            Body::Need { buffer } => (5, buffer, 0),
            Body::Reset { stream, code, end } => (6, end, (code as u64) << 32 | stream as u64),
            Body::Stop { stream, code } => (7, code as u64, stream as u64),
            Body::Retire { path } => (8, path.0 as u64, 0),
            Body::Close { code } => (9, code as u64, 0),
            Body::Ping { padding, .. } => (10, padding as u64, 0),
            Body::Challenge { token, padding } => (11, token, padding as u64),
            Body::Response { token } => (12, token, 0),
            Body::Flight(piece) => (13, piece.flight as u64, piece.offset as u64),
            Body::Raw { len } => (14, len as u64, 0),
            Body::ShortChallenge { token } => (15, token, 0),
        };
        self.number ^ a.rotate_left(13) ^ b.rotate_left(37) ^ kind << 60
    }

    /// Octets of payload behind the body.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        match self.body {
            Body::Data(StreamData { len, .. }) | Body::Datagram { len, .. } | Body::Raw { len } => {
                len as usize
            }
            _ => 0,
        }
    }

    /// Octets of the body without payload.
    #[inline]
    #[must_use]
    pub const fn body_len(&self) -> usize {
        match self.body {
            Body::Data(_) => DATA,
            Body::Datagram { .. } | Body::Retire { .. } => 2,
            Body::Ack(ref ack) => ack.body_len(),
            Body::StreamWindow { .. } => 12,
            Body::Need { .. } | Body::Stop { .. } | Body::ShortChallenge { .. } => 8,
            Body::Reset { .. } => 16,
            Body::Close { .. } => 4,
            Body::Ping { padding, .. } => PING_BODY + padding as usize,
            // Full packets: whoever answers sends no more than came.
            Body::Challenge { padding, .. } => FULL_BODY + padding as usize,
            Body::Response { .. } => FULL_BODY,
            // A flight has a header of its own.
            Body::Raw { .. } | Body::Flight(_) => 0,
        }
    }

    /// Its size as a UDP payload, the cipher's tag included.
    #[inline]
    #[must_use]
    pub const fn datagram_len(&self) -> usize {
        match self.body {
            Body::Flight(piece) => piece.datagram_len(),
            _ => HEADER + self.body_len() + self.payload_len() + TAG,
        }
    }

    /// Its size on the wire, IP and UDP headers included.
    #[inline]
    #[must_use]
    pub const fn wire_len(&self) -> Bytes {
        Bytes(self.datagram_len() as u64 + DATAGRAM_HEADERS.0)
    }

    /// The most payload of a [`Body::Raw`] packet in a UDP datagram of this size.
    #[must_use]
    pub const fn room_for_raw(datagram: Bytes) -> Bytes {
        Bytes(datagram.0.saturating_sub((HEADER + TAG) as u64))
    }

    /// The most payload of a [`Body::Data`] packet in a UDP datagram of this size.
    #[must_use]
    pub const fn room_for_data(datagram: Bytes) -> Bytes {
        Bytes(datagram.0.saturating_sub((HEADER + DATA + TAG) as u64))
    }
}
