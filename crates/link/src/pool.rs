//! Packets on lines, and the order in which they are there.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use units::{Bytes, Span, Time};

use crate::counters::Tally;

/// Where in a [`Pool`] a packet is. None is zero, so that a place that may be missing takes no more
/// memory.
pub type Place = NonZeroU32;

/// Packets of any number of lines, each at a place of its own from [`Pool::insert`] to
/// [`Pool::remove`], with a note of type `T` about it.
///
/// Thousands of lines in one simulation hold a few hundred packets between them: together, those
/// stay in the processor's cache. So do their places, which are used again, the latest freed first.
#[derive(Clone, Debug)]
pub struct Pool<P, T = ()> {
    packets: Vec<P>,
    /// A slot for each packet, behind one that is nobody's: lists end there, and need no look at
    /// whether they do.
    slots: Vec<Slot<T>>,
    free: Vec<Place>,
}

/// What is known of a packet beside itself.
#[derive(Clone, Debug, Default)]
#[repr(C)]
struct Slot<T> {
    /// When it leaves the line.
    departure: Time,
    bytes: u32,
    /// Who comes behind it on the line, or [`NOBODY`].
    next: u32,
    note: T,
}

/// In place of a place.
const NOBODY: u32 = 0;

impl<P, T: Default> Pool<P, T> {
    /// Without packets.
    #[must_use]
    pub fn new() -> Pool<P, T> {
        Pool { packets: Vec::new(), slots: vec![Slot::default()], free: Vec::new() }
    }
}

impl<P, T> Pool<P, T> {
    /// Puts a packet in, and gives its place. Inlined, the packet is written where it stays and
    /// nowhere before.
    ///
    /// # Panics
    /// If there are four billion packets.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see above")]
    pub fn insert(&mut self, packet: P, note: T) -> Place {
        if let Some(place) = self.free.pop() {
            self.packets[index(place)] = packet;
            *self.note_mut(place) = note;
            return place;
        }
        self.packets.push(packet);
        self.slots.push(Slot { departure: Time::ZERO, bytes: 0, next: NOBODY, note });
        u32::try_from(self.packets.len())
            .ok()
            .and_then(Place::new)
            .expect("four billion packets fit no memory")
    }

    /// Takes a copy of the packet of a place, and frees the place. The packet must be on no line.
    #[inline]
    pub fn remove(&mut self, place: Place) -> P
    where
        P: Copy,
    {
        self.free.push(place);
        self.packets[index(place)]
    }

    /// As [`Pool::remove`], of packets that are no copies.
    #[inline]
    pub(crate) fn take(&mut self, place: Place) -> P
    where
        P: Default,
    {
        self.free.push(place);
        core::mem::take(&mut self.packets[index(place)])
    }

    /// The packet of a place.
    #[must_use]
    #[inline]
    pub fn get(&self, place: Place) -> &P {
        &self.packets[index(place)]
    }

    /// The packet of a place.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, place: Place) -> &mut P {
        &mut self.packets[index(place)]
    }

    /// What was noted of the packet of a place.
    #[must_use]
    #[inline]
    pub fn note_mut(&mut self, place: Place) -> &mut T {
        &mut self.slots[place.get() as usize].note
    }

    /// How many packets there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn slot(&self, place: u32) -> &Slot<T> {
        &self.slots[place as usize]
    }
}

/// Where a packet is among all.
#[inline]
fn index(place: Place) -> usize {
    place.get() as usize - 1
}

impl<P, T: Default> Default for Pool<P, T> {
    fn default() -> Pool<P, T> {
        Pool::new()
    }
}

/// The packets of one line in their order, in a pool: the last ones wait for the wire, or are on
/// it; those before them have left.
///
/// The order of the fields is kept.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Row {
    /// Places, or [`NOBODY`].
    first: u32,
    last: u32,
    /// The first of those that did not leave by the latest [`Row::advance`].
    next: u32,
    waiting: u32,
    queued: Bytes,
}

/// What a packet finds is often as good as random, so that the usual ways are without branches,
/// which the processor would guess wrong.
impl Row {
    /// How many wait, as of the latest [`Row::advance`].
    #[inline]
    pub(crate) fn waiting(&self) -> Tally {
        Tally { packets: u64::from(self.waiting), bytes: self.queued }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NOBODY
    }

    /// When the first packet leaves, or left.
    #[inline]
    pub(crate) fn first_departure<P, T>(&self, pool: &Pool<P, T>) -> Option<Time> {
        (self.first != NOBODY).then(|| pool.slot(self.first).departure)
    }

    /// When the first packet leaves of those that wait.
    pub(crate) fn next_departure<P, T>(&self, pool: &Pool<P, T>) -> Option<Time> {
        (self.next != NOBODY).then(|| pool.slot(self.next).departure)
    }

    /// All packets.
    pub(crate) fn held<P, T>(&self, pool: &Pool<P, T>) -> Tally {
        let mut held = Tally::default();
        let mut place = self.first;
        while place != NOBODY {
            let slot = pool.slot(place);
            held += Tally::one(Bytes(u64::from(slot.bytes)));
            place = slot.next;
        }
        held
    }

    /// Counts out what left by `now`. Gives when the wire will be free, if it is not yet.
    #[inline]
    pub(crate) fn advance<P, T>(&mut self, now: Time, pool: &Pool<P, T>) -> Option<Time> {
        // The beginning of time if there is none.
        let free = pool.slot(self.last).departure;
        if free <= now {
            // The usual case, without a look at the others: the wire is idle.
            self.next = NOBODY;
            self.waiting = 0;
            self.queued = Bytes::ZERO;
            return None;
        }
        loop {
            let slot = pool.slot(self.next);
            if slot.departure > now {
                return Some(free);
            }
            self.waiting -= 1;
            self.queued -= Bytes(u64::from(slot.bytes));
            self.next = slot.next;
        }
    }

    /// Puts a packet to the end, which leaves at `departure`. [`Row::advance`] was called.
    #[inline]
    pub(crate) fn push<P, T>(
        &mut self,
        departure: Time,
        bytes: u32,
        place: Place,
        pool: &mut Pool<P, T>,
    ) {
        let place = place.get();
        let slot = &mut pool.slots[place as usize];
        (slot.departure, slot.bytes, slot.next) = (departure, bytes, NOBODY);
        // Nobody's, if it is the first.
        pool.slots[self.last as usize].next = place;
        self.last = place;
        self.first = if self.first == NOBODY { place } else { self.first };
        self.next = if self.next == NOBODY { place } else { self.next };
        self.waiting += 1;
        self.queued += Bytes(u64::from(bytes));
    }

    /// Takes the first packet out if it has arrived by `now`, `delay` after it left: when that was,
    /// its size and its place.
    #[inline]
    pub(crate) fn pop<P, T>(
        &mut self,
        now: Time,
        delay: Span,
        pool: &Pool<P, T>,
    ) -> Option<(Time, Bytes, Place)> {
        let place = Place::new(self.first)?;
        let &Slot { departure, bytes, next, .. } = pool.slot(self.first);
        let (at, bytes) = (departure + delay, Bytes(u64::from(bytes)));
        if at > now {
            return None;
        }
        let is_waiting = self.next == self.first;
        self.next = if is_waiting { next } else { self.next };
        self.waiting -= u32::from(is_waiting);
        self.queued -= if is_waiting { bytes } else { Bytes::ZERO };
        self.first = next;
        self.last = if next == NOBODY { NOBODY } else { self.last };
        Some((at, bytes, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_once_it_is_free() {
        let mut pool = Pool::new();
        let [a, b, _, d, _] = [0, 1, 2, 3, 4].map(|n| pool.insert(n, ()));
        assert_eq!((*pool.get(b), *pool.get(d), pool.len()), (1, 3, 5));
        *pool.get_mut(d) += 10;
        assert_eq!((pool.remove(d), pool.remove(a)), (13, 0));
        assert_eq!([pool.insert(20, ()), pool.insert(21, ())], [a, d]);
        let last = pool.insert(22, ());
        assert_eq!(
            (*pool.get(a), *pool.get(b), *pool.get(d), *pool.get(last), pool.len()),
            (20, 1, 21, 22, 6)
        );
    }
}
