//! A set of offsets, kept as ranges.

use alloc::collections::BTreeMap;
use core::ops::Bound;

/// Disjoint ranges of offsets that do not touch, each `from..to`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    /// Where each begins and ends.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The range with the lowest offsets.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.ranges.first_key_value().map(|(from, to)| (*from, *to))
    }

    /// Whether all of `from..to` is in it.
    pub(crate) fn contains(&self, from: u64, to: u64) -> bool {
        from >= to || self.ranges.range(..=from).next_back().is_some_and(|(_, end)| *end >= to)
    }

    /// The range that `at` lies in.
    pub(crate) fn around(&self, at: u64) -> Option<(u64, u64)> {
        let (&from, &to) = self.ranges.range(..=at).next_back()?;
        (at < to).then_some((from, to))
    }

    /// Adds `from..to`; returns how many offsets were new.
    pub(crate) fn insert(&mut self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        let (mut begin, mut end, mut known) = (from, to, 0);
        if let Some((&before, &until)) = self.ranges.range(..=from).next_back()
            && until >= from
        {
            if until >= to {
                return 0;
            }
            known += until - from;
            begin = before;
        }
        let within = (Bound::Excluded(from), Bound::Included(to));
        while let Some((&next, &until)) = self.ranges.range(within).next() {
            known += until.min(to) - next;
            self.ranges.remove(&next);
            end = end.max(until);
        }
        self.ranges.insert(begin, end);
        to - from - known
    }

    /// Takes `from..to` out.
    pub(crate) fn remove(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        if let Some((&before, until)) = self.ranges.range_mut(..from).next_back()
            && *until > from
        {
            let end = core::mem::replace(until, from);
            debug_assert!(before < from);
            if end > to {
                self.ranges.insert(to, end);
                return;
            }
        }
        while let Some((&next, &until)) = self.ranges.range(from..to).next() {
            self.ranges.remove(&next);
            if until > to {
                self.ranges.insert(to, until);
            }
        }
    }

    /// Calls `each` with the parts of `from..to` that are not in it.
    pub(crate) fn gaps(&self, from: u64, to: u64, mut each: impl FnMut(u64, u64)) {
        let mut at = match self.ranges.range(..=from).next_back() {
            Some((_, &until)) => from.max(until),
            None => from,
        };
        while at < to {
            let Some((&next, &until)) = self.ranges.range(at..to).next() else {
                each(at, to);
                return;
            };
            if next > at {
                each(at, next);
            }
            at = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of single offsets.
        #[test]
        fn as_a_set_of_offsets(steps in proptest::collection::vec((0u8..3, 0u64..60, 0u64..20), 1..60)) {
            let (mut ranges, mut model) = (Ranges::default(), [false; 100]);
            for (what, from, len) in steps {
                let to = from + len;
                let part = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
                match what {
                    0 => {
                        let new = model[part.clone()].iter().filter(|is_in| !**is_in).count();
                        prop_assert_eq!(ranges.insert(from, to), new as u64);
                        model[part].fill(true);
                    }
                    1 => {
                        ranges.remove(from, to);
                        model[part].fill(false);
                    }
                    _ => {
                        let mut missing = Vec::new();
                        ranges.gaps(from, to, |from, to| missing.extend(from..to));
                        let wanted: Vec<u64> = (from..to).filter(|at| !model[usize::try_from(*at).unwrap()]).collect();
                        prop_assert_eq!(missing, wanted);
                        prop_assert_eq!(ranges.contains(from, to), model[part].iter().all(|is_in| *is_in));
                    }
                }
                let runs = model.iter().zip(core::iter::once(&false).chain(&model)).filter(|(at, before)| **at && !**before);
                prop_assert_eq!(ranges.len(), runs.count());
                prop_assert_eq!(ranges.is_empty(), !model.contains(&true));
                let first = model.iter().position(|is_in| *is_in).map(|at| at as u64);
                prop_assert_eq!(ranges.first().map(|(from, _)| from), first);
            }
        }
    }
}
