//! The event queue: events ordered by time and admission number.

use units::Time;

use crate::heap::{Heap, NEVER};

/// Bits of a key that name the owner of an event.
const OWNER_BITS: u32 = 24;
/// Bits of a key that hold the admission number: at 20 million events a second, enough for five
/// months.
const NUMBER_BITS: u32 = 48;
/// Bits of a key that hold the time in nanoseconds: two years and three months.
const TIME_BITS: u32 = 128 - NUMBER_BITS - OWNER_BITS;

/// The maximum number of owners of events.
pub(crate) const MAX_OWNERS: usize = 1 << OWNER_BITS;

/// Events from this time on never happen.
pub(crate) const END: Time = Time::from_nanos((1 << TIME_BITS) - 1);

/// The number of buckets of the wheel: one word of the summary covers 64 words of bits.
const BUCKETS: usize = 64 * WORDS;
const WORDS: usize = 64;
/// The initial width of a bucket: 2^12 ns.
const SHIFT: u32 = 12;
/// A bucket with more events than this is moved to the heap.
const CROWD: u32 = 16;
/// The number of events between two reviews of the bucket width.
const REVIEW: u32 = 4_096;
/// Instead of a node number.
const NONE: u32 = u32::MAX;
/// The width of a compartment of the second wheel: half of the first wheel.
const HALF_BITS: u32 = (BUCKETS / 2).trailing_zeros();
const COMPARTMENTS: usize = 256;

/// A queue of events in the order of their times; simultaneous events are in the order of
/// admission.
///
/// Near events are in a wheel of buckets, each a short interval with a sorted list of a few events
/// (R. Brown, "Calendar queues", 1988). Later events, such as the timers of transports, are in a
/// second wheel of unsorted compartments, each of which is emptied into the first wheel when its
/// time comes near (G. Varghese, A. Lauck, "Hashed and hierarchical timing wheels", 1997). Still
/// later events are in a heap, which is also the fallback for a wheel that is too fine or too
/// coarse, and for a thousand events at one instant. The width of the buckets adapts to the events;
/// the order does not depend on it.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    /// The first event of each bucket. The bucket of a time is its bits above `shift`, modulo the
    /// number of buckets.
    heads: Box<[u32; BUCKETS]>,
    /// A bit for each bucket that has events.
    words: [u64; WORDS],
    /// A bit for each word that is not zero.
    summary: u64,
    /// The first free node.
    free: u32,
    nodes: Vec<ListNode>,
    shift: u32,
    /// The bucket of the latest event, not modulo the number of buckets. The wheel covers the
    /// buckets from here to `end`.
    base: u64,
    /// The begin of the compartments that are not yet in the wheel: half a wheel to a whole wheel
    /// after `base`.
    end: u64,
    /// The first event of each compartment.
    compartments: Box<[u32; COMPARTMENTS]>,
    /// A bit for each compartment that has events.
    filled: [u64; COMPARTMENTS / 64],
    /// The time of the first event of the heap; `u64::MAX` if it is empty.
    later_at: u64,
    later: Heap,
    admitted: u64,
    review: Review,
}

/// An event in a list, or a free node.
#[derive(Clone, Copy, Debug)]
struct ListNode {
    at: u64,
    number: u64,
    owner: u32,
    next: u32,
}

impl ListNode {
    /// The key in the heap: time, admission number and owner, from the highest bit to the lowest.
    fn key(&self) -> u128 {
        (u128::from(self.at) << (NUMBER_BITS + OWNER_BITS))
            | (u128::from(self.number) << OWNER_BITS)
            | u128::from(self.owner)
    }
}

/// Counts since the last review of the bucket width.
#[derive(Clone, Copy, Debug, Default)]
struct Review {
    /// Events taken from the wheel.
    taken: u32,
    /// List steps taken when events were inserted into buckets.
    beside: u32,
    /// Events inserted beyond the wheel.
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
    /// Adds an event of `owner` at `at`. Events from [`END`] on are dropped.
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
        self.insert(bucket_of(slot), node, at, number);
    }

    /// Adds an event after the end of the wheel, or before its base.
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

    /// A new node, in no list.
    #[inline]
    fn node(&mut self, at: u64, number: u64, owner: u32) -> u32 {
        let node = self.free;
        // Written field by field: copying a node from the stack would stall on store forwarding.
        if let Some(free) = self.nodes.get_mut(node as usize) {
            self.free = free.next;
            free.at = at;
            free.number = number;
            free.owner = owner;
            free.next = NONE;
            return node;
        }
        self.nodes.push(ListNode { at, number, owner, next: NONE });
        u32::try_from(self.nodes.len() - 1).expect("there are fewer events than this at a time")
    }

    /// Inserts a node into a bucket.
    #[inline]
    fn insert(&mut self, bucket: usize, node: u32, at: u64, number: u64) {
        let first = self.heads[bucket];
        if first == NONE {
            self.heads[bucket] = node;
            self.words[bucket / 64] |= 1 << (bucket % 64);
            self.summary |= 1 << (bucket / 64);
        } else {
            self.insert_after_head(bucket, first, node, (at, number));
        }
    }

    /// Inserts a node into a bucket with others, in order.
    #[inline]
    fn insert_after_head(&mut self, bucket: usize, first: u32, node: u32, key: (u64, u64)) {
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

    /// Adds an event to the heap.
    fn postpone(&mut self, node: ListNode) {
        self.later_at = self.later_at.min(node.at);
        self.later.push(node.key());
    }

    /// Removes the first event if it is at `until` or before. Returns its time and owner.
    #[inline]
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, u32)> {
        let Some(bucket) = self.first_bucket().or_else(|| self.go_on()) else {
            return self.pop_later(until);
        };
        let first = self.heads[bucket];
        let ListNode { at, number, owner, next } = self.nodes[first as usize];
        // Of simultaneous events, either may be the first.
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

    /// Removes the first event if it is in the heap and at `until` or before.
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
        // An event before the base is in the heap, and does not turn the wheel back.
        self.turn(self.base.max(at >> self.shift));
        Some((Time::from_nanos(at), key as u32 & (MAX_OWNERS as u32 - 1)))
    }

    /// Advances the wheel to the bucket of the latest event.
    #[inline]
    fn turn(&mut self, base: u64) {
        self.base = base;
        if self.end <= base + (1 << HALF_BITS) {
            self.fill();
        }
    }

    /// Moves compartments into the wheel until it covers more than half of its range.
    #[inline(never)]
    fn fill(&mut self) {
        // After an event of the heap far beyond the end, there is nothing between.
        self.end = self.end.max(self.base >> HALF_BITS << HALF_BITS);
        while self.end <= self.base + (1 << HALF_BITS) {
            let mut next = self.take_compartment(self.end >> HALF_BITS);
            self.end += 1 << HALF_BITS;
            while let Some(&ListNode { at, number, next: behind, .. }) =
                self.nodes.get(next as usize)
            {
                self.nodes[next as usize].next = NONE;
                self.insert(bucket_of(at >> self.shift), next, at, number);
                next = behind;
            }
        }
    }

    /// Turns the empty wheel to the next compartment with events. Returns the first bucket with
    /// events then.
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

    /// Empties a compartment. Returns its first event.
    fn take_compartment(&mut self, compartment: u64) -> u32 {
        let compartment = compartment_of(compartment);
        self.filled[compartment / 64] &= !(1 << (compartment % 64));
        std::mem::replace(&mut self.compartments[compartment], NONE)
    }

    /// The first bucket with events.
    #[inline]
    fn first_bucket(&self) -> Option<usize> {
        let from = bucket_of(self.base);
        let word = from / 64;
        let here = self.words[word] >> (from % 64);
        if here != 0 {
            return Some(from + here.trailing_zeros() as usize);
        }
        // The words after this one, then around the wheel up to the lower part of this one.
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

    /// Moves the events of a list to the heap. Returns their number.
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

    /// Halves the bucket width if buckets are crowded; doubles it if too many events are beyond the
    /// wheel.
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

/// The bucket of a time, given its bits above the shift.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "there are fewer buckets")]
fn bucket_of(slot: u64) -> usize {
    slot as usize % BUCKETS
}

/// The index of a compartment, given the bits of a time above the shift and the half wheel.
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
        /// Near and far times, many at one instant, and some before events that were already taken.
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
                    // After all with the same time.
                    model.insert(model.partition_point(|entry| entry.0 <= at), (at, n));
                } else {
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(
                        agenda.pop(END),
                        first.map(|(at, n)| (Time::from_nanos(at), n))
                    );
                }
            }
            while let Some((at, n)) = agenda.pop(END) {
                prop_assert_eq!((at.as_nanos(), n), model.remove(0));
            }
            prop_assert!(model.is_empty());
        }

        /// Each event is followed by another, at distances for which the initial width is far too
        /// large or too small.
        #[test]
        fn the_width_of_the_buckets_changes_nothing(
            seed in 1..u64::MAX,
            owners in 1..200u32,
            bits in 0..40u32,
        ) {
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
            let mut push = |agenda: &mut Agenda,
                            heap: &mut std::collections::BTreeSet<_>,
                            now: u64,
                            owner: u32| {
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

    /// The first event is in the heap, far after the range of both wheels.
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
    fn later_events_stay() {
        let mut agenda = Agenda::default();
        agenda.push(Time::from_nanos(7), 1);
        agenda.push(END, 2);
        assert_eq!(agenda.pop(Time::from_nanos(6)), None);
        assert_eq!(agenda.pop(Time::from_nanos(7)), Some((Time::from_nanos(7), 1)));
        assert_eq!(agenda.pop(END), None);
    }
}
