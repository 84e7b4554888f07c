//! A set of offsets, kept as ranges.

use alloc::collections::VecDeque;

/// Disjoint ranges of offsets that do not touch, each `from..to`, in order. There are few at a
/// time, and most insertions extend the first or the last one, so a sorted list is faster than a
/// tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

impl Ranges {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of ranges.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// How many offsets are in it.
    pub(crate) fn total(&self) -> u64 {
        self.ranges.iter().map(|(from, to)| to - from).sum()
    }

    /// The range with the lowest offsets.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.ranges.front().copied()
    }

    /// Whether the set contains all of `from..to`.
    #[inline]
    pub(crate) fn contains(&self, from: u64, to: u64) -> bool {
        from >= to || self.around(from).is_some_and(|(_, end)| end >= to)
    }

    /// Whether `from..to` overlaps or adjoins a range, so that inserting it adds no range.
    pub(crate) fn touches(&self, from: u64, to: u64) -> bool {
        let index = self.ending_after(from.saturating_sub(1));
        self.ranges.get(index).is_some_and(|(begin, _)| *begin <= to)
    }

    /// The range that contains `at`.
    #[inline]
    pub(crate) fn around(&self, at: u64) -> Option<(u64, u64)> {
        let index = self.ending_after(at);
        self.ranges.get(index).copied().filter(|(from, _)| *from <= at)
    }

    /// The beginning of the first range that ends after `at`.
    pub(crate) fn after(&self, at: u64) -> Option<u64> {
        self.ranges.get(self.ending_after(at)).map(|(from, _)| *from)
    }

    /// The index of the first range that ends after `at`.
    #[inline]
    fn ending_after(&self, at: u64) -> usize {
        match self.ranges.back() {
            None => 0,
            Some(&(_, end)) if end <= at => self.ranges.len(),
            Some(&(from, _)) if from <= at => self.ranges.len() - 1,
            Some(_) => self.ranges.partition_point(|(_, end)| *end <= at),
        }
    }

    /// Adds `from..to`; returns how many offsets were new.
    #[inline]
    pub(crate) fn insert(&mut self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        // The first range that it touches, or the one behind it.
        let first = if from == 0 { 0 } else { self.ending_after(from - 1) };
        let (mut begin, mut end, mut known, mut touched) = (from, to, 0, 0);
        while let Some(&(next, until)) = self.ranges.get(first + touched)
            && next <= to
        {
            known += until.min(to).saturating_sub(next.max(from));
            (begin, end) = (begin.min(next), end.max(until));
            touched += 1;
        }
        if touched == 0 {
            self.ranges.insert(first, (begin, end));
        } else {
            self.ranges[first] = (begin, end);
            self.ranges.drain(first + 1..first + touched);
        }
        to - from - known
    }

    /// Removes `from..to`.
    pub(crate) fn remove(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let mut index = self.ending_after(from);
        while let Some(&(begin, end)) = self.ranges.get(index)
            && begin < to
        {
            match (begin < from, end > to) {
                (false, false) => {
                    self.ranges.remove(index);
                }
                (false, true) => self.ranges[index].0 = to,
                (true, false) => {
                    self.ranges[index].1 = from;
                    index += 1;
                }
                (true, true) => {
                    self.ranges[index].1 = from;
                    self.ranges.insert(index + 1, (to, end));
                    return;
                }
            }
        }
    }

    /// Calls `each` with the parts of `from..to` outside the set.
    pub(crate) fn gaps(&self, from: u64, to: u64, mut each: impl FnMut(u64, u64)) {
        let mut at = from;
        for &(begin, end) in self.ranges.range(self.ending_after(from)..) {
            if begin >= to {
                break;
            }
            if begin > at {
                each(at, begin);
            }
            at = end;
        }
        if at < to {
            each(at, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a set of single offsets.
        #[test]
        fn ranges_match_a_set_of_offsets(
            steps in proptest::collection::vec((0u8..3, 0u64..60, 0u64..20), 1..60),
        ) {
            let (mut ranges, mut model) = (Ranges::default(), [false; 100]);
            for (what, from, len) in steps {
                let to = from + len;
                let part = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
                match what {
                    0 => {
                        let new = model[part.clone()].iter().filter(|is_in| !**is_in).count();
                        let (before, touches) = (ranges.len(), ranges.touches(from, to));
                        prop_assert_eq!(ranges.insert(from, to), new as u64);
                        prop_assert_eq!(from < to && !touches, ranges.len() > before);
                        model[part].fill(true);
                    }
                    1 => {
                        ranges.remove(from, to);
                        model[part].fill(false);
                    }
                    _ => {
                        let mut missing = Vec::new();
                        ranges.gaps(from, to, |from, to| missing.extend(from..to));
                        let is_missing = |at: &u64| !model[usize::try_from(*at).unwrap()];
                        let expected: Vec<u64> = (from..to).filter(is_missing).collect();
                        prop_assert_eq!(missing, expected);
                        let is_whole = model[part].iter().all(|is_in| *is_in);
                        prop_assert_eq!(ranges.contains(from, to), is_whole);
                    }
                }
                let before = core::iter::once(&false).chain(&model);
                let begins = model.iter().zip(before).filter(|(at, before)| **at && !**before);
                prop_assert_eq!(ranges.len(), begins.count());
                prop_assert_eq!(ranges.is_empty(), !model.contains(&true));
                let first = model.iter().position(|is_in| *is_in).map(|at| at as u64);
                prop_assert_eq!(ranges.first().map(|(from, _)| from), first);
            }
        }
    }
}
