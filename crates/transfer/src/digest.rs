//! BLAKE3 by blocks: chaining values of blocks that arrive in any order, merged into the hash of
//! the whole file.
//!
//! A block of 256 KiB is 256 chunks, an aligned and complete subtree of BLAKE3's tree; the last
//! block of a file may be shorter. The chaining value of a file's only block *is* the file's hash,
//! since a lone block is the tree's root.

use alloc::collections::BTreeMap;
use core::fmt;

use blake3::Hasher;
use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use crate::layout::{BLOCK, MAX_POSITION};

/// A chaining value, or a root hash: 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cv(pub [u8; 32]);

impl fmt::Display for Cv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Cv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cv({self})")
    }
}

/// The chaining value of the block at `offset` of a file of `file_len` bytes.
///
/// # Panics
/// If `offset` is not a multiple of [`BLOCK`], or `data` is not exactly that block.
#[must_use]
pub fn block_cv(file_len: u64, offset: u64, data: &[u8]) -> Cv {
    let mut hasher = BlockHasher::new(file_len, offset);
    hasher.update(data);
    hasher.finish()
}

/// The hash of the empty file.
#[must_use]
pub fn empty_root() -> Cv {
    Cv(*blake3::hash(&[]).as_bytes())
}

/// Computes the chaining value of one block whose bytes arrive in pieces, in order.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    hasher: Hasher,
    alone: bool,
    missing: u64,
}

impl BlockHasher {
    /// Begins the block at `offset` of a file of `file_len` bytes.
    ///
    /// # Panics
    /// If `offset` is not a multiple of [`BLOCK`] or lies beyond the file's end.
    #[must_use]
    pub fn new(file_len: u64, offset: u64) -> BlockHasher {
        assert!(offset.is_multiple_of(BLOCK), "a block begins at a multiple of its size");
        assert!(offset < file_len || file_len == 0, "the block lies within the file");
        let mut hasher = Hasher::new();
        if offset > 0 {
            hasher.set_input_offset(offset);
        }
        BlockHasher { hasher, alone: file_len <= BLOCK, missing: (file_len - offset).min(BLOCK) }
    }

    /// The bytes that the block still needs.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Adds the next bytes.
    ///
    /// # Panics
    /// If `data` goes beyond the block's end.
    pub fn update(&mut self, data: &[u8]) {
        self.missing =
            self.missing.checked_sub(data.len() as u64).expect("no more bytes than the block has");
        self.hasher.update(data);
    }

    /// The chaining value.
    ///
    /// # Panics
    /// If the block is not complete.
    #[must_use]
    pub fn finish(self) -> Cv {
        assert!(self.missing == 0, "the block is complete");
        Cv(if self.alone {
            *self.hasher.finalize().as_bytes()
        } else {
            self.hasher.finalize_non_root()
        })
    }
}

/// Why a chaining value was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The file has no such block.
    #[error("the file has no block {0}")]
    NoSuchBlock(u64),
    /// It was inserted before.
    #[error("block {0} was inserted before")]
    Again(u64),
}

/// Merges the chaining values of a file's blocks, in any order, into the file's BLAKE3 hash.
/// Siblings merge as soon as both are known, so blocks that arrive nearly in order need O(log n)
/// memory.
#[derive(Clone, Debug)]
pub struct Merge {
    blocks: u64,
    /// Whether the file may have more blocks than arrived: each of its first 1, 2, 4, … blocks may
    /// be half of the root, and is not merged yet.
    growing: bool,
    /// Complete subtrees by (level, index at that level); level 0 is a block.
    nodes: BTreeMap<(u32, u64), Cv>,
    root: Option<Cv>,
}

impl Merge {
    /// For a file of `file_len` bytes.
    #[must_use]
    pub fn new(file_len: u64) -> Merge {
        let root = (file_len == 0).then(empty_root);
        Merge { blocks: file_len.div_ceil(BLOCK), growing: false, nodes: BTreeMap::new(), root }
    }

    /// For a stream, whose length [`Merge::end`] tells.
    #[must_use]
    pub fn stream() -> Merge {
        let blocks = MAX_POSITION / BLOCK;
        Merge { blocks, growing: true, nodes: BTreeMap::new(), root: None }
    }

    /// The stream has ended with `len` bytes; no block beyond them was inserted.
    pub fn end(&mut self, len: u64) {
        self.growing = false;
        self.blocks = len.div_ceil(BLOCK);
        self.root = (len == 0).then(empty_root);
        for ((level, index), cv) in core::mem::take(&mut self.nodes) {
            self.place(level, index, cv);
        }
    }

    /// Adds the chaining value of a block (counted from the file's start).
    ///
    /// # Errors
    /// If there is no such block, or it was inserted before; nothing changes then.
    pub fn insert(&mut self, block: u64, cv: Cv) -> Result<(), MergeError> {
        if block >= self.blocks {
            return Err(MergeError::NoSuchBlock(block));
        }
        if self.root.is_some()
            || (0..=self.blocks.ilog2())
                .any(|level| self.nodes.contains_key(&(level, block >> level)))
        {
            return Err(MergeError::Again(block));
        }
        self.place(0, block, cv);
        Ok(())
    }

    /// Adds a complete subtree, and merges it with its siblings as far as they are known.
    fn place(&mut self, mut level: u32, mut index: u64, mut cv: Cv) {
        // A node covers 1 << level blocks from index << level; the root is node 0 of the first
        // level that covers all blocks.
        while self.blocks > 1 << level {
            let sibling = index ^ 1;
            if self.growing && index.min(sibling) == 0 {
                self.nodes.insert((level, index), cv);
                return;
            }
            if sibling << level < self.blocks {
                let Some(other) = self.nodes.remove(&(level, sibling)) else {
                    self.nodes.insert((level, index), cv);
                    return;
                };
                let (left, right) = if index < sibling { (cv, other) } else { (other, cv) };
                cv = if self.blocks <= 2 << level {
                    Cv(*merge_subtrees_root(&left.0, &right.0, Mode::Hash).as_bytes())
                } else {
                    Cv(merge_subtrees_non_root(&left.0, &right.0, Mode::Hash))
                };
            }
            // A node without a sibling, at the right edge of an incomplete tree, moves up
            // unchanged.
            level += 1;
            index >>= 1;
        }
        self.root = Some(cv);
    }

    /// The file's hash, once every block was inserted.
    #[must_use]
    pub fn root(&self) -> Option<Cv> {
        self.root
    }

    /// The number of chaining values in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn data(len: u64) -> Vec<u8> {
        (0..len).map(|i| u8::try_from((i * 31 + i / 1_000) % 251).expect("below 251")).collect()
    }

    fn root(data: &[u8], order: impl Iterator<Item = u64>) -> Option<Cv> {
        let len = data.len() as u64;
        let mut merge = Merge::new(len);
        for block in order {
            let start = usize::try_from(block * BLOCK).expect("small");
            let end = data.len().min(start + 256 * 1024);
            merge
                .insert(block, block_cv(len, block * BLOCK, &data[start..end]))
                .expect("a new block");
        }
        merge.root()
    }

    /// The root of a stream whose length is known after `before` blocks.
    fn streamed(data: &[u8], order: &[u64], before: usize) -> Option<Cv> {
        let len = data.len() as u64;
        let mut merge = Merge::stream();
        for (at, &block) in order.iter().enumerate() {
            if at == before {
                merge.end(len);
            }
            let start = usize::try_from(block * BLOCK).expect("small");
            let end = data.len().min(start + 256 * 1024);
            let cv = block_cv(len, block * BLOCK, &data[start..end]);
            merge.insert(block, cv).expect("a new block");
            assert_eq!(merge.insert(block, cv), Err(MergeError::Again(block)));
        }
        if before >= order.len() {
            assert_eq!(merge.root(), None, "the end is not known");
            merge.end(len);
        }
        merge.root()
    }

    #[test]
    fn a_stream_has_the_hash_of_the_whole() {
        for size in [0, 1, BLOCK, BLOCK + 1, 2 * BLOCK, 4 * BLOCK, 5 * BLOCK + 7, 8 * BLOCK] {
            let data = data(size);
            let whole = Cv(*blake3::hash(&data).as_bytes());
            let blocks = size.div_ceil(BLOCK);
            let forward: Vec<u64> = (0..blocks).collect();
            let backward: Vec<u64> = (0..blocks).rev().collect();
            for order in [forward, backward] {
                for before in 0..=order.len() {
                    assert_eq!(streamed(&data, &order, before), Some(whole), "{size}, {before}");
                }
            }
        }
    }

    #[test]
    fn a_long_stream_holds_few_chaining_values() {
        let mut merge = Merge::stream();
        for block in 0..100_000 {
            merge.insert(block, Cv([1; 32])).expect("a new block");
            assert!(merge.held() <= 2 * 17 + 2, "{} at {block}", merge.held());
        }
    }

    #[test]
    fn equals_the_hash_of_the_whole() {
        let sizes = [
            0,
            1,
            1_023,
            1_024,
            1_025,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            2 * BLOCK,
            2 * BLOCK + 1,
            3 * BLOCK - 7,
            5 * BLOCK + 1_024,
            7 * BLOCK,
            8 * BLOCK,
            9 * BLOCK + 1,
            13 * BLOCK + 4_097,
        ];
        for size in sizes {
            let data = data(size);
            let blocks = size.div_ceil(BLOCK);
            let expected = Some(Cv(*blake3::hash(&data).as_bytes()));
            assert_eq!(root(&data, 0..blocks), expected, "{size} forwards");
            assert_eq!(root(&data, (0..blocks).rev()), expected, "{size} backwards");
            let odd_first =
                (0..blocks).filter(|b| b % 2 == 1).chain((0..blocks).filter(|b| b % 2 == 0));
            assert_eq!(root(&data, odd_first), expected, "{size} odd blocks first");
        }
    }

    #[test]
    fn every_order_of_five_blocks() {
        let data = data(4 * BLOCK + 100);
        let expected = Some(Cv(*blake3::hash(&data).as_bytes()));
        for code in 0..120u64 {
            let mut left: Vec<u64> = (0..5).collect();
            let mut rest = code;
            let order: Vec<u64> = (1..=5)
                .rev()
                .map(|n| {
                    let pick = usize::try_from(rest % n).expect("below 5");
                    rest /= n;
                    left.remove(pick)
                })
                .collect();
            assert_eq!(root(&data, order.iter().copied()), expected, "order {order:?}");
        }
    }

    #[test]
    fn pieces_hash_as_the_whole_block() {
        let data = data(BLOCK + 5_000);
        let mut hasher = BlockHasher::new(BLOCK + 5_000, 0);
        for piece in data[..256 * 1024].chunks(10_007) {
            hasher.update(piece);
        }
        assert_eq!(hasher.finish(), block_cv(BLOCK + 5_000, 0, &data[..256 * 1024]));
    }

    #[test]
    fn in_order_it_holds_a_logarithm() {
        let mut merge = Merge::new(1_000 * BLOCK);
        for block in 0..1_000 {
            merge.insert(block, Cv([0; 32])).expect("a new block");
            assert!(merge.held() <= 10, "{} held after block {block}", merge.held());
        }
        assert!(merge.root().is_some());
    }

    #[test]
    fn the_same_block_twice_and_unknown_blocks_are_errors() {
        let mut merge = Merge::new(4 * BLOCK);
        for block in [0, 1] {
            merge.insert(block, Cv([0; 32])).expect("new");
        }
        assert_eq!(
            merge.insert(0, Cv([0; 32])),
            Err(MergeError::Again(0)),
            "also after it was merged"
        );
        assert_eq!(merge.insert(4, Cv([0; 32])), Err(MergeError::NoSuchBlock(4)));
    }
}
