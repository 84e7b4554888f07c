//! TCP segments in typed form (RFC 9293): header fields without payload bytes.
//!
//! Positions count the whole stream in 64 bits and never wrap: a real segment carries the lower 32
//! bits, and both ends know the others. The SYN takes position 0, the first payload byte is at 1,
//! the FIN takes the position behind the last.

use units::Bytes;

/// IPv4 and TCP headers without options.
pub const HEADERS: Bytes = Bytes(40);

/// The timestamps option, padded (RFC 7323, section 3).
pub const TIMESTAMPS: Bytes = Bytes(12);

/// A segment. 56 bytes, so that a simulated packet fits a cache line with room for a flow's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The position of its first byte.
    pub seq: u64,
    /// The next position that its sender expects; valid with [`Flags::ACK`] only.
    pub ack: u64,
    /// The receive window from `ack` on, in bytes, window scaling applied.
    pub window: u32,
    /// Payload bytes.
    pub len: u16,
    /// SYN, ACK, FIN and so on.
    pub flags: Flags,
    /// The number of valid blocks in `sack`.
    pub sack_count: u8,
    /// Ranges that arrived beyond `ack` (RFC 2018), the one with the latest segment first. With
    /// [`Flags::COUNTERS`], the last place holds the [`CeCounters`]: options have room for no more.
    pub sack: [SackBlock; 3],
    /// The sender's clock (RFC 7323), in microseconds; wraps.
    pub timestamp: u32,
    /// The clock of the segment that this one answers.
    pub timestamp_echo: u32,
}

/// A range of positions, relative to [`Segment::ack`] and possibly below it (a duplicate, RFC
/// 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// First position less `ack`.
    pub from: i32,
    /// The number of positions.
    pub len: u32,
}

/// The packets marked Congestion Experienced that an end received since the connection opened, and
/// their payload (RFC 9768, section 3.2.1: `r.cep` and `r.ceb`). Both numbers wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CeCounters {
    /// Packets.
    pub packets: u32,
    /// Bytes of payload.
    pub bytes: u32,
}

impl CeCounters {
    /// A further marked packet arrived.
    pub const fn count(&mut self, payload: u32) {
        self.packets = self.packets.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(payload);
    }

    /// What was counted since the counters stood at `earlier`; `None` if that is nothing, or if
    /// `earlier` is the later one: acknowledgements may be reordered.
    #[must_use]
    pub const fn since(self, earlier: CeCounters) -> Option<CeCounters> {
        let packets = self.packets.wrapping_sub(earlier.packets);
        if packets == 0 || packets > u32::MAX / 2 {
            return None;
        }
        Some(CeCounters { packets, bytes: self.bytes.wrapping_sub(earlier.bytes) })
    }
}

/// The flags of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// The first segment of either side.
    pub const SYN: Flags = Flags(0x02);
    /// The connection is gone.
    pub const RST: Flags = Flags(0x04);
    /// Accurate ECN, the highest bit of its field (RFC 9768, section 3.2.2); [`Flags::CWR`] and
    /// [`Flags::ECE`] are the others. In a header it is beside CWR; here it has the place of PSH,
    /// which nothing sends.
    pub const AE: Flags = Flags(0x08);
    /// `ack` is valid.
    pub const ACK: Flags = Flags(0x10);
    /// The segment carries [`CeCounters`]. Not a flag of the header: its place is that of URG,
    /// which nothing sends.
    pub const COUNTERS: Flags = Flags(0x20);
    /// A marked packet arrived (RFC 3168), or the lowest bit of accurate ECN.
    pub const ECE: Flags = Flags(0x40);
    /// The congestion window was reduced (RFC 3168), or the middle bit of accurate ECN.
    pub const CWR: Flags = Flags(0x80);

    /// Whether all of `flags` are set.
    #[must_use]
    #[inline]
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// The union of both.
    #[must_use]
    #[inline]
    pub const fn with(self, flags: Flags) -> Flags {
        Flags(self.0 | flags.0)
    }
}

/// The number of blocks that a segment with counters has room for.
const MOST_BESIDE_COUNTERS: usize = 2;

impl Segment {
    /// The number of positions that it takes: payload, SYN and FIN.
    #[must_use]
    #[inline]
    pub const fn span(&self) -> u64 {
        self.len as u64 + self.flags.has(Flags::SYN) as u64 + self.flags.has(Flags::FIN) as u64
    }

    /// The valid blocks.
    #[must_use]
    #[inline]
    pub fn sacked(&self) -> &[SackBlock] {
        let most = if self.flags.has(Flags::COUNTERS) { MOST_BESIDE_COUNTERS } else { 3 };
        &self.sack[..usize::from(self.sack_count).min(most)]
    }

    /// The counters of marks; zero if it carries none.
    #[must_use]
    #[inline]
    pub const fn ce(&self) -> CeCounters {
        if self.flags.has(Flags::COUNTERS) {
            let SackBlock { from, len } = self.sack[MOST_BESIDE_COUNTERS];
            CeCounters { packets: from.cast_unsigned(), bytes: len }
        } else {
            CeCounters { packets: 0, bytes: 0 }
        }
    }

    /// Adds the counters, in the place of a third block. Zeros need no place: they are understood.
    #[inline]
    pub const fn set_ce(&mut self, ce: CeCounters) {
        if ce.packets == 0 && ce.bytes == 0 {
            return;
        }
        self.flags = self.flags.with(Flags::COUNTERS);
        if self.sack_count > 2 {
            self.sack_count = 2;
        }
        self.sack[MOST_BESIDE_COUNTERS] =
            SackBlock { from: ce.packets.cast_signed(), len: ce.bytes };
    }
}

/// A segment as a gateway sees it: header fields as they are on the wire, with positions of 32 bits
/// that wrap, and a window that is not scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The position of its first byte.
    pub seq: u32,
    /// The next position that its sender expects; valid with [`Flags::ACK`] only.
    pub ack: u32,
    /// The window field: bytes shifted right by what the option in the SYN said, if both had it;
    /// never scaled in a SYN (RFC 7323, section 2.2).
    pub window: u16,
    /// Payload bytes.
    pub len: u16,
    /// SYN, ACK, FIN and so on.
    pub flags: Flags,
    /// The shift of a window scale option, in SYNs only.
    pub scale: Option<u8>,
    /// The value of a maximum segment size option, in SYNs only.
    pub mss: Option<u16>,
}

impl Meta {
    /// The number of positions that it takes: payload, SYN and FIN.
    #[must_use]
    pub const fn span(&self) -> u32 {
        self.len as u32 + self.flags.has(Flags::SYN) as u32 + self.flags.has(Flags::FIN) as u32
    }
}
