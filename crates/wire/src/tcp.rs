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
    /// Ranges that arrived beyond `ack` (RFC 2018), the one with the latest segment first.
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
    /// `ack` is valid.
    pub const ACK: Flags = Flags(0x10);
    /// A marked packet arrived (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// The congestion window was reduced (RFC 3168).
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
        &self.sack[..usize::from(self.sack_count).min(3)]
    }
}
