//! The counters of a link.

use core::ops::{AddAssign, SubAssign};

use units::Bytes;

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of packets.
    pub packets: u64,
    /// The sum of their sizes.
    pub bytes: Bytes,
}

impl Tally {
    /// One packet.
    #[must_use]
    #[inline]
    pub fn one(bytes: Bytes) -> Tally {
        Tally { packets: 1, bytes }
    }
}

impl AddAssign for Tally {
    #[inline]
    fn add_assign(&mut self, other: Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Tally {
    #[inline]
    fn sub_assign(&mut self, other: Tally) {
        self.packets -= other.packets;
        self.bytes -= other.bytes;
    }
}

/// The counters of a link. Duplicates count as offered too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered to the link.
    pub offered: Tally,
    /// Packets taken out at the far end.
    pub delivered: Tally,
    /// The largest backlog, the packet on the wire included.
    pub max_queue: Bytes,
    /// Dropped by a full queue, on arrival or, by FQ-CoDel, from the front.
    pub dropped_queue: u64,
    /// Dropped by AQM or a policer, on arrival or on departure from the queue.
    pub dropped_aqm: u64,
    /// Marked by AQM, packets that are lost later included.
    pub marked: u64,
    /// Dropped by random loss.
    pub dropped_loss: u64,
    /// Dropped in a blackout, on arrival or on departure from the queue.
    pub dropped_blackout: u64,
    /// Dropped because they are larger than the MTU.
    pub dropped_mtu: u64,
    /// Duplicates made.
    pub duplicated: u64,
    /// Packets held back by reordering.
    pub reordered: u64,
    /// Packets corrupted.
    pub corrupted: u64,
}

impl Counters {
    /// Packets dropped for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped_queue
            + self.dropped_aqm
            + self.dropped_loss
            + self.dropped_blackout
            + self.dropped_mtu
    }
}
