//! The backlog of a queue over time.

use alloc::vec::Vec;
use core::ops::{AddAssign, SubAssign};

use units::{Span, Time};

use crate::counters::Tally;

/// The time integrals of what waits in a queue, the packet on the wire not counted. The difference
/// of two of them, divided by the time between, is the exact mean backlog in that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueArea {
    /// Packets times nanoseconds.
    pub packets: u128,
    /// Bytes times nanoseconds.
    pub bytes: u128,
    /// Packets that have left the queue, for the wire or dropped from it. The integral of the
    /// packets over these is the mean time that a packet waits (Little's law).
    pub left: u64,
}

impl QueueArea {
    /// This backlog over a time, in which nothing leaves.
    #[inline]
    #[must_use]
    pub fn new(backlog: Tally, time: Span) -> QueueArea {
        let time = u128::from(time.as_nanos());
        QueueArea {
            packets: u128::from(backlog.packets) * time,
            bytes: u128::from(backlog.bytes.0) * time,
            left: 0,
        }
    }
}

impl AddAssign for QueueArea {
    #[inline]
    fn add_assign(&mut self, other: QueueArea) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.left += other.left;
    }
}

impl SubAssign for QueueArea {
    #[inline]
    fn sub_assign(&mut self, other: QueueArea) {
        self.packets -= other.packets;
        self.bytes -= other.bytes;
        self.left -= other.left;
    }
}

/// How long a queue had each length, the packet on the wire not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueLevels {
    /// By the number of packets, from one on: nanoseconds.
    nanos: Vec<u64>,
    since: Time,
}

impl QueueLevels {
    /// The queue had `packets` from the time of the last call, or from the start, until `now`.
    /// Times do not run backwards.
    ///
    /// # Panics
    /// If a queue of so many packets fits no memory.
    #[inline]
    pub fn advance(&mut self, now: Time, packets: u64) {
        let time = now.since(self.since).as_nanos();
        self.since = self.since.max(now);
        if let (Some(level), true) = (packets.checked_sub(1), time > 0) {
            let level = usize::try_from(level).expect("a queue in memory");
            if level >= self.nanos.len() {
                self.nanos.resize(level + 1, 0);
            }
            self.nanos[level] += time;
        }
    }

    /// The nanoseconds with one packet, with two, and so on.
    #[must_use]
    pub fn nanos(&self) -> &[u64] {
        &self.nanos
    }
}

/// Integrates a backlog whose changes are told as they happen.
#[derive(Clone, Debug, Default)]
pub(crate) struct AreaClock {
    area: QueueArea,
    levels: QueueLevels,
    since: Time,
    /// Packets so far.
    entered: u64,
}

impl AreaClock {
    /// A packet enters the queue.
    pub(crate) fn enter(&mut self) {
        self.entered += 1;
    }

    /// The backlog has been `backlog` until `now`. Times do not run backwards.
    pub(crate) fn advance(&mut self, now: Time, backlog: Tally) -> QueueArea {
        self.area += QueueArea::new(backlog, now.since(self.since));
        self.levels.advance(now, backlog.packets);
        self.since = self.since.max(now);
        QueueArea { left: self.entered - backlog.packets, ..self.area }
    }

    /// How long the backlog had each length so far.
    pub(crate) fn levels(&self) -> &QueueLevels {
        &self.levels
    }
}
