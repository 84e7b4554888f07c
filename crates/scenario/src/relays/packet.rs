//! The packets between sources, relays and the receiver.

use units::{Bytes, Rate};
use wire::tcp::Segment;

/// The size of a report on the wire: two counts, and the headers of a UDP datagram.
const REPORT: Bytes = Bytes(44);

/// A packet of the overlay.
#[derive(Clone, Copy, Debug)]
pub enum OverlayPacket {
    /// A TCP segment of one hop.
    Tcp {
        /// The connection of one hop of a path; see `Numbers`.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// The segment.
        segment: Segment,
    },
    /// A report of the receiver to a source about one of its paths, at the end of a control
    /// interval.
    Report {
        /// The path's number; see `Numbers`.
        path: u32,
        /// The number of intervals that have ended.
        interval: u64,
        /// Payload received over the path since it was opened.
        received: Bytes,
        /// The number of packets of the whole report.
        of: u16,
        /// The capacity of the path's last relay, as far as the receiver knows it; zero if it tells
        /// none.
        capacity: Rate,
    },
}

/// How paths and connections are numbered.
///
/// Each place of a path (a source and one of its candidates) has a number, and so has each of its
/// hops. When the path is opened anew, both grow by the number of all places or hops, so that what
/// is under way from before is not taken for the new path's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers(pub(super) u32);

impl Numbers {
    /// The place or hop, and how often it was opened before.
    #[inline]
    pub(super) fn split(self, number: u32) -> (u32, u32) {
        // Most paths are opened once.
        if number < self.0 { (number, 0) } else { (number % self.0, number / self.0) }
    }

    /// The number of a place or hop that was opened this often before.
    pub(super) fn join(self, place: u32, opened: u32) -> u32 {
        place + opened * self.0
    }
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
            OverlayPacket::Report { path, interval, received, capacity, .. } => {
                received.0
                    ^ interval.rotate_left(42)
                    ^ u64::from(*path).rotate_left(21)
                    ^ capacity.as_bits().rotate_left(11)
            }
        }
    }
}
