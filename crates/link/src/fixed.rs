//! A line whose rate never changes and whose packets keep their order: every time is known as a packet comes.

use alloc::collections::VecDeque;

use units::{Bytes, Rate, Span, Time};

use crate::link::{Delivery, Tally, WORK_PER_BYTE, Waiting};
use crate::profile::Profile;

/// The packets of a link in one queue, each with its arrival; the last `waiting` of them did not leave yet.
///
/// The same to the nanosecond as [`Varying`](crate::varying::Varying), but a packet moves once instead of twice, and nothing is
/// divided as long as sizes repeat.
///
/// The order of the fields is kept: what says whether anything waits is in front.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Fixed<P> {
    packets: VecDeque<Slot<P>>,
    /// When the last packet leaves, or left.
    free: Time,
    waiting: u32,
    /// The size that `cost` is of.
    bytes: u32,
    cost: Cost,
    /// Bit-nanoseconds that the wire has left over in the nanosecond before `free`; below `rate`.
    credit: u64,
    queued: Bytes,
    delay: Span,
    rate: u64,
}

/// A packet and its arrival. Sizes take 32 bits here, since slots decide how much memory a simulation touches.
#[derive(Clone, Debug)]
struct Slot<P> {
    at: Time,
    packet: P,
    bytes: u32,
    is_corrupted: bool,
    is_marked: bool,
}

/// The wire time of packets of one size: `nanos` and a remainder in bit-nanoseconds, below the rate.
#[derive(Clone, Copy, Debug)]
struct Cost {
    nanos: u64,
    rest: u64,
}

impl Cost {
    fn new(bytes: u32, rate: u64) -> Cost {
        let work = u64::from(bytes).checked_mul(WORK_PER_BYTE).expect("a packet is below 2 GiB");
        Cost { nanos: work / rate, rest: work % rate }
    }
}

impl<P> Fixed<P> {
    /// `None` if the profile has changes of rate, standstill, blackouts, held-back packets, jitter, or a queue that decides on
    /// packets as they leave.
    pub(crate) fn new(profile: &Profile) -> Option<Fixed<P>> {
        let can = profile.rate.is_constant()
            && profile.rate.base > Rate::ZERO
            && profile.blackouts.is_empty()
            && profile.reorder.is_none()
            && profile.jitter.is_none()
            && profile.aqm.decides_on_arrival();
        let rate = profile.rate.base.as_bits();
        can.then(|| Fixed {
            packets: VecDeque::new(),
            waiting: 0,
            queued: Bytes::ZERO,
            delay: profile.delay,
            rate,
            free: Time::ZERO,
            credit: 0,
            bytes: 0,
            cost: Cost::new(0, rate),
        })
    }

    #[inline]
    pub(crate) fn waiting(&self) -> Tally {
        Tally { packets: u64::from(self.waiting), bytes: self.queued }
    }

    /// What waits at `now`, which is not before the last call.
    #[inline]
    pub(crate) fn queue(&mut self, now: Time) -> Tally {
        if self.waiting == 0 && self.free <= now {
            // One line of the processor's cache says so; the looks of a simulation come to thousands of idle links.
            return Tally::default();
        }
        self.advance(now);
        self.waiting()
    }

    /// When the last packet leaves, or left.
    pub(crate) fn free(&self) -> Time {
        self.free
    }

    pub(crate) fn held(&self) -> u64 {
        self.packets.len() as u64
    }

    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        self.packets.front().map(|slot| slot.at)
    }

    pub(crate) fn next_departure(&self) -> Option<Time> {
        let first = self.packets.len() - self.waiting as usize;
        self.packets.get(first).map(|slot| slot.at - self.delay)
    }

    #[inline]
    pub(crate) fn poll_deliver(&mut self, now: Time) -> Option<Delivery<P>> {
        if self.packets.front()?.at > now {
            return None;
        }
        if self.waiting as usize == self.packets.len() {
            self.advance(now);
        }
        let Slot { at, packet, bytes, is_corrupted, is_marked } = self.packets.pop_front()?;
        if self.packets.is_empty() {
            // From the start of its memory again: a simulation with thousands of links walks through less of it.
            self.packets.clear();
        }
        Some(Delivery { at, bytes: Bytes(u64::from(bytes)), is_corrupted, is_marked, packet })
    }

    /// Takes a packet to the queue's end. [`Fixed::advance`] was called for `now`.
    #[inline]
    pub(crate) fn push(&mut self, now: Time, waiting: Waiting<P>) {
        let Waiting { bytes, is_corrupted, is_marked, packet, .. } = waiting;
        let size = u32::try_from(bytes.0).expect("a packet is below 2 GiB");
        if size != self.bytes {
            self.bytes = size;
            self.cost = Cost::new(size, self.rate);
        }
        if self.waiting == 0 {
            self.free = now;
            self.credit = 0;
        }
        let Cost { nanos, rest } = self.cost;
        // What the wire had left over in the last nanosecond covers the remainder, or it takes one more.
        let nanos = if self.credit >= rest {
            self.credit -= rest;
            nanos
        } else {
            self.credit += self.rate - rest;
            nanos + 1
        };
        self.free += Span::from_nanos(nanos);
        self.queued += bytes;
        self.waiting += 1;
        self.packets.push_back(Slot { at: self.free + self.delay, packet, bytes: size, is_corrupted, is_marked });
    }

    /// Counts out what left by `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        if self.free <= now {
            // The usual case, without a look at the packets: the wire is idle.
            self.waiting = 0;
            self.queued = Bytes::ZERO;
            return;
        }
        while self.waiting > 0 {
            let first = &self.packets[self.packets.len() - self.waiting as usize];
            if first.at > now + self.delay {
                return;
            }
            self.queued -= Bytes(u64::from(first.bytes));
            self.waiting -= 1;
        }
    }
}
