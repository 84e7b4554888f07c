//! A queue of extents with access by position: a path's task, or its data in flight.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use units::Bytes;

use crate::layout::GRAIN;
use crate::{Extent, ExtentSet};

/// Extents in order of insertion. Each has an *offset*: the number of bytes inserted before it. For
/// data in flight the offset is the position in the connection's byte stream, which delivers in
/// order. No position occurs twice. Every operation takes O(log n) for each extent that it touches;
/// extents that are adjacent both in the queue and in the layout are joined.
#[derive(Clone, Debug)]
pub(super) struct ExtentQueue {
    by_offset: BTreeMap<u64, Extent>,
    by_start: BTreeMap<u64, u64>,
    next: u64,
    bytes: u64,
}

impl ExtentQueue {
    /// An empty queue.
    pub(super) fn new() -> ExtentQueue {
        ExtentQueue { by_offset: BTreeMap::new(), by_start: BTreeMap::new(), next: 0, bytes: 0 }
    }

    /// Bytes in the queue.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The offset of the next byte to be inserted.
    pub(super) fn next_offset(&self) -> u64 {
        self.next
    }

    /// Appends an extent. Positions of it that are in the queue already move to the end.
    pub(super) fn push_back(&mut self, extent: Extent) {
        self.remove(extent);
        match self.by_offset.last_entry() {
            Some(mut last)
                if last.get().end() == extent.start && last.key() + last.get().len == self.next =>
            {
                last.get_mut().len += extent.len;
            }
            _ => self.insert(self.next, extent),
        }
        self.next += extent.len;
        self.bytes += extent.len;
    }

    /// The first extent, with its offset.
    pub(super) fn front(&self) -> Option<(u64, Extent)> {
        self.by_offset.first_key_value().map(|(&offset, &extent)| (offset, extent))
    }

    /// All extents with their offsets, from head to tail.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.by_offset.iter().map(|(&offset, &extent)| (offset, extent))
    }

    /// All extents with their offsets, from tail to head.
    pub(super) fn iter_back(&self) -> impl Iterator<Item = (u64, Extent)> + '_ {
        self.by_offset.iter().rev().map(|(&offset, &extent)| (offset, extent))
    }

    /// Removes the first `len` bytes of the first extent, or all of it if it is shorter.
    pub(super) fn pop_front(&mut self, len: u64) -> Option<Extent> {
        let (_, first) = self.front()?;
        let taken = Extent::new(first.start, len.min(first.len));
        self.remove(taken);
        Some(taken)
    }

    /// Removes up to `most` bytes from the tail, last extent first. Cuts at a multiple of `align`
    /// (itself a multiple of [`GRAIN`]) if there is one, otherwise at a multiple of [`GRAIN`].
    pub(super) fn take_back(&mut self, most: u64, align: u64) -> Vec<Extent> {
        let mut taken = Vec::new();
        let mut missing = most;
        while missing > 0 {
            let Some((_, &last)) = self.by_offset.last_key_value() else { break };
            let earliest = last.end().saturating_sub(missing).max(last.start);
            let cut = |align: u64| {
                if earliest == last.start { earliest } else { earliest.next_multiple_of(align) }
            };
            let start = if cut(align) < last.end() { cut(align) } else { cut(GRAIN) };
            let piece = Extent::between(start, last.end());
            if piece.is_empty() {
                break;
            }
            self.remove(piece);
            taken.push(piece);
            missing -= piece.len;
            if start > last.start {
                break;
            }
        }
        taken
    }

    /// Removes and returns all extents.
    pub(super) fn take_all(&mut self) -> Vec<Extent> {
        let taken = self.by_offset.values().copied().collect();
        self.by_offset.clear();
        self.by_start.clear();
        self.bytes = 0;
        taken
    }

    /// Removes an extent's positions wherever they are in the queue. `None` if none of them is.
    pub(super) fn remove(&mut self, extent: Extent) -> Option<Removed> {
        let mut removed: Option<Removed> = None;
        while let Some((offset, whole)) = self.find(extent) {
            let cut = whole.intersection(extent);
            self.by_offset.remove(&offset);
            self.by_start.remove(&whole.start);
            if whole.start < cut.start {
                self.insert(offset, Extent::between(whole.start, cut.start));
            }
            if cut.end() < whole.end() {
                self.insert(
                    offset + (cut.end() - whole.start),
                    Extent::between(cut.end(), whole.end()),
                );
            }
            self.bytes -= cut.len;
            let upto = offset + (cut.end() - whole.start);
            let before = removed.unwrap_or(Removed { bytes: 0, upto: 0 });
            removed = Some(Removed { bytes: before.bytes + cut.len, upto: before.upto.max(upto) });
        }
        removed
    }

    /// An extent of the queue that overlaps `extent`, with its offset.
    fn find(&self, extent: Extent) -> Option<(u64, Extent)> {
        let before = self.by_start.range(..=extent.start).next_back();
        let after = self.by_start.range(extent.start..extent.end().max(extent.start)).next();
        before
            .into_iter()
            .chain(after)
            .map(|(_, &offset)| (offset, self.by_offset[&offset]))
            .find(|(_, whole)| !whole.intersection(extent).is_empty())
    }

    /// The offset of a position.
    pub(super) fn offset_of(&self, position: u64) -> Option<u64> {
        self.find(Extent::new(position, 1)).map(|(offset, whole)| offset + (position - whole.start))
    }

    /// The positions of `extent` that are in this queue.
    pub(super) fn within(&self, extent: Extent) -> ExtentSet {
        let before = self.by_start.range(..extent.start).next_back();
        let inside = self.by_start.range(extent.start..extent.end().max(extent.start));
        before
            .into_iter()
            .chain(inside)
            .map(|(_, offset)| self.by_offset[offset].intersection(extent))
            .filter(|piece| !piece.is_empty())
            .collect()
    }

    fn insert(&mut self, offset: u64, extent: Extent) {
        self.by_offset.insert(offset, extent);
        self.by_start.insert(extent.start, offset);
    }
}

/// The positions that [`ExtentQueue::remove`] removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removed {
    /// Their number, in bytes.
    pub(super) bytes: u64,
    /// The offset behind the last of them.
    pub(super) upto: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BLOCK;

    #[test]
    fn neighbours_join_and_split() {
        let mut queue = ExtentQueue::new();
        queue.push_back(Extent::new(0, 100));
        queue.push_back(Extent::new(100, 50));
        queue.push_back(Extent::new(1_000, 10));
        assert_eq!(queue.iter_back().count(), 2);
        assert_eq!(queue.remove(Extent::new(40, 20)), Some(Removed { bytes: 20, upto: 60 }));
        assert_eq!(queue.front(), Some((0, Extent::new(0, 40))));
        assert_eq!(queue.offset_of(60), Some(60));
        assert_eq!(queue.offset_of(1_000), Some(150));
        assert_eq!(queue.offset_of(50), None);
        assert_eq!(queue.bytes(), Bytes(140));
    }

    #[test]
    fn tails_are_cut_on_the_grain() {
        let mut queue = ExtentQueue::new();
        queue.push_back(Extent::new(0, 4 * BLOCK));
        assert_eq!(queue.take_back(BLOCK + 5_000, BLOCK), [Extent::new(3 * BLOCK, BLOCK)]);
        assert_eq!(queue.take_back(10_000, BLOCK), [Extent::new(3 * BLOCK - 8_192, 8_192)]);
        assert_eq!(queue.take_back(100, BLOCK), []);
    }

    #[test]
    fn sending_again_moves_to_the_end() {
        let mut queue = ExtentQueue::new();
        queue.push_back(Extent::new(0, 10));
        queue.push_back(Extent::new(20, 10));
        queue.push_back(Extent::new(0, 10));
        assert_eq!(queue.offset_of(0), Some(20));
        assert_eq!(queue.bytes(), Bytes(20));
    }
}
