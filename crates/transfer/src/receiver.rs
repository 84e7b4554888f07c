//! The receiving side: what is claimed, written and verified.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use units::Bytes;

use crate::digest::Merge;
use crate::layout::BLOCK;
use crate::{Cv, Extent, ExtentSet, Layout, PeerError};

/// What of an arrived extent is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// The pieces to write, in order; usually the whole extent. They are claimed: nobody else is
    /// told to write them.
    pub pieces: Vec<Extent>,
    /// How many bytes of the extent were there, or on their way to the disk, before.
    pub duplicate: Bytes,
}

/// A block whose bytes are all written and whose hash is known: to be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its index in the layout, for [`Receiver::handle_verified`].
    pub index: u64,
    /// Its positions.
    pub extent: Extent,
    /// What it must hash to.
    pub expected: Cv,
}

/// What follows from a block's verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is good: to be journalled. `finished` names the object and its hash if this was its last
    /// block.
    Verified {
        /// Object and root hash.
        finished: Option<(usize, Cv)>,
    },
    /// It is bad and wanted again. Tell the sender on *every* live path, on each behind the
    /// acknowledgements sent there before: an older acknowledgement of the same bytes must not be
    /// read after the refusal.
    Refuse(Extent),
}

/// How far a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Being hashed.
    Hashing(Cv),
    /// Its hash is known.
    Expected(Cv),
}

/// The receiving side of a transfer.
///
/// Every byte is claimed by exactly one arriving extent, and again only after its block was
/// refused.
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
    had: Bytes,
    refused: u64,
}

impl Receiver {
    /// A receiver for this layout that has some verified blocks from an earlier session. What of
    /// `have` is not a whole block counts as missing. The chaining values of those blocks, if an
    /// object's hash is wanted, are to be given to [`Receiver::handle_journalled`].
    #[must_use]
    pub fn new(layout: &Layout, have: &ExtentSet) -> Receiver {
        let have = layout.whole_blocks(have);
        let roots = (0..layout.objects())
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
            refused: 0,
        }
    }

    /// The chaining value of a block that was verified in an earlier session, out of the journal.
    /// Returns the object and its hash if that was its last one.
    ///
    /// # Errors
    /// If the block is not one of those `have` named.
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

    /// Data arrived: which of it is new? The driver writes the pieces and calls
    /// [`Receiver::handle_written`] for each.
    ///
    /// # Errors
    /// If the extent is not one a sender may send.
    pub fn handle_data(&mut self, extent: Extent) -> Result<Fresh, PeerError> {
        self.layout.check_data(extent)?;
        let pieces = self.claimed.insert(extent);
        let fresh: u64 = pieces.iter().map(|piece| piece.len).sum();
        Ok(Fresh { pieces, duplicate: Bytes(extent.len - fresh) })
    }

    /// Pieces that were claimed will not be written after all (their connection died in the
    /// middle): they may come again.
    pub fn handle_abandoned(&mut self, extent: Extent) {
        for piece in self.written.gaps(extent).collect::<Vec<_>>() {
            self.claimed.remove(piece);
        }
    }

    /// A claimed piece is written. Only now may it be acknowledged.
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

    /// The sender's chaining value of a block. A repetition is fine, also after the block was
    /// verified.
    ///
    /// # Errors
    /// If there is no such block, or another hash is known for it.
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

    /// The next block to hash, each of them once.
    pub fn poll_verify(&mut self) -> Option<Block> {
        let index = self.ready.pop_front()?;
        let extent = self.layout.block_extent(index).expect("only blocks of the layout are queued");
        let Some(Stage::Hashing(expected)) = self.stages.get(&index).copied() else {
            unreachable!("a queued block is being hashed");
        };
        Some(Block { index, extent, expected })
    }

    /// The driver hashed a block it was given by [`Receiver::poll_verify`].
    ///
    /// # Panics
    /// If it was not given that block.
    pub fn handle_verified(&mut self, block: u64, ok: bool) -> Verdict {
        let Some(Stage::Hashing(cv)) = self.stages.remove(&block) else {
            panic!("block {block} was not given out to be hashed");
        };
        let extent = self.layout.block_extent(block).expect("only blocks of the layout are queued");
        if ok {
            self.verified.insert(extent);
            return Verdict::Verified { finished: self.merge(block, extent, cv) };
        }
        // The hash goes too: it may be the part that was wrong.
        self.claimed.remove(extent);
        self.written.remove(extent);
        self.refused += 1;
        Verdict::Refuse(extent)
    }

    /// Whether every block of every object is verified.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.verified.total() == self.layout.total()
    }

    /// Bytes that were written in this session and not refused.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.written.total() - self.had
    }

    /// All that is verified, earlier sessions included.
    #[must_use]
    pub fn verified(&self) -> &ExtentSet {
        &self.verified
    }

    /// How many blocks had a wrong hash.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The BLAKE3 hash of an object, once every block of it is verified and known by its chaining
    /// value.
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
        let merge = self.merges.entry(object).or_insert_with(|| Merge::new(whole.len));
        // A block comes twice only if the driver replays a journal twice: the first one counts.
        merge.insert(block - whole.start / BLOCK, cv).ok()?;
        let root = merge.root()?;
        self.merges.remove(&object);
        self.roots.insert(object, root);
        Some((object, root))
    }
}
