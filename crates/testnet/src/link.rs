//! Links and the state of their directions.

use units::{Bytes, Rate, Span, Time};

/// A link between two ends: a FIFO queue with a rate, then a delay, the same in both directions.
///
/// Impairments are in thousandths of packets. They are independent of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The ends that it connects.
    pub ends: [usize; 2],
    /// Bytes leave the queue at this rate; at once if `None`.
    pub rate: Option<Rate>,
    /// From the end of the queue to the other end.
    pub delay: Span,
    /// A packet that meets more than this backlog is dropped.
    pub queue: Bytes,
    /// Packets that are lost behind the queue.
    pub loss: u64,
    /// Packets that arrive twice; half of the copies come late.
    pub duplication: u64,
    /// Packets that come late, so that others overtake them.
    pub reordering: u64,
    /// Late packets are late by less than this.
    pub lateness: Span,
    /// Packets that arrive damaged.
    pub corruption: u64,
}

impl Link {
    /// A link between the ends 0 and 1 that delays and does nothing else.
    #[must_use]
    pub fn new(delay: Span) -> Link {
        Link {
            ends: [0, 1],
            rate: None,
            delay,
            queue: Bytes(u64::MAX),
            loss: 0,
            duplication: 0,
            reordering: 0,
            lateness: Span::ZERO,
            corruption: 0,
        }
    }
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the first of [`Link::ends`] to the second.
    Forward,
    /// From the second to the first.
    Backward,
}

/// The state of one direction of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectionState {
    /// When the last packet of the queue has left it.
    pub(crate) free_at: Time,
    /// Packets that arrive are lost.
    pub(crate) is_cut: bool,
    /// Packets sent so far.
    pub(crate) sent: u64,
}

impl DirectionState {
    /// When a packet of this size that comes at `now` leaves the queue; `None` if the queue is
    /// full.
    pub(crate) fn enqueue(&mut self, now: Time, link: &Link, bytes: Bytes) -> Option<Time> {
        let Some(rate) = link.rate else { return Some(now) };
        if link.queue < Bytes(u64::MAX) && self.free_at.since(now) > link.queue / rate {
            return None;
        }
        self.free_at = self.free_at.max(now) + bytes / rate;
        Some(self.free_at)
    }
}
