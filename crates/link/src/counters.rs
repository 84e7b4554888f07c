//! What a link counts.

use core::ops::{AddAssign, SubAssign};

use units::Bytes;

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub packets: u64,
    /// How large together.
    pub bytes: Bytes,
}

impl Tally {
    /// A packet.
    #[inline]
    pub(crate) fn one(bytes: Bytes) -> Tally {
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

/// What happened so far. Copies made by duplication are offered too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All that came to the link.
    pub offered: Tally,
    /// All that was taken out at the far end.
    pub delivered: Tally,
    /// The most that ever waited, the packet on the wire included.
    pub max_queue: Bytes,
    /// Dropped by a full queue, on arrival or, by FQ-CoDel, from the front.
    pub dropped_queue: u64,
    /// Dropped by the queue's management, on arrival or when leaving the queue.
    pub dropped_aqm: u64,
    /// Marked by the queue's management instead; later losses count too.
    pub marked: u64,
    /// Dropped at random.
    pub dropped_loss: u64,
    /// Dropped in a blackout, on arrival or when leaving the queue.
    pub dropped_blackout: u64,
    /// Dropped for their size.
    pub dropped_mtu: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets damaged.
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
