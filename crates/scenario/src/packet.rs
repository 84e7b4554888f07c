//! The packets of simulated networks.

use units::{Bytes, Time};
use wire::harp::{PROBE, Report, Stamp};
use wire::tcp::{CeCounters, Flags, SackBlock, Segment};

/// A packet: its connection, its size and its headers.
#[derive(Clone, Debug)]
pub enum Packet {
    /// A TCP segment.
    Tcp {
        /// The number of its connection in the scenario.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// The ECN field.
        ecn: Ecn,
        /// The segment.
        segment: Segment,
    },
    /// A packet of a striped connection.
    Ptcp {
        /// The number of its connection in the scenario: one for each subflow.
        connection: u32,
        /// The ECN field.
        ecn: Ecn,
        /// The packet.
        packet: wire::ptcp::Packet,
    },
    /// A TCP segment with a record of a stream that is striped over several connections, or with a
    /// piece of one.
    Record {
        /// The number of its connection in the scenario.
        connection: u32,
        /// The record, or the piece of one, that it carries.
        piece: Piece,
        /// Its size on the wire.
        bytes: u16,
        /// The ECN field.
        ecn: Ecn,
        /// The segment.
        header: Header,
    },
    /// A UDP datagram.
    Udp {
        /// The number of its connection in the scenario.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// When it was sent.
        sent_at: Time,
        /// The number of the datagram in its flow.
        number: u64,
    },
    /// A TCP segment with payload on its way from one gateway to the other, in a UDP datagram.
    Tunnelled {
        /// The number of its connection in the scenario.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// The ECN field, of the datagram and of the segment in it (RFC 6040).
        ecn: Ecn,
        /// Its path, and when it left.
        stamp: Stamp,
        /// The segment.
        header: Header,
    },
    /// A TCP segment without payload on its way from one gateway to the other, in a UDP datagram.
    Returned {
        /// The number of its connection in the scenario.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// The ECN field, as of [`Packet::Tunnelled`].
        ecn: Ecn,
        /// The segment.
        segment: Segment,
    },
    /// A TCP segment between the nodes of two gateways, both of which only forward it.
    Forwarded {
        /// The number of its connection in the scenario.
        connection: u32,
        /// Its size on the wire.
        bytes: u16,
        /// The ECN field.
        ecn: Ecn,
        /// The segment.
        segment: Segment,
    },
    /// A gateway's probe of a path.
    Probe {
        /// The number of its connection in the scenario.
        connection: u32,
        /// Its path, and when it left.
        stamp: Stamp,
    },
    /// A gateway's report of what arrived.
    Report {
        /// The number of its connection in the scenario.
        connection: u32,
        /// What it says.
        report: Report,
    },
}

const _: () = assert!(size_of::<Packet>() <= 64, "a cache line");

/// The IPv4 and UDP headers of a datagram between gateways.
pub(crate) const OUTER_HEADERS: usize = 28;

/// A part of a record in a packet: usually all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The record's number in the stream.
    pub number: u32,
    /// The piece's offset in the record.
    pub from: u16,
    /// Whether the record ends with it.
    pub is_last: bool,
}

/// A [`Segment`] without selective acknowledgements.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    seq: u64,
    ack: u64,
    window: u32,
    len: u16,
    flags: Flags,
    timestamp: u32,
    timestamp_echo: u32,
    ce: CeCounters,
}

impl Header {
    /// The header of a segment, without its selective acknowledgements.
    #[must_use]
    pub fn of(segment: &Segment) -> Header {
        let Segment { seq, ack, window, len, flags, timestamp, timestamp_echo, .. } = *segment;
        Header { seq, ack, window, len, flags, timestamp, timestamp_echo, ce: segment.ce() }
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> Segment {
        let Header { seq, ack, window, len, flags, timestamp, timestamp_echo, ce } = *self;
        let (sack_count, sack) = (0, [SackBlock::default(); 3]);
        let mut segment =
            Segment { seq, ack, window, len, flags, sack_count, sack, timestamp, timestamp_echo };
        segment.set_ce(ce);
        segment
    }
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    #[default]
    /// Not ECN-capable (not ECT): it can only be dropped.
    Incapable,
    /// ECN-capable transport (ECT).
    Capable,
    /// Congestion experienced (CE).
    Marked,
    /// ECN-capable, of a scalable congestion control: ECT(1) (RFC 9331).
    Scalable,
}

impl Ecn {
    /// Of a packet that leaves its sender.
    pub(crate) fn of(is_ecn_capable: bool, is_scalable: bool) -> Ecn {
        match (is_ecn_capable, is_scalable) {
            (false, _) => Ecn::Incapable,
            (true, false) => Ecn::Capable,
            (true, true) => Ecn::Scalable,
        }
    }
}

impl Packet {
    /// The number of its connection: subflows and UDP flows are counted in the order of the file.
    #[must_use]
    pub fn connection(&self) -> u32 {
        match self {
            Packet::Tcp { connection, .. }
            | Packet::Ptcp { connection, .. }
            | Packet::Record { connection, .. }
            | Packet::Udp { connection, .. }
            | Packet::Tunnelled { connection, .. }
            | Packet::Returned { connection, .. }
            | Packet::Forwarded { connection, .. }
            | Packet::Probe { connection, .. }
            | Packet::Report { connection, .. } => *connection,
        }
    }

    /// Whether it has data, a FIN, or anything else that its receiver must acknowledge; every
    /// datagram of UDP.
    #[must_use]
    pub fn has_data(&self) -> bool {
        match self {
            Packet::Tcp { segment, .. }
            | Packet::Returned { segment, .. }
            | Packet::Forwarded { segment, .. } => segment.len > 0 || segment.flags.has(Flags::FIN),
            Packet::Record { header, .. } | Packet::Tunnelled { header, .. } => {
                header.len > 0 || header.flags.has(Flags::FIN)
            }
            Packet::Ptcp { packet, .. } => packet.is_eliciting(),
            Packet::Udp { .. } => true,
            Packet::Probe { .. } | Packet::Report { .. } => false,
        }
    }

    /// Whether it travels between two gateways.
    #[must_use]
    pub fn is_between_gateways(&self) -> bool {
        matches!(
            self,
            Packet::Tunnelled { .. }
                | Packet::Returned { .. }
                | Packet::Forwarded { .. }
                | Packet::Probe { .. }
                | Packet::Report { .. }
        )
    }

    /// Its ECN field.
    #[must_use]
    pub fn ecn(&self) -> Ecn {
        match self {
            Packet::Tcp { ecn, .. }
            | Packet::Ptcp { ecn, .. }
            | Packet::Record { ecn, .. }
            | Packet::Tunnelled { ecn, .. }
            | Packet::Returned { ecn, .. }
            | Packet::Forwarded { ecn, .. } => *ecn,
            Packet::Udp { .. } | Packet::Probe { .. } | Packet::Report { .. } => Ecn::Incapable,
        }
    }
}

impl netsim::Packet for Packet {
    #[inline]
    fn size(&self) -> Bytes {
        match self {
            Packet::Tcp { bytes, .. }
            | Packet::Record { bytes, .. }
            | Packet::Udp { bytes, .. }
            | Packet::Tunnelled { bytes, .. }
            | Packet::Returned { bytes, .. }
            | Packet::Forwarded { bytes, .. } => Bytes(u64::from(*bytes)),
            Packet::Ptcp { packet, .. } => packet.wire_len(),
            Packet::Probe { .. } => Bytes((OUTER_HEADERS + PROBE) as u64),
            Packet::Report { report, .. } => Bytes((OUTER_HEADERS + report.wire_len()) as u64),
        }
    }

    #[inline]
    fn digest(&self) -> u64 {
        match self {
            Packet::Tcp { connection, segment, ecn, .. }
            | Packet::Returned { connection, segment, ecn, .. }
            | Packet::Forwarded { connection, segment, ecn, .. } => {
                let flags = u64::from(segment.flags.0)
                    | (*ecn as u64) << 8
                    | u64::from(segment.sack_count) << 16;
                segment.seq
                    ^ segment.ack.rotate_left(21)
                    ^ u64::from(*connection).rotate_left(42)
                    ^ flags << 48
            }
            Packet::Ptcp { connection, packet, ecn } => {
                packet.fingerprint() ^ u64::from(*connection).rotate_left(42) ^ (*ecn as u64) << 56
            }
            Packet::Record { connection, piece, header, ecn, .. } => {
                let flags = u64::from(header.flags.0) | (*ecn as u64) << 8;
                let number = u64::from(piece.number) ^ u64::from(piece.from) << 32;
                let place = u64::from(*connection).rotate_left(42) ^ number.rotate_left(10);
                header.seq ^ header.ack.rotate_left(21) ^ place ^ flags << 48
            }
            Packet::Udp { connection, number, .. } => {
                number ^ u64::from(*connection).rotate_left(42)
            }
            Packet::Tunnelled { connection, stamp, header, ecn, .. } => {
                let flags = u64::from(header.flags.0) | (*ecn as u64) << 8;
                let place = u64::from(*connection).rotate_left(42) ^ of_stamp(stamp);
                header.seq ^ header.ack.rotate_left(21) ^ place ^ flags << 48
            }
            Packet::Probe { connection, stamp } => {
                u64::from(*connection).rotate_left(42) ^ of_stamp(stamp)
            }
            Packet::Report { connection, report } => {
                let (from, len) = report.lost;
                let paths = u64::from(report.open) | u64::from(report.queued) << 8;
                let mut hash = paths ^ u64::from(from) << 32 ^ u64::from(len);
                for entry in report.entries() {
                    let weight = u64::from(entry.path) | u64::from(entry.weight) << 8;
                    hash = hash.rotate_left(7) ^ weight << 32 ^ u64::from(entry.echo);
                }
                hash ^ u64::from(*connection).rotate_left(42)
            }
        }
    }

    #[inline]
    fn is_ecn_capable(&self) -> bool {
        match self {
            Packet::Tcp { ecn, .. }
            | Packet::Ptcp { ecn, .. }
            | Packet::Record { ecn, .. }
            | Packet::Tunnelled { ecn, .. }
            | Packet::Returned { ecn, .. }
            | Packet::Forwarded { ecn, .. } => *ecn != Ecn::Incapable,
            Packet::Udp { .. } | Packet::Probe { .. } | Packet::Report { .. } => false,
        }
    }

    #[inline]
    fn is_scalable(&self) -> bool {
        matches!(self.ecn(), Ecn::Scalable | Ecn::Marked)
    }

    #[inline]
    fn mark(&mut self) {
        if let Packet::Tcp { ecn, .. }
        | Packet::Ptcp { ecn, .. }
        | Packet::Record { ecn, .. }
        | Packet::Tunnelled { ecn, .. }
        | Packet::Returned { ecn, .. }
        | Packet::Forwarded { ecn, .. } = self
        {
            *ecn = Ecn::Marked;
        }
    }

    #[inline]
    fn flow(&self) -> u64 {
        u64::from(self.connection())
    }
}

/// A stamp's part of a digest.
fn of_stamp(stamp: &Stamp) -> u64 {
    u64::from(stamp.path) << 56
        ^ u64::from(stamp.srtt).rotate_left(32)
        ^ u64::from(stamp.sent) << 10
}
