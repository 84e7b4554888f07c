//! What travels over simulated links.

use units::{Bytes, Time};
use wire::tcp::Segment;

/// A packet: who gets it, what it says, how large it is.
#[derive(Clone, Copy, Debug)]
pub enum Packet {
    /// A TCP segment.
    Tcp {
        /// Which connection of the scenario's it belongs to.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// Whether routers may mark it, and whether one did.
        ecn: Ecn,
        /// The segment.
        segment: Segment,
    },
    /// A packet of a striped connection.
    Ptcp {
        /// Which connection of the scenario's it belongs to: which subflow of which flow.
        connection: u32,
        /// Whether routers may mark it, and whether one did.
        ecn: Ecn,
        /// The packet.
        packet: wire::ptcp::Packet,
    },
    /// A UDP datagram.
    Udp {
        /// Which connection of the scenario's it belongs to.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// When it was sent.
        sent_at: Time,
        /// Counts its flow's datagrams.
        number: u64,
    },
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable: it can only be dropped.
    Incapable,
    /// ECN-capable.
    Capable,
    /// Congestion experienced.
    Marked,
}

impl Packet {
    /// Which connection of the scenario's it belongs to: subflows and UDP flows are counted in the file's order.
    #[must_use]
    pub fn connection(&self) -> u32 {
        match self {
            Packet::Tcp { connection, .. } | Packet::Ptcp { connection, .. } | Packet::Udp { connection, .. } => {
                *connection
            }
        }
    }
}

impl netsim::Packet for Packet {
    #[inline]
    fn size(&self) -> Bytes {
        match self {
            Packet::Tcp { bytes, .. } | Packet::Udp { bytes, .. } => Bytes(u64::from(*bytes)),
            Packet::Ptcp { packet, .. } => packet.wire_len(),
        }
    }

    #[inline]
    fn digest(&self) -> u64 {
        match self {
            Packet::Tcp { connection, segment, ecn, .. } => {
                let flags = u64::from(segment.flags.0) | (*ecn as u64) << 8 | u64::from(segment.sack_count) << 16;
                segment.seq ^ segment.ack.rotate_left(21) ^ u64::from(*connection).rotate_left(42) ^ flags << 48
            }
            Packet::Ptcp { connection, packet, ecn } => {
                packet.fingerprint() ^ u64::from(*connection).rotate_left(42) ^ (*ecn as u64) << 56
            }
            Packet::Udp { connection, number, .. } => number ^ u64::from(*connection).rotate_left(42),
        }
    }
    #[inline]
    fn is_ecn_capable(&self) -> bool {
        matches!(
            self,
            Packet::Tcp { ecn: Ecn::Capable | Ecn::Marked, .. } | Packet::Ptcp { ecn: Ecn::Capable | Ecn::Marked, .. }
        )
    }

    #[inline]
    fn mark(&mut self) {
        if let Packet::Tcp { ecn, .. } | Packet::Ptcp { ecn, .. } = self {
            *ecn = Ecn::Marked;
        }
    }

    #[inline]
    fn flow(&self) -> u64 {
        u64::from(self.connection())
    }
}
