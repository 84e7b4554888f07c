//! What happens next: a heap of (time, admission number, owner).

use units::Time;

/// Bits of a key that name the owner of an event.
const OWNER_BITS: u32 = 24;
/// Bits of a key that hold the admission number: at 20 million events a second, enough for five months.
const NUMBER_BITS: u32 = 48;
/// Bits of a key that hold the time in nanoseconds: two years and three months.
const TIME_BITS: u32 = 128 - NUMBER_BITS - OWNER_BITS;

/// How many owners of events there can be.
pub(crate) const MAX_OWNERS: usize = 1 << OWNER_BITS;

/// From this time on, nothing happens.
pub(crate) const END: Time = Time::from_nanos((1 << TIME_BITS) - 1);

/// Behind every key.
const NEVER: u128 = u128::MAX;

/// Children of a node in the heap: four keys are a cache line.
const ARITY: usize = 4;

/// A queue of events, each a key of 128 bits: time, admission number and owner, from the highest bit to the lowest, so that one
/// comparison gives the order.
///
/// Taking the first leaves a hole at the top, which the next entry fills: as good as every event is followed by another
/// of the same link, and sinking one key costs half of a removal and an insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    /// The first `len` are the heap; behind them, [`NEVER`] completes the last family of children, so that sinking needs no special case.
    keys: Vec<u128>,
    len: usize,
    has_hole: bool,
    admitted: u64,
}

impl Agenda {
    /// Puts an event of `owner` at `at`; beyond [`END`] it never happens, and is not kept.
    #[inline]
    pub(crate) fn push(&mut self, at: Time, owner: u32) {
        if at >= END {
            return;
        }
        let key = (u128::from(at.as_nanos()) << (NUMBER_BITS + OWNER_BITS))
            | (u128::from(self.admitted) << OWNER_BITS)
            | u128::from(owner);
        self.admitted += 1;
        if self.has_hole {
            self.has_hole = false;
            self.sink(key);
        } else {
            if self.len == self.keys.len() {
                // The top alone, or a family.
                self.keys.extend_from_slice(&[NEVER; ARITY][..if self.len == 0 { 1 } else { ARITY }]);
            }
            self.len += 1;
            self.rise(self.len - 1, key);
        }
    }

    /// Takes the first event if it is at `until` or before: its time and its owner.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the bits are split as they were joined")]
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, u32)> {
        if self.has_hole {
            self.close_hole();
        }
        if self.len == 0 {
            return None;
        }
        let key = self.keys[0];
        let at = Time::from_nanos((key >> (NUMBER_BITS + OWNER_BITS)) as u64);
        if at > until {
            return None;
        }
        self.has_hole = true;
        Some((at, key as u32 & (MAX_OWNERS as u32 - 1)))
    }

    fn close_hole(&mut self) {
        self.has_hole = false;
        self.len -= 1;
        let last = std::mem::replace(&mut self.keys[self.len], NEVER);
        if self.len > 0 {
            self.sink(last);
        }
    }

    /// Puts `key` at the top and moves it down to its place.
    #[inline]
    fn sink(&mut self, key: u128) {
        let keys = self.keys.as_mut_slice();
        let mut hole = 0;
        let mut first = 1;
        while let Some(&[a, b, c, d]) = keys.get(first..first + ARITY) {
            // Two rounds of a tournament: the compiler makes them conditional moves.
            let (i, x) = if b < a { (1, b) } else { (0, a) };
            let (j, y) = if d < c { (3, d) } else { (2, c) };
            let (least, key_there) = if y < x { (j, y) } else { (i, x) };
            if key < key_there {
                break;
            }
            keys[hole] = key_there;
            hole = first + least;
            first = hole * ARITY + 1;
        }
        keys[hole] = key;
    }

    /// Puts `key` at `hole` and moves it up to its place.
    #[inline]
    fn rise(&mut self, mut hole: usize, key: u128) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.keys[parent] < key {
                break;
            }
            self.keys[hole] = self.keys[parent];
            hole = parent;
        }
        self.keys[hole] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_list(ops in prop::collection::vec(prop::option::of(0..50u64), 1..400)) {
            let mut agenda = Agenda::default();
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (n, op) in (0u32..).zip(ops) {
                if let Some(at) = op {
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
