//! The receiving side: claimed, written and verified positions.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use units::Bytes;

use crate::digest::Merge;
use crate::layout::BLOCK;
use crate::{Cv, Extent, ExtentSet, Layout, PeerError};

/// The new part of an extent that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// The pieces to write, in order; usually the whole extent. They are claimed: no other arrival
    /// returns them.
    pub pieces: Vec<Extent>,
    /// Bytes of the extent that were claimed before: written already, or being written.
    pub duplicate: Bytes,
}

/// A block to be hashed: all its bytes are written, and its expected hash is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its index in the layout, for [`Receiver::handle_verified`].
    pub index: u64,
    /// Its positions.
    pub extent: Extent,
    /// Its expected chaining value.
    pub expected: Cv,
}

/// The result of a block's verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The hash matches; the driver journals the block. `finished` names the object and its hash if
    /// this was the object's last block.
    Verified {
        /// Object and root hash.
        finished: Option<(usize, Cv)>,
    },
    /// The hash does not match, and the block is wanted again. Tell the sender on *every* live
    /// path, on each behind the acknowledgements sent there before: the sender must not read an
    /// older acknowledgement of the same bytes after the refusal.
    Refuse(Extent),
}

/// The state of a block that is not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Being hashed.
    Hashing(Cv),
    /// Its hash is known.
    Expected(Cv),
}

/// The receiving side of a transfer.
///
/// Every byte is claimed by exactly one arriving extent; it can be claimed again only after its
/// block was refused.
#[derive(Clone, Debug)]
pub struct Receiver {
    layout: Layout,
    claimed: ExtentSet,
    written: ExtentSet,
    verified: ExtentSet,
    stages: BTreeMap<u64, Stage>,
    ready: VecDeque<u64>,
    merges: BTreeMap<usize, Merge>,
    roots: BTreeMap<usize, Cv>,
    /// Objects that their sender left out.
    left_out: BTreeSet<usize>,
    had: Bytes,
    refused: u64,
}

impl Receiver {
    /// A receiver for this layout. `have` are the positions verified in an earlier session; parts
    /// of blocks in it count as missing. If the objects' hashes are wanted, pass the chaining
    /// values of these blocks to [`Receiver::handle_journalled`].
    #[must_use]
    pub fn new(layout: &Layout, have: &ExtentSet) -> Receiver {
        let have = layout.whole_blocks(have);
        let roots = (0..if layout.is_growing() { 0 } else { layout.objects() })
            .filter(|&object| layout.object_extent(object).is_some_and(|extent| extent.is_empty()))
            .map(|object| (object, crate::digest::empty_root()))
            .collect();
        Receiver {
            layout: layout.clone(),
            claimed: have.clone(),
            written: have.clone(),
            had: have.total(),
            verified: have,
            stages: BTreeMap::new(),
            ready: VecDeque::new(),
            merges: BTreeMap::new(),
            roots,
            left_out: BTreeSet::new(),
            refused: 0,
        }
    }

    /// The stream has grown to `size` bytes, or has ended with them. A size that is already known
    /// changes nothing: each path tells it. Returns the object and its hash if the stream has ended
    /// and all its blocks are verified.
    ///
    /// # Errors
    /// If it is no stream, or the size contradicts what is known.
    pub fn handle_grown(
        &mut self,
        size: u64,
        is_end: bool,
    ) -> Result<Option<(usize, Cv)>, PeerError> {
        if !self.layout.grow(size, is_end)? {
            return Ok(None);
        }
        self.merges.entry(0).or_insert_with(Merge::stream).end(size);
        Ok(self.take_root(0))
    }

    /// Takes the journalled chaining value of a block that was verified in an earlier session.
    /// Returns the object and its hash if this was the object's last block.
    ///
    /// # Errors
    /// If the block was not in `have`.
    pub fn handle_journalled(
        &mut self,
        block: u64,
        cv: Cv,
    ) -> Result<Option<(usize, Cv)>, PeerError> {
        let extent = self.layout.block_extent(block).ok_or(PeerError::UnknownBlock(block))?;
        if !self.verified.contains(extent) {
            return Err(PeerError::UnknownBlock(block));
        }
        Ok(self.merge(block, extent, cv))
    }

    /// The sender leaves an object out: nothing of it is awaited any more, and what arrives of it
    /// all the same is not written. Returns whether that is news; an object of which everything is
    /// verified, or that does not exist, is not left out.
    pub fn handle_left_out(&mut self, object: usize) -> bool {
        let Some(whole) = self.layout.object_extent(object) else { return false };
        if self.layout.is_growing()
            || self.verified.contains(whole)
            || !self.left_out.insert(object)
        {
            return false;
        }
        self.claimed.insert(whole);
        self.verified.insert(whole);
        self.merges.remove(&object);
        let blocks = whole.start / BLOCK..whole.end().div_ceil(BLOCK);
        // Blocks that are being hashed will still be reported.
        self.stages
            .retain(|block, stage| !blocks.contains(block) || matches!(stage, Stage::Hashing(_)));
        true
    }

    /// Data arrived. The driver writes the pieces returned and calls [`Receiver::handle_written`]
    /// for each.
    ///
    /// # Errors
    /// If a sender may not send such an extent ([`Layout::check_data`]).
    pub fn handle_data(&mut self, extent: Extent) -> Result<Fresh, PeerError> {
        self.layout.check_data(extent)?;
        let pieces = self.claimed.insert(extent);
        let fresh: u64 = pieces.iter().map(|piece| piece.len).sum();
        Ok(Fresh { pieces, duplicate: Bytes(extent.len - fresh) })
    }

    /// Claimed pieces will not be written, because their connection died. They may be claimed
    /// again.
    pub fn handle_abandoned(&mut self, extent: Extent) {
        for piece in self.written.gaps(extent).collect::<Vec<_>>() {
            self.claimed.remove(piece);
        }
    }

    /// A claimed piece is written. From here on it may be acknowledged.
    ///
    /// # Errors
    /// If the extent does not lie within one object.
    pub fn handle_written(&mut self, extent: Extent) -> Result<(), PeerError> {
        self.layout.check(extent)?;
        self.claimed.insert(extent);
        if !self.written.insert(extent).is_empty() {
            for block in extent.start / BLOCK..=(extent.end() - 1) / BLOCK {
                self.queue(block);
            }
        }
        Ok(())
    }

    /// Takes the sender's chaining value of a block. Repeating it is harmless, even after the block
    /// was verified.
    ///
    /// # Errors
    /// If there is no such block, or a different hash of it is known.
    pub fn handle_hash(&mut self, block: u64, cv: Cv) -> Result<(), PeerError> {
        let extent = self.layout.block_extent(block).ok_or(PeerError::UnknownBlock(block))?;
        if self.verified.contains(extent) {
            return Ok(());
        }
        match self.stages.get(&block) {
            Some(Stage::Hashing(known) | Stage::Expected(known)) if *known != cv => {
                Err(PeerError::ConflictingHash(block))
            }
            Some(_) => Ok(()),
            None => {
                self.stages.insert(block, Stage::Expected(cv));
                self.queue(block);
                Ok(())
            }
        }
    }

    /// The next block to hash; each is returned once.
    pub fn poll_verify(&mut self) -> Option<Block> {
        let index = self.ready.pop_front()?;
        let extent = self.layout.block_extent(index).expect("only blocks of the layout are queued");
        let Some(Stage::Hashing(expected)) = self.stages.get(&index).copied() else {
            unreachable!("a queued block is being hashed");
        };
        Some(Block { index, extent, expected })
    }

    /// The driver hashed a block from [`Receiver::poll_verify`]; `ok` says whether the hash
    /// matched.
    ///
    /// # Panics
    /// If [`Receiver::poll_verify`] did not return that block.
    pub fn handle_verified(&mut self, block: u64, ok: bool) -> Verdict {
        let Some(Stage::Hashing(cv)) = self.stages.remove(&block) else {
            panic!("block {block} was not given out to be hashed");
        };
        let extent = self.layout.block_extent(block).expect("only blocks of the layout are queued");
        if self.verified.contains(extent) {
            // Its object was left out meanwhile.
            return Verdict::Verified { finished: None };
        }
        if ok {
            self.verified.insert(extent);
            return Verdict::Verified { finished: self.merge(block, extent, cv) };
        }
        // The expected hash is forgotten too, since it may be the wrong one.
        self.claimed.remove(extent);
        self.written.remove(extent);
        self.refused += 1;
        Verdict::Refuse(extent)
    }

    /// Where the objects lie, as far as is known.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether every block of every object is verified.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.layout.is_growing() && self.has_all_known()
    }

    /// Whether every block that is known of is verified: of a stream, all that its sender has.
    #[must_use]
    pub fn has_all_known(&self) -> bool {
        self.verified.total() == self.layout.total()
    }

    /// Bytes written in this session and not refused.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.written.total() - self.had
    }

    /// All verified positions, those of earlier sessions included.
    #[must_use]
    pub fn verified(&self) -> &ExtentSet {
        &self.verified
    }

    /// The number of blocks refused for a wrong hash.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The BLAKE3 hash of an object, once all its blocks are verified and their chaining values
    /// known.
    #[must_use]
    pub fn root(&self, object: usize) -> Option<Cv> {
        self.roots.get(&object).copied()
    }

    /// Queues a block for verification if it is complete and its hash is known.
    fn queue(&mut self, block: u64) {
        let Some(stage) = self.stages.get_mut(&block) else { return };
        let Stage::Expected(cv) = *stage else { return };
        let extent =
            self.layout.block_extent(block).expect("hashes are kept for blocks of the layout");
        if self.written.contains(extent) {
            *stage = Stage::Hashing(cv);
            self.ready.push_back(block);
        }
    }

    /// Adds a chaining value to its object's hash.
    fn merge(&mut self, block: u64, extent: Extent, cv: Cv) -> Option<(usize, Cv)> {
        let object = self.layout.locate(extent.start).expect("a block lies in an object").object;
        let whole = self.layout.object_extent(object).expect("an object of the layout");
        let growing = self.layout.is_growing();
        let begin = || if growing { Merge::stream() } else { Merge::new(whole.len) };
        let merge = self.merges.entry(object).or_insert_with(begin);
        // A block occurs twice only if the driver replays a journal twice; the first occurrence
        // counts.
        merge.insert(block - whole.start / BLOCK, cv).ok()?;
        self.take_root(object)
    }

    /// The hash of an object whose last chaining value is known.
    fn take_root(&mut self, object: usize) -> Option<(usize, Cv)> {
        let root = self.merges.get(&object)?.root()?;
        self.merges.remove(&object);
        self.roots.insert(object, root);
        Some((object, root))
    }
}
