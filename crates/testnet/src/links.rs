//! Links and the state of their directions.

use link::{Limit, Loss, Profile, Reorder};
use units::{Bytes, Rate, Seed, Span};

/// A link between two ends, the same in both directions: each is a [`link::Link`] with a drop-tail
/// queue and a fixed delay.
///
/// Impairments are in thousandths of packets. They are independent of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The ends that it connects.
    pub ends: [usize; 2],
    /// The rate; `None` if packets take no time on the wire and no room in the queue.
    pub rate: Option<Rate>,
    /// The propagation delay.
    pub delay: Span,
    /// The limit of the backlog. An idle link always accepts one packet.
    pub queue: Bytes,
    /// Packets that are lost before they reach the queue.
    pub loss: u64,
    /// Packets that are queued twice.
    pub duplication: u64,
    /// Packets that are held back, so that others overtake them.
    pub reordering: u64,
    /// The additional delay of packets that are held back.
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

    /// The size of a packet of `bytes` on this link.
    pub(crate) fn size(&self, bytes: Bytes) -> Bytes {
        // `link::Link` has no infinite rate, but a packet without size takes no time at any rate.
        if self.rate.is_some() { bytes } else { Bytes::ZERO }
    }

    fn profile(&self) -> Profile {
        Profile {
            queue: Limit::Bytes(self.queue),
            loss: Loss::Bernoulli(share(self.loss)),
            duplicate: share(self.duplication),
            reorder: Some(Reorder { probability: share(self.reordering), delay: self.lateness }),
            corrupt: share(self.corruption),
            ..Profile::new(self.rate.unwrap_or(Rate::mbit(1)), self.delay)
        }
    }
}

/// Thousandths as a probability.
fn share(thousandths: u64) -> f64 {
    f64::from(u32::try_from(thousandths).expect("at most a thousand")) / 1_000.0
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the first of [`Link::ends`] to the second.
    Forward,
    /// From the second to the first.
    Backward,
}

impl Direction {
    pub(crate) const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];
}

/// The state of one direction of a link.
#[derive(Clone, Debug)]
pub(crate) struct DirectionState {
    /// Carries the numbers of packets in flight.
    pub(crate) line: link::Link<u64>,
    /// Packets that arrive are lost.
    pub(crate) is_cut: bool,
    /// Packets sent so far.
    pub(crate) sent: u64,
}

impl DirectionState {
    pub(crate) fn new(link: &Link, seed: Seed) -> DirectionState {
        DirectionState { line: link::Link::new(link.profile(), seed), is_cut: false, sent: 0 }
    }
}
