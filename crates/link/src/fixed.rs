//! A line whose rate never changes and whose packets keep their order: every time is known as a
//! packet comes.

use units::{Rate, Span, Time};

use crate::counters::Tally;
use crate::offer::{Delivery, Waiting};
use crate::pool::{Pool, Row};
use crate::profile::Profile;
use crate::wire::Wire;

/// The packets of a link in one queue, each with its departure.
///
/// The same to the nanosecond as [`Varying`](crate::varying::Varying), but a packet moves once
/// instead of twice, and nothing is divided as long as sizes repeat.
#[derive(Clone, Debug)]
pub(crate) struct Fixed<P> {
    row: Row,
    pool: Pool<Option<Held<P>>>,
    wire: Wire,
    /// When the last packet leaves, or left.
    free: Time,
    delay: Span,
}

/// A packet, and what happened to it.
#[derive(Clone, Debug)]
struct Held<P> {
    packet: P,
    is_corrupted: bool,
    is_marked: bool,
}

/// Whether a [`Fixed`] can do what the profile asks for: not changes of rate, standstill,
/// blackouts, held-back packets, jitter, or a queue that decides on packets as they leave.
pub(crate) fn is_fixed(profile: &Profile) -> bool {
    profile.rate.is_constant()
        && profile.rate.base > Rate::ZERO
        && profile.blackouts.is_empty()
        && profile.reorder.is_none()
        && profile.jitter.is_none()
        && profile.aqm.decides_on_arrival()
}

impl<P> Fixed<P> {
    /// Idle, for a profile for which that [can be](is_fixed).
    pub(crate) fn new(profile: &Profile) -> Fixed<P> {
        Fixed {
            row: Row::default(),
            pool: Pool::new(),
            wire: Wire::new(profile.rate.base.as_bits()),
            free: Time::ZERO,
            delay: profile.delay,
        }
    }

    #[inline]
    pub(crate) fn waiting(&self) -> Tally {
        self.row.waiting()
    }

    /// When the last packet leaves, or left.
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    pub(crate) fn held(&self) -> u64 {
        self.pool.len() as u64
    }

    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        self.row.first_departure(&self.pool).map(|at| at + self.delay)
    }

    pub(crate) fn next_departure(&self) -> Option<Time> {
        self.row.next_departure(&self.pool)
    }

    #[inline]
    pub(crate) fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        let (at, bytes, place) = self.row.pop(now, self.delay, &self.pool)?;
        let Held { packet, is_corrupted, is_marked } = self.pool.take(place)?;
        Some(Delivery { at, bytes, is_corrupted, is_marked, packet })
    }

    /// Takes a packet to the queue's end. [`Fixed::advance`] was called for `now`.
    #[inline]
    pub(crate) fn push(&mut self, now: Time, waiting: Waiting<P>) {
        let Waiting { bytes, is_corrupted, is_marked, packet, .. } = waiting;
        let size = u32::try_from(bytes.0).expect("a packet is below 2 GiB");
        let is_idle = self.row.waiting().packets == 0;
        let from = if is_idle { now } else { self.free };
        self.free = from + self.wire.time(size, is_idle);
        let place = self.pool.insert(Some(Held { packet, is_corrupted, is_marked }), ());
        self.row.push(self.free, size, place, &mut self.pool);
    }

    /// Counts out what left by `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        self.row.advance(now, &self.pool);
    }
}
