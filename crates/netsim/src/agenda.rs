//! What happens next: events by time and admission number.

use units::Time;

use crate::heap::{Heap, NEVER};

/// Bits of a key that name the owner of an event.
const OWNER_BITS: u32 = 24;
/// Bits of a key that hold the admission number: at 20 million events a second, enough for five
/// months.
const NUMBER_BITS: u32 = 48;
/// Bits of a key that hold the time in nanoseconds: two years and three months.
const TIME_BITS: u32 = 128 - NUMBER_BITS - OWNER_BITS;

/// How many owners of events there can be.
pub(crate) const MAX_OWNERS: usize = 1 << OWNER_BITS;

/// From this time on, nothing happens.
pub(crate) const END: Time = Time::from_nanos((1 << TIME_BITS) - 1);

/// Buckets of the wheel: a word of bits for each of 64 words of bits.
const BUCKETS: usize = 64 * WORDS;
const WORDS: usize = 64;
/// The width of a bucket to begin with: 2^12 ns.
const SHIFT: u32 = 12;
/// A bucket with more events than this goes to the heap.
const CROWD: u32 = 16;
/// After so many events the width of the buckets is looked at.
const REVIEW: u32 = 4_096;
/// In place of a node's number.
const NONE: u32 = u32::MAX;
/// Each compartment of what comes later is as wide as half the wheel.
const HALF_BITS: u32 = (BUCKETS / 2).trailing_zeros();
const COMPARTMENTS: usize = 256;

/// A queue of events in the order of their times, and of simultaneous ones' admission.
///
/// What comes soon is in a wheel of buckets, each a short time wide and a list of a few events in
/// their order (R. Brown, "Calendar queues", 1988). What comes later, as the timers of transports
/// do, is in a second wheel of compartments in no order, each of which is emptied into the first as
/// its time comes near (G. Varghese, A. Lauck, "Hashed and hierarchical timing wheels", 1997). What
/// comes later still is in a heap, which a wheel that is too fine or too coarse, or a thousand
/// events at one instant, falls back on. The width of the buckets follows the events. The order
/// never depends on it.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    /// The first event of each bucket, which is the place of the time's bits above `shift` modulo
    /// the buckets.
    heads: Box<[u32; BUCKETS]>,
    /// A bit for each bucket: whether it has events.
    words: [u64; WORDS],
    /// A bit for each word: whether it has bits.
    summary: u64,
    /// The first of the nodes that are free.
    free: u32,
    nodes: Vec<ListNode>,
    shift: u32,
    /// The bucket of the latest event, not modulo the buckets: the wheel holds this one and those
    /// behind it, below `end`.
    base: u64,
    /// Where the compartments begin that were not emptied into the wheel yet: at least half the
    /// wheel behind `base`, at most a whole one.
    end: u64,
    /// The first event of each compartment.
    compartments: Box<[u32; COMPARTMENTS]>,
    /// A bit for each compartment: whether it has events.
    filled: [u64; COMPARTMENTS / 64],
    /// The time of the first event of the heap; the end of time if it is empty.
    later_at: u64,
    later: Heap,
    admitted: u64,
    review: Review,
}

/// An event in a bucket, or a free place.
#[derive(Clone, Copy, Debug)]
struct ListNode {
    at: u64,
    number: u64,
    owner: u32,
    next: u32,
}

impl ListNode {
    /// What orders it in the heap: time, admission number and owner, from the highest bit to the
    /// lowest.
    fn key(&self) -> u128 {
        (u128::from(self.at) << (NUMBER_BITS + OWNER_BITS))
            | (u128::from(self.number) << OWNER_BITS)
            | u128::from(self.owner)
    }
}

/// What happened since the last review.
#[derive(Clone, Copy, Debug, Default)]
struct Review {
    /// Events taken from the wheel.
    taken: u32,
    /// Other events of its bucket that one was put behind, over all.
    beside: u32,
    /// Events that went to the heap.
    later: u32,
}

impl Default for Agenda {
    fn default() -> Agenda {
        Agenda {
            heads: Box::new([NONE; BUCKETS]),
            words: [0; WORDS],
            summary: 0,
            free: NONE,
            nodes: Vec::new(),
            shift: SHIFT,
            base: 0,
            end: 2 << HALF_BITS,
            compartments: Box::new([NONE; COMPARTMENTS]),
            filled: [0; COMPARTMENTS / 64],
            later_at: u64::MAX,
            later: Heap::default(),
            admitted: 0,
            review: Review::default(),
        }
    }
}

impl Agenda {
    /// Puts an event of `owner` at `at`; beyond [`END`] it never happens, and is not kept.
    #[inline(never)]
    pub(crate) fn push(&mut self, at: Time, owner: u32) {
        if at >= END {
            return;
        }
        let (at, number) = (at.as_nanos(), self.admitted);
        self.admitted += 1;
        let slot = at >> self.shift;
        // Below the base, the difference wraps.
        if slot.wrapping_sub(self.base) >= self.end - self.base {
            return self.push_later(at, number, owner, slot);
        }
        let node = self.node(at, number, owner);
        self.line_up(place(slot), node, at, number);
    }

    /// Puts an event beyond the wheel, or before it.
    #[inline(never)]
    fn push_later(&mut self, at: u64, number: u64, owner: u32, slot: u64) {
        self.review.later += 1;
        let (compartment, first) = (slot >> HALF_BITS, self.end >> HALF_BITS);
        if compartment.wrapping_sub(first) >= COMPARTMENTS as u64 {
            return self.postpone(ListNode { at, number, owner, next: NONE });
        }
        let node = self.node(at, number, owner);
        let compartment = compartment_of(compartment);
        self.nodes[node as usize].next =
            std::mem::replace(&mut self.compartments[compartment], node);
        self.filled[compartment / 64] |= 1 << (compartment % 64);
    }

    /// A node that is in no list.
    #[inline]
    fn node(&mut self, at: u64, number: u64, owner: u32) -> u32 {
        let node = self.free;
        // Field by field: a node put together elsewhere would be read back before its parts are
        // written.
        if let Some(place) = self.nodes.get_mut(node as usize) {
            self.free = place.next;
            place.at = at;
            place.number = number;
            place.owner = owner;
            place.next = NONE;
            return node;
        }
        self.nodes.push(ListNode { at, number, owner, next: NONE });
        u32::try_from(self.nodes.len() - 1).expect("there are fewer events than this at a time")
    }

    /// Puts a node into a bucket of the wheel.
    #[inline]
    fn line_up(&mut self, bucket: usize, node: u32, at: u64, number: u64) {
        let first = self.heads[bucket];
        if first == NONE {
            self.heads[bucket] = node;
            self.words[bucket / 64] |= 1 << (bucket % 64);
            self.summary |= 1 << (bucket / 64);
        } else {
            self.line_up_behind(bucket, first, node, (at, number));
        }
    }

    /// Puts a node into a bucket that has others, behind those that come before it.
    #[inline]
    fn line_up_behind(&mut self, bucket: usize, first: u32, node: u32, key: (u64, u64)) {
        let (mut before, mut next, mut steps) = (NONE, first, 0);
        while let Some(other) =
            self.nodes.get(next as usize).filter(|other| (other.at, other.number) < key)
        {
            (before, next) = (next, other.next);
            steps += 1;
        }
        self.nodes[node as usize].next = next;
        match self.nodes.get_mut(before as usize) {
            Some(before) => before.next = node,
            None => self.heads[bucket] = node,
        }
        self.review.beside += steps;
        if steps >= CROWD {
            self.spill(bucket);
        }
    }

    /// Puts an event into the heap.
    fn postpone(&mut self, node: ListNode) {
        self.later_at = self.later_at.min(node.at);
        self.later.push(node.key());
    }

    /// Takes the first event if it is at `until` or before: its time and its owner.
    #[inline]
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, u32)> {
        let Some(bucket) = self.first_bucket().or_else(|| self.go_on()) else {
            return self.pop_later(until);
        };
        let first = self.heads[bucket];
        let ListNode { at, number, owner, next } = self.nodes[first as usize];
        // Of simultaneous ones either may be the first.
        if self.later_at <= at && nanos_and_number(self.later.first()) < (at, number) {
            return self.pop_later(until);
        }
        if at > until.as_nanos() {
            return None;
        }
        self.nodes[first as usize].next = self.free;
        self.free = first;
        self.heads[bucket] = next;
        if next == NONE {
            self.clear(bucket);
        }
        self.turn(at >> self.shift);
        self.review.taken += 1;
        if self.review.taken == REVIEW {
            self.adapt();
        }
        Some((Time::from_nanos(at), owner))
    }

    /// Takes the first event of the heap.
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "the bits are split as they were joined")]
    fn pop_later(&mut self, until: Time) -> Option<(Time, u32)> {
        let key = self.later.first();
        let (at, _) = nanos_and_number(key);
        if key == NEVER || at > until.as_nanos() {
            return None;
        }
        self.later.remove_first();
        let next = self.later.first();
        self.later_at = if next == NEVER { u64::MAX } else { nanos_and_number(next).0 };
        // What was put before the latest event is in the heap, and does not turn the wheel back.
        self.turn(self.base.max(at >> self.shift));
        Some((Time::from_nanos(at), key as u32 & (MAX_OWNERS as u32 - 1)))
    }

    /// The latest event is in this bucket.
    #[inline]
    fn turn(&mut self, base: u64) {
        self.base = base;
        if self.end <= base + (1 << HALF_BITS) {
            self.fill();
        }
    }

    /// Empties compartments into the wheel until that holds more than half of what it can.
    #[inline(never)]
    fn fill(&mut self) {
        // If it was far from the end, nothing is between: an event of the heap came first.
        self.end = self.end.max(self.base >> HALF_BITS << HALF_BITS);
        while self.end <= self.base + (1 << HALF_BITS) {
            let mut next = self.take_compartment(self.end >> HALF_BITS);
            self.end += 1 << HALF_BITS;
            while let Some(&ListNode { at, number, next: behind, .. }) =
                self.nodes.get(next as usize)
            {
                self.nodes[next as usize].next = NONE;
                self.line_up(place(at >> self.shift), next, at, number);
                next = behind;
            }
        }
    }

    /// Turns the empty wheel to the next compartment that has events: the first bucket that has
    /// some then.
    #[inline(never)]
    fn go_on(&mut self) -> Option<usize> {
        let first = self.end >> HALF_BITS;
        let is_filled = |compartment: &u64| {
            let compartment = compartment_of(*compartment);
            self.filled[compartment / 64] >> (compartment % 64) & 1 == 1
        };
        let next = (first..first + COMPARTMENTS as u64).find(is_filled)?;
        self.base = next << HALF_BITS;
        self.end = self.base;
        self.fill();
        self.first_bucket()
    }

    /// Takes the events out of a compartment: the first of them.
    fn take_compartment(&mut self, compartment: u64) -> u32 {
        let compartment = compartment_of(compartment);
        self.filled[compartment / 64] &= !(1 << (compartment % 64));
        std::mem::replace(&mut self.compartments[compartment], NONE)
    }

    /// The first bucket that has events.
    #[inline]
    fn first_bucket(&self) -> Option<usize> {
        let from = place(self.base);
        let word = from / 64;
        let here = self.words[word] >> (from % 64);
        if here != 0 {
            return Some(from + here.trailing_zeros() as usize);
        }
        // Those behind, and then round the wheel, the first word's lower part at the end.
        let behind = self.summary & (2u64 << word).wrapping_sub(1);
        let ahead = self.summary & !behind;
        let word = (if ahead != 0 { ahead } else { behind }).trailing_zeros() as usize % WORDS;
        (self.words[word] != 0).then(|| word * 64 + self.words[word].trailing_zeros() as usize)
    }

    #[inline]
    fn clear(&mut self, bucket: usize) {
        let word = &mut self.words[bucket / 64];
        *word &= !(1 << (bucket % 64));
        if *word == 0 {
            self.summary &= !(1 << (bucket / 64));
        }
    }

    /// Moves the events of a bucket to the heap.
    #[cold]
    fn spill(&mut self, bucket: usize) {
        let first = std::mem::replace(&mut self.heads[bucket], NONE);
        self.clear(bucket);
        self.review.beside += CROWD * self.postpone_all(first);
    }

    /// Moves the events of a list to the heap: how many they were.
    fn postpone_all(&mut self, first: u32) -> u32 {
        let (mut next, mut count) = (first, 0);
        while let Some(&node) = self.nodes.get(next as usize) {
            self.postpone(node);
            self.nodes[next as usize].next = self.free;
            self.free = std::mem::replace(&mut next, node.next);
            count += 1;
        }
        count
    }

    /// Halves the buckets' width if they are crowded, doubles it if too much lies beyond them.
    #[cold]
    fn adapt(&mut self) {
        let Review { taken, beside, later } = std::mem::take(&mut self.review);
        let shift = if beside > taken {
            self.shift.saturating_sub(1)
        } else if later > taken / 4 && beside < taken / 4 {
            (self.shift + 1).min(TIME_BITS)
        } else {
            return;
        };
        for bucket in 0..BUCKETS {
            self.spill(bucket);
        }
        for compartment in 0..COMPARTMENTS as u64 {
            let first = self.take_compartment(compartment);
            self.postpone_all(first);
        }
        self.base = (self.base << self.shift) >> shift;
        self.shift = shift;
        self.end = ((self.base >> HALF_BITS) + 2) << HALF_BITS;
        self.review = Review::default();
    }
}

/// The time and the admission number of a key.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the bits are split as they were joined")]
fn nanos_and_number(key: u128) -> (u64, u64) {
    let number = (key >> OWNER_BITS) as u64 & ((1 << NUMBER_BITS) - 1);
    ((key >> (NUMBER_BITS + OWNER_BITS)) as u64, number)
}

/// The bucket of a time's bits above the shift.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "there are fewer buckets")]
fn place(slot: u64) -> usize {
    slot as usize % BUCKETS
}

/// Where the compartment of a time's bits above the shift and the half wheel's is.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "there are fewer compartments")]
fn compartment_of(compartment: u64) -> usize {
    compartment as usize % COMPARTMENTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Times near and far, many at one instant, and some before those that were taken already.
        #[test]
        fn it_agrees_with_a_sorted_list(
            ops in prop::collection::vec(prop::option::weighted(0.6, (0..40u64, 0..5u32)), 1..400),
            step in 0..20u32,
        ) {
            let mut agenda = Agenda::default();
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (n, op) in (0u32..).zip(ops) {
                if let Some((at, zeros)) = op {
                    let at = at << (zeros * step.min(9));
                    agenda.push(Time::from_nanos(at), n);
                    // Behind all of the same time.
                    model.insert(model.partition_point(|entry| entry.0 <= at), (at, n));
                } else {
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(agenda.pop(END), first.map(|(at, n)| (Time::from_nanos(at), n)));
                }
            }
            while let Some((at, n)) = agenda.pop(END) {
                prop_assert_eq!((at.as_nanos(), n), model.remove(0));
            }
            prop_assert!(model.is_empty());
        }

        /// Each event is followed by another, at distances for which the first width is far too
        /// large or too small.
        #[test]
        fn the_width_of_the_buckets_changes_nothing(seed in 1..u64::MAX, owners in 1..200u32, bits in 0..40u32) {
            let (mut agenda, mut heap) = (Agenda::default(), std::collections::BTreeSet::new());
            let mut state = seed;
            let mut admitted = 0u64;
            let mut delay = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Steps of 16, so that there are ties.
                (state % (1 << bits)) & !15
            };
            let mut push = |agenda: &mut Agenda, heap: &mut std::collections::BTreeSet<_>, now: u64, owner: u32| {
                let at = now + delay();
                agenda.push(Time::from_nanos(at), owner);
                heap.insert((at, admitted, owner));
                admitted += 1;
            };
            for owner in 0..owners {
                push(&mut agenda, &mut heap, 0, owner);
            }
            for _ in 0..20_000 {
                let (at, _, owner) = heap.pop_first().expect("each is followed by another");
                prop_assert_eq!(agenda.pop(END), Some((Time::from_nanos(at), owner)));
                push(&mut agenda, &mut heap, at, owner);
            }
        }
    }

    /// The heap's come first here, and far behind all that the wheels hold.
    #[test]
    fn an_event_of_the_heap_turns_both_wheels() {
        let at = |micros: u64| Time::from_nanos(micros * 1_000);
        let mut agenda = Agenda::default();
        agenda.push(at(9_000_000), 1);
        agenda.push(at(5_000_000), 2);
        assert_eq!(agenda.pop(END), Some((at(5_000_000), 2)));
        for (micros, owner) in
            [(5_200_000, 3), (5_000_100, 4), (5_000_000, 5), (7_100_000, 6), (5_200_000, 7)]
        {
            agenda.push(at(micros), owner);
        }
        let rest: Vec<u32> =
            std::iter::from_fn(|| agenda.pop(END)).map(|(_, owner)| owner).collect();
        assert_eq!(rest, [5, 4, 3, 7, 6, 1]);
    }

    #[test]
    fn what_is_later_stays() {
        let mut agenda = Agenda::default();
        agenda.push(Time::from_nanos(7), 1);
        agenda.push(END, 2);
        assert_eq!(agenda.pop(Time::from_nanos(6)), None);
        assert_eq!(agenda.pop(Time::from_nanos(7)), Some((Time::from_nanos(7), 1)));
        assert_eq!(agenda.pop(END), None);
    }
}
