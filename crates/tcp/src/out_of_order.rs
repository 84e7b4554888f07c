//! Data beyond a gap.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::search::partition_from_end;

/// Data that arrived out of order, and a duplicate to report. Everything takes at most logarithmic
/// time but an insertion between many blocks, which moves the smaller part of them: after a long
/// path's slow start there are thousands.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutOfOrder {
    /// Blocks that do not touch, beyond the next position expected, by position.
    blocks: VecDeque<Block>,
    /// The beginnings of the blocks with their stamps, the latest last. Other entries are of blocks
    /// that have changed since.
    recent: Vec<(u64, u64)>,
    /// The latest stamp.
    stamp: u64,
    /// The duplicate range of the latest segment (RFC 2883); empty if there was none.
    duplicate: (u64, u64),
}

/// Contiguous data.
#[derive(Clone, Copy, Debug)]
struct Block {
    from: u64,
    to: u64,
    /// Grows with each arrival that made or changed the block, except at its end while it is the
    /// latest.
    stamp: u64,
}

/// The most blocks in a segment.
const MOST_REPORTED: usize = 3;

impl OutOfOrder {
    /// Whether there is neither data nor a duplicate.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && !self.has_duplicate()
    }

    /// Whether there is data.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    #[inline]
    fn has_duplicate(&self) -> bool {
        self.duplicate.0 < self.duplicate.1
    }

    /// The latest segment was a duplicate of this range.
    pub(crate) fn note_duplicate(&mut self, from: u64, to: u64) {
        self.duplicate = (from, to);
    }

    /// The number of ranges to report, at most three.
    #[inline]
    pub(crate) fn reported(&self) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "at most three")]
        let count =
            (self.blocks.len() + usize::from(self.has_duplicate())).min(MOST_REPORTED) as u8;
        count
    }

    /// Passes the ranges to report to `each`, at most `most` of them: the duplicate, which is
    /// reported once, and the latest blocks (RFC 2018, section 4).
    pub(crate) fn take_reported(&mut self, most: usize, mut each: impl FnMut(u64, u64)) {
        let mut left = most;
        if left > 0 && self.has_duplicate() {
            let (from, to) = core::mem::take(&mut self.duplicate);
            each(from, to);
            left -= 1;
        }
        let mut kept = [(0, 0); MOST_REPORTED];
        let mut count = 0;
        while count < left.min(MOST_REPORTED)
            && let Some(entry) = self.recent.pop()
        {
            if let Some(block) = self.block_of(entry) {
                each(block.from, block.to);
                kept[count] = entry;
                count += 1;
            }
        }
        self.recent.extend(kept[..count].iter().rev());
    }

    /// The block of an entry of `recent`, unless it has changed since.
    fn block_of(&self, (from, stamp): (u64, u64)) -> Option<Block> {
        let block = self.blocks.get(partition_from_end(&self.blocks, |block| block.from < from))?;
        (block.from == from && block.stamp == stamp).then_some(*block)
    }

    /// Adds a block that arrived out of order.
    pub(crate) fn insert(&mut self, from: u64, to: u64) {
        let first = partition_from_end(&self.blocks, |block| block.to < from);
        let next = self.blocks.get(first + 1).map(|block| block.from);
        if let Some(block) = self.blocks.get_mut(first)
            && block.to == from
            && block.stamp == self.stamp
            && next.is_none_or(|next| to < next)
        {
            // The usual case: the block continues the latest one.
            block.to = to;
            return;
        }
        let (mut begin, mut end) = (from, to);
        let mut behind = first;
        while let Some(block) = self.blocks.get(behind).filter(|block| block.from <= to) {
            if block.from <= from && to <= block.to {
                self.duplicate = (from, to);
            }
            begin = begin.min(block.from);
            end = end.max(block.to);
            behind += 1;
        }
        self.stamp += 1;
        let block = Block { from: begin, to: end, stamp: self.stamp };
        if behind == first {
            self.blocks.insert(first, block);
        } else {
            self.blocks[first] = block;
            self.blocks.drain(first + 1..behind);
        }
        if self.recent.len() > 2 * self.blocks.len() + 8 {
            let mut recent = core::mem::take(&mut self.recent);
            recent.retain(|entry| self.block_of(*entry).is_some());
            self.recent = recent;
        }
        self.recent.push((begin, self.stamp));
    }

    /// Removes the blocks that are in order once everything up to `next` has arrived. Returns the
    /// next position expected.
    pub(crate) fn take_in_order(&mut self, mut next: u64) -> u64 {
        while let Some(block) = self.blocks.front().filter(|block| block.from <= next) {
            next = next.max(block.to);
            self.blocks.pop_front();
        }
        if self.blocks.is_empty() {
            self.recent.clear();
        }
        next
    }

    /// The bytes of the blocks, and the end of the last one.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let bytes = self.blocks.iter().map(|block| block.to - block.from).sum();
        (bytes, self.blocks.back().map_or(0, |block| block.to))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Blocks in a list, the latest first.
    #[derive(Default)]
    struct Model {
        blocks: Vec<(u64, u64)>,
        duplicate: Option<(u64, u64)>,
    }

    impl Model {
        fn insert(&mut self, from: u64, to: u64) {
            let (mut begin, mut end) = (from, to);
            if self.blocks.iter().any(|block| block.0 <= from && to <= block.1) {
                self.duplicate = Some((from, to));
            }
            self.blocks.retain(|block| {
                let touches = block.0 <= to && from <= block.1;
                if touches {
                    (begin, end) = (begin.min(block.0), end.max(block.1));
                }
                !touches
            });
            self.blocks.insert(0, (begin, end));
        }

        fn take_in_order(&mut self, mut next: u64) -> u64 {
            while let Some(index) = self.blocks.iter().position(|block| block.0 <= next) {
                next = next.max(self.blocks.remove(index).1);
            }
            next
        }

        fn reported(&mut self, most: usize) -> Vec<(u64, u64)> {
            self.duplicate.take().into_iter().chain(self.blocks.clone()).take(most).collect()
        }
    }

    proptest! {
        #[test]
        fn it_reports_what_a_list_would(
            ops in prop::collection::vec((1..60u64, 1..8u64, 0..4u8), 1..200)
        ) {
            let (mut found, mut model) = (OutOfOrder::default(), Model::default());
            let mut next = 0;
            for (ahead, len, what) in ops {
                if what == 0 {
                    let to = next + len;
                    next = model.take_in_order(to);
                    prop_assert_eq!(found.take_in_order(to), next);
                } else {
                    let (from, to) = (next + ahead, next + ahead + len);
                    found.insert(from, to);
                    model.insert(from, to);
                }
                let bytes: u64 = model.blocks.iter().map(|(from, to)| to - from).sum();
                prop_assert_eq!(found.extent().0, bytes);
                prop_assert_eq!(found.has_blocks(), bytes > 0);
                if what < 3 {
                    let most = usize::from(found.reported());
                    let mut reported = Vec::new();
                    found.take_reported(most, |from, to| reported.push((from, to)));
                    prop_assert_eq!(reported, model.reported(MOST_REPORTED));
                }
            }
        }
    }

    #[test]
    fn what_is_not_reported_takes_little_memory() {
        let mut blocks = OutOfOrder::default();
        for round in 0..1_000 {
            blocks.insert(10, 20 + round);
            blocks.insert(10_000, 10_001 + round);
        }
        assert_eq!(blocks.blocks.len(), 2);
        assert!(blocks.recent.len() <= 13, "{}", blocks.recent.len());
    }
}
