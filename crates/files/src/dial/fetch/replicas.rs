//! Several servers of one file: the expected hash of each block, and the servers whose data do not
//! match it.
//!
//! A block in one piece is checked before it is written. A block in pieces of several servers that
//! turns out wrong does not show which server is to blame: such a block is contested and requested
//! again in one piece, and the right content then shows which pieces were wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use peer::dial::Terms;
use transfer::digest::block_cv;
use transfer::{BLOCK, Cv, Extent, Layout};
use wire::files::Data;

use crate::Error;

/// The expected hashes, and the blocks that are being received.
pub(super) struct Replicas {
    hashes: Vec<[u8; 32]>,
    /// Name of the file, for messages.
    name: String,
    terms: Terms,
    state: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    /// Pieces of unverified blocks, by block.
    pieces: BTreeMap<u64, Vec<Piece>>,
    /// Blocks whose pieces came wrong.
    contested: BTreeSet<u64>,
}

/// A received piece of a block.
struct Piece {
    server: usize,
    extent: Extent,
    hash: blake3::Hash,
}

/// The result of checking data.
pub(super) struct BlockCheck {
    /// The expected hash of their block.
    pub(super) expected: [u8; 32],
    /// The servers that sent wrong bytes, and the error for each.
    pub(super) mismatches: Vec<(usize, Error)>,
}

impl Replicas {
    pub(super) fn new(hashes: Vec<[u8; 32]>, name: String, terms: Terms) -> Replicas {
        Replicas { hashes, name, terms, state: Mutex::default() }
    }

    /// Checks requested data of a server before they are written.
    pub(super) fn check(&self, server: usize, data: &Data<'_>, layout: &Layout) -> BlockCheck {
        let block = data.position / BLOCK;
        let extent = Extent::new(data.position, data.payload.len() as u64);
        let hash = usize::try_from(block).ok().and_then(|block| self.hashes.get(block)).copied();
        let hash = hash.expect("only what lies in the layout is asked for");
        let mut mismatches = Vec::new();
        if data.block_hash.is_some_and(|said| said != hash) {
            mismatches.push((server, self.mismatch(server, block)));
            return BlockCheck { expected: hash, mismatches };
        }
        if layout.block_extent(block) == Some(extent) {
            if block_cv(layout.total().0, extent.start, data.payload) != Cv(hash) {
                mismatches.push((server, self.mismatch(server, block)));
                return BlockCheck { expected: hash, mismatches };
            }
            let mut state = self.state();
            if state.contested.remove(&block) {
                for piece in state.pieces.remove(&block).unwrap_or_default() {
                    let at = |position: u64| {
                        usize::try_from(position - extent.start).expect("within a block")
                    };
                    let right =
                        blake3::hash(&data.payload[at(piece.extent.start)..at(piece.extent.end())]);
                    if right != piece.hash
                        && mismatches.iter().all(|(known, _)| *known != piece.server)
                    {
                        mismatches.push((piece.server, self.mismatch(piece.server, block)));
                    }
                }
            }
        } else {
            let piece = Piece { server, extent, hash: blake3::hash(data.payload) };
            let mut state = self.state();
            let pieces = state.pieces.entry(block).or_default();
            // Twice the number of pieces that a block can be cut into.
            if pieces.len() < 128 {
                pieces.push(piece);
            }
        }
        BlockCheck { expected: hash, mismatches }
    }

    /// Marks the block of an extent as contested.
    pub(super) fn contest(&self, extent: Extent) {
        self.state().contested.insert(extent.start / BLOCK);
    }

    /// Whether any block is contested.
    pub(super) fn has_contested(&self) -> bool {
        !self.state().contested.is_empty()
    }

    /// Whether the block of an extent is contested.
    pub(super) fn is_contested(&self, extent: Extent) -> bool {
        self.state().contested.contains(&(extent.start / BLOCK))
    }

    /// Forgets the pieces of a verified block.
    pub(super) fn forget(&self, extent: Extent) {
        let mut state = self.state();
        state.pieces.remove(&(extent.start / BLOCK));
        state.contested.remove(&(extent.start / BLOCK));
    }

    fn mismatch(&self, server: usize, block: u64) -> Error {
        let what = format!("what {} sent of {}", self.terms.label(server), self.name);
        Error::Integrity { what, detail: format!("block {block}") }
    }

    fn state(&self) -> MutexGuard<'_, Blocks> {
        self.state.lock().expect("no panic while held")
    }
}
