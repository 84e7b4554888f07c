//! Ranges of a layout and sets of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use units::Bytes;

/// The layout positions `start .. start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The first position.
    pub start: u64,
    /// The number of positions, in bytes.
    pub len: u64,
}

impl Extent {
    /// `start .. start + len`.
    #[must_use]
    pub const fn new(start: u64, len: u64) -> Extent {
        Extent { start, len }
    }

    /// `start .. end`; empty if `end` is not beyond `start`.
    #[must_use]
    pub const fn between(start: u64, end: u64) -> Extent {
        Extent { start, len: end.saturating_sub(start) }
    }

    /// The position after the last one, `u64::MAX` at most.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Whether it has no positions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The positions that both have in common; empty if there are none.
    #[must_use]
    pub fn intersection(&self, other: Extent) -> Extent {
        let start = self.start.max(other.start);
        Extent::between(start, self.end().min(other.end()).max(start))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end())
    }
}

/// A set of positions, kept as sorted, disjoint extents that do not touch. Operations take O(log n)
/// for n extents, and O(log n) more for each extent that they add or remove.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtentSet {
    ends: BTreeMap<u64, u64>,
    total: u64,
}

impl ExtentSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> ExtentSet {
        ExtentSet::default()
    }

    /// Adds an extent and returns the pieces that were not in the set before, in order.
    pub fn insert(&mut self, extent: Extent) -> Vec<Extent> {
        let fresh: Vec<Extent> = self.gaps(extent).collect();
        if fresh.is_empty() {
            return fresh;
        }
        let (mut start, mut end) = (extent.start, extent.end());
        if let Some((&before, &before_end)) = self.ends.range(..start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.ends.range(start..=end).next() {
            self.ends.remove(&next);
            end = end.max(next_end);
        }
        self.ends.insert(start, end);
        self.total += fresh.iter().map(|piece| piece.len).sum::<u64>();
        fresh
    }

    /// Removes an extent and returns the pieces that were in the set, in order.
    pub fn remove(&mut self, extent: Extent) -> Vec<Extent> {
        let gone: Vec<Extent> = self.within(extent).collect();
        for piece in &gone {
            let (start, end) = self
                .ends
                .range(..=piece.start)
                .next_back()
                .map(|(&start, &end)| (start, end))
                .expect("a piece lies in an extent of the set");
            self.ends.remove(&start);
            if start < piece.start {
                self.ends.insert(start, piece.start);
            }
            if piece.end() < end {
                self.ends.insert(piece.end(), end);
            }
            self.total -= piece.len;
        }
        gone
    }

    /// Removes the lowest positions: an extent of at most `most` bytes. `None` if the set is empty
    /// or `most` is zero.
    pub fn pop_front(&mut self, most: u64) -> Option<Extent> {
        let (&start, &end) = self.ends.first_key_value()?;
        let taken = Extent::between(start, end.min(start.saturating_add(most)));
        if taken.is_empty() {
            return None;
        }
        self.ends.remove(&start);
        if taken.end() < end {
            self.ends.insert(taken.end(), end);
        }
        self.total -= taken.len;
        Some(taken)
    }

    /// Whether every position of the extent is in the set; true for an empty one.
    #[must_use]
    pub fn contains(&self, extent: Extent) -> bool {
        self.gaps(extent).next().is_none()
    }

    /// Whether at least one position of the extent is in the set.
    #[must_use]
    pub fn intersects(&self, extent: Extent) -> bool {
        self.within(extent).next().is_some()
    }

    /// The parts of the extent that are in the set, in order.
    pub fn within(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let before = self.ends.range(..extent.start).next_back();
        before
            .into_iter()
            .chain(self.ends.range(extent.start..extent.end().max(extent.start)))
            .map(move |(&start, &end)| Extent::between(start, end).intersection(extent))
            .filter(|piece| !piece.is_empty())
    }

    /// The parts of the extent that are not in the set, in order.
    pub fn gaps(&self, extent: Extent) -> impl Iterator<Item = Extent> + '_ {
        let mut at = extent.start;
        self.within(extent)
            .map(Some)
            .chain(core::iter::once(None))
            .map(move |piece| {
                let upto = piece.map_or(extent.end(), |piece| piece.start);
                let gap = Extent::between(at, upto);
                at = piece.map_or(upto, |piece| piece.end());
                gap
            })
            .filter(|gap| !gap.is_empty())
    }

    /// All extents, in order.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Extent> + '_ {
        self.ends.iter().map(|(&start, &end)| Extent::between(start, end))
    }

    /// The number of extents.
    #[must_use]
    pub fn extents(&self) -> usize {
        self.ends.len()
    }

    /// The number of positions, in bytes.
    #[must_use]
    pub fn total(&self) -> Bytes {
        Bytes(self.total)
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl fmt::Debug for ExtentSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Extent> for ExtentSet {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> ExtentSet {
        let mut set = ExtentSet::new();
        for extent in extents {
            set.insert(extent);
        }
        set
    }
}
