//! The objects of a transfer, one behind the other.

use alloc::vec::Vec;

use units::Bytes;

use crate::{Extent, ExtentSet, PeerError};

/// The unit of verification, and the alignment of objects in a layout: 256 KiB, 256 chunks of
/// BLAKE3.
pub const BLOCK: u64 = 256 * 1024;
/// Extents are cut at multiples of this only, or at an object's end: 4 KiB.
pub const GRAIN: u64 = 4 * 1024;
/// The most objects that a layout may have.
pub const MAX_OBJECTS: usize = 1 << 22;
/// The largest position a layout may reach: 64 PiB.
pub const MAX_POSITION: u64 = wire::manifest::MOST_STREAMED;

/// A position within an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the object in the layout.
    pub object: usize,
    /// Offset in that object, in bytes.
    pub offset: u64,
}

/// Why a list of sizes makes no layout. If the list came from a peer, each of these is a violation
/// of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// More than [`MAX_OBJECTS`].
    #[error("{0} objects are more than {MAX_OBJECTS}")]
    TooMany(usize),
    /// The positions would go beyond [`MAX_POSITION`].
    #[error("object {0} lies beyond the largest position")]
    TooLarge(usize),
}

/// The positions of each object: the data of one large file or of several small ones
/// ([`Packing`](crate::Packing)). Every object starts at a multiple of [`BLOCK`]; the rest of its
/// last block stays empty. An empty object takes no positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    sizes: Vec<u64>,
    starts: Vec<u64>,
    /// The objects that have bytes, so that a search never lands on an empty one.
    solid: Vec<usize>,
    total: Bytes,
    end: u64,
    growth: Growth,
}

/// Whether a layout can grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// All sizes were known at the start.
    Fixed,
    /// It is a stream whose end is not known yet.
    Growing,
    /// It is a stream that has ended.
    Ended,
}

/// The least size of a stream that has not ended, in bytes: the hash of a first block is another
/// one if there is no second.
const LEAST_GROWN: u64 = 2 * BLOCK;

impl Layout {
    /// Lays out objects of these sizes in the order given.
    ///
    /// # Errors
    /// If there are too many of them, or they are too large.
    pub fn new(sizes: impl IntoIterator<Item = Bytes>) -> Result<Layout, LayoutError> {
        let sizes: Vec<u64> = sizes.into_iter().map(|size| size.0).collect();
        if sizes.len() > MAX_OBJECTS {
            return Err(LayoutError::TooMany(sizes.len()));
        }
        let mut starts = Vec::with_capacity(sizes.len());
        let (mut end, mut total, mut solid) = (0u64, 0, Vec::new());
        for (index, &size) in sizes.iter().enumerate() {
            starts.push(end);
            if size > MAX_POSITION || end + size > MAX_POSITION {
                return Err(LayoutError::TooLarge(index));
            }
            if size > 0 {
                solid.push(index);
            }
            end += size.next_multiple_of(BLOCK);
            total += size;
        }
        Ok(Layout { sizes, starts, solid, total: Bytes(total), end, growth: Growth::Fixed })
    }

    /// The layout of a stream: one object, which grows. `known` are its bytes so far; only whole
    /// blocks of them count, and one alone does not.
    #[must_use]
    pub fn stream(known: u64) -> Layout {
        let mut layout = Layout {
            sizes: alloc::vec![0],
            starts: alloc::vec![0],
            solid: Vec::new(),
            total: Bytes::ZERO,
            end: 0,
            growth: Growth::Growing,
        };
        // Less than the least size is none.
        let _ = layout.grow(known / BLOCK * BLOCK, false);
        layout
    }

    /// Whether it may still grow: it is a stream's, and the stream has not ended.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.growth == Growth::Growing
    }

    /// The stream has at least `size` bytes or, if `is_end`, exactly as many. Before the end these
    /// are whole blocks, two at least. A size that it had before changes nothing. Returns whether
    /// this is the news of the end.
    ///
    /// # Errors
    /// If it is no stream's, or the size contradicts what is known.
    pub(crate) fn grow(&mut self, size: u64, is_end: bool) -> Result<bool, PeerError> {
        let known = self.total.0;
        let is_possible = size <= MAX_POSITION
            && (is_end || size.is_multiple_of(BLOCK) && size >= LEAST_GROWN)
            && match self.growth {
                Growth::Fixed => false,
                Growth::Growing => !is_end || size >= known,
                Growth::Ended => {
                    if is_end {
                        size == known
                    } else {
                        size <= known
                    }
                }
            };
        if !is_possible {
            return Err(PeerError::Grown(size));
        }
        if size > known {
            self.sizes[0] = size;
            self.solid = alloc::vec![0];
            self.total = Bytes(size);
            self.end = size.next_multiple_of(BLOCK);
        }
        let ends = is_end && self.is_growing();
        if ends {
            self.growth = Growth::Ended;
        }
        Ok(ends)
    }

    /// The number of objects.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.sizes.len()
    }

    /// The bytes of all objects together.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.total
    }

    /// The number of blocks; their indices count from zero.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.end / BLOCK
    }

    /// The positions of an object, or `None` if there is no such object. Empty for an empty one.
    #[must_use]
    pub fn object_extent(&self, object: usize) -> Option<Extent> {
        Some(Extent::new(*self.starts.get(object)?, *self.sizes.get(object)?))
    }

    /// The object and offset of a position, or `None` if it lies in no object.
    #[must_use]
    pub fn locate(&self, position: u64) -> Option<Place> {
        let after = self.solid.partition_point(|&object| self.starts[object] <= position);
        let object = self.solid[after.checked_sub(1)?];
        let offset = position - self.starts[object];
        (offset < self.sizes[object]).then_some(Place { object, offset })
    }

    /// The positions of a block, shorter than [`BLOCK`] at an object's end; `None` if it lies in no
    /// object.
    #[must_use]
    pub fn block_extent(&self, block: u64) -> Option<Extent> {
        let start = block.checked_mul(BLOCK)?;
        let place = self.locate(start)?;
        Some(Extent::new(start, BLOCK.min(self.sizes[place.object] - place.offset)))
    }

    /// Every position of every object.
    #[must_use]
    pub fn all(&self) -> ExtentSet {
        self.solid
            .iter()
            .map(|&object| Extent::new(self.starts[object], self.sizes[object]))
            .collect()
    }

    /// The part of a set that consists of whole blocks.
    #[must_use]
    pub fn whole_blocks(&self, set: &ExtentSet) -> ExtentSet {
        let mut whole = ExtentSet::new();
        for part in self
            .solid
            .iter()
            .flat_map(|&object| set.within(Extent::new(self.starts[object], self.sizes[object])))
        {
            let place = self.locate(part.start).expect("the part lies in an object");
            let object_end = part.start - place.offset + self.sizes[place.object];
            let end =
                if part.end() == object_end { object_end } else { part.end() / BLOCK * BLOCK };
            let aligned = Extent::between(part.start.next_multiple_of(BLOCK), end);
            if !aligned.is_empty() {
                whole.insert(aligned);
            }
        }
        whole
    }

    /// The object that an extent lies in.
    ///
    /// # Errors
    /// If it is empty, outside every object, or crosses an object's end.
    pub fn check(&self, extent: Extent) -> Result<Place, PeerError> {
        if extent.is_empty() {
            return Err(PeerError::Empty(extent.start));
        }
        let place = self.locate(extent.start).ok_or(PeerError::Outside(extent))?;
        if extent.len > self.sizes[place.object] - place.offset {
            return Err(PeerError::Outside(extent));
        }
        Ok(place)
    }

    /// The object that a data extent lies in. Beside the conditions of [`Layout::check`], it must
    /// lie within one block and begin and end at multiples of [`GRAIN`] or at the object's end.
    ///
    /// # Errors
    /// If it violates one of these conditions.
    pub fn check_data(&self, extent: Extent) -> Result<Place, PeerError> {
        let place = self.check(extent)?;
        if (extent.end() - 1) / BLOCK != extent.start / BLOCK {
            return Err(PeerError::CrossesBlock(extent));
        }
        let at_object_end = place.offset + extent.len == self.sizes[place.object];
        if !extent.start.is_multiple_of(GRAIN)
            || !(at_object_end || extent.end().is_multiple_of(GRAIN))
        {
            return Err(PeerError::Misaligned(extent));
        }
        Ok(place)
    }
}
