//! The transmitter of a link with a constant rate and packets in order: the arrival of a packet is
//! known as it is offered.

use units::{Rate, Span, Time};

use crate::area::QueueArea;
use crate::counters::Tally;
use crate::offer::{Delivery, Waiting};
use crate::pool::{Pool, PooledFifo};
use crate::profile::Profile;
use crate::wire::Wire;

/// The packets of a link in one queue, each with its departure.
///
/// It agrees with [`Varying`](crate::varying::Varying) to the nanosecond, but a packet moves once
/// instead of twice, and there is no division as long as sizes repeat.
#[derive(Clone, Debug)]
pub(crate) struct Fixed<P> {
    fifo: PooledFifo,
    pool: Pool<Option<Held<P>>>,
    wire: Wire,
    /// The departure of the last packet, past or future.
    free: Time,
    delay: Span,
    /// The sum of the times from each packet's arrival to its turn.
    waits: QueueArea,
}

/// A packet and its marks.
#[derive(Clone, Debug)]
struct Held<P> {
    packet: P,
    is_corrupted: bool,
    is_marked: bool,
}

/// Whether a [`Fixed`] can carry out the profile: no changes of rate, no rate of zero, no
/// blackouts, no reordering, no jitter, and no queue that decides on packets as they leave.
pub(crate) fn is_fixed(profile: &Profile) -> bool {
    profile.rate.is_constant()
        && profile.rate.base > Rate::ZERO
        && profile.blackouts.is_empty()
        && profile.reorder.is_none()
        && profile.jitter.is_none()
        && profile.aqm.decides_on_arrival()
}

impl<P> Fixed<P> {
    /// Idle. The profile must be [fixed](is_fixed).
    pub(crate) fn new(profile: &Profile) -> Fixed<P> {
        Fixed {
            fifo: PooledFifo::default(),
            pool: Pool::new(),
            wire: Wire::new(profile.rate.base.as_bits()),
            free: Time::ZERO,
            delay: profile.delay,
            waits: QueueArea::default(),
        }
    }

    #[inline]
    pub(crate) fn waiting(&self) -> Tally {
        self.fifo.waiting()
    }

    /// The backlog over time. The caller has called [`Fixed::advance`] for `now`.
    pub(crate) fn queue_area(&self, now: Time) -> QueueArea {
        let mut area = self.waits;
        area -= self.fifo.area_ahead(now, &self.pool);
        area
    }

    /// The departure of the last packet, past or future.
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    pub(crate) fn held(&self) -> u64 {
        self.pool.len() as u64
    }

    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        self.fifo.first_departure(&self.pool).map(|at| at + self.delay)
    }

    pub(crate) fn next_departure(&self) -> Option<Time> {
        self.fifo.next_departure(&self.pool)
    }

    #[inline]
    pub(crate) fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        let (at, bytes, id) = self.fifo.pop(now, self.delay, &self.pool)?;
        let Held { packet, is_corrupted, is_marked } = self.pool.take(id)?;
        Some(Delivery { at, bytes, is_corrupted, is_marked, packet })
    }

    /// Appends a packet to the queue. The caller has called [`Fixed::advance`] for `now`.
    #[inline]
    pub(crate) fn push(&mut self, now: Time, waiting: Waiting<P>) {
        let Waiting { bytes, is_corrupted, is_marked, packet, .. } = waiting;
        let size = u32::try_from(bytes.0).expect("a packet is below 2 GiB");
        let is_idle = self.fifo.waiting().packets == 0;
        let from = if is_idle { now } else { self.free };
        self.waits += QueueArea::new(Tally::one(bytes), from - now);
        self.free = from + self.wire.time(size, is_idle);
        let id = self.pool.insert(Some(Held { packet, is_corrupted, is_marked }), ());
        self.fifo.push(self.free, size, id, &mut self.pool);
    }

    /// Removes the packets that left by `now` from the backlog.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        self.fifo.advance(now, &self.pool);
    }
}
