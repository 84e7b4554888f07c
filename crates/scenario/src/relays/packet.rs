//! The packets between sources, relays and the receiver.

use units::Bytes;
use wire::tcp::Segment;

/// The size of a report on the wire: two counts, and the headers of a UDP datagram.
const REPORT: Bytes = Bytes(44);

/// A packet of the overlay.
#[derive(Clone, Copy, Debug)]
pub enum OverlayPacket {
    /// A TCP segment of one hop.
    Tcp {
        /// Twice the number of the path, plus one on the second hop.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// The segment.
        segment: Segment,
    },
    /// A report of the receiver to a source about one of its paths, at the end of a control
    /// interval.
    Report {
        /// The path's number.
        path: u32,
        /// The number of intervals that have ended.
        interval: u64,
        /// Payload received over the path since the start.
        received: Bytes,
    },
}

impl netsim::Packet for OverlayPacket {
    #[inline]
    fn size(&self) -> Bytes {
        match self {
            OverlayPacket::Tcp { bytes, .. } => Bytes(u64::from(*bytes)),
            OverlayPacket::Report { .. } => REPORT,
        }
    }

    #[inline]
    fn digest(&self) -> u64 {
        match self {
            OverlayPacket::Tcp { connection, segment, .. } => {
                let flags = u64::from(segment.flags.0) | u64::from(segment.sack_count) << 16;
                segment.seq
                    ^ segment.ack.rotate_left(21)
                    ^ u64::from(*connection).rotate_left(42)
                    ^ flags << 48
            }
            OverlayPacket::Report { path, interval, received } => {
                received.0 ^ interval.rotate_left(42) ^ u64::from(*path).rotate_left(21)
            }
        }
    }
}
