//! Several servers of one file: what each block has to hash to, and who sent what else.
//!
//! A block that comes in one piece is judged before it is written. One that comes in pieces of
//! several servers and turns out wrong does not say whose fault that is: from then on it is asked
//! for in one piece, and what the right content is tells which pieces were wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use peer::dial::Terms;
use transfer::digest::block_cv;
use transfer::{BLOCK, Cv, Extent, Layout};
use wire::frame::Data;

use crate::Error;

/// What is known of the blocks.
pub(super) struct Replicas {
    hashes: Vec<[u8; 32]>,
    /// What the file is called.
    name: String,
    terms: Terms,
    state: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    /// Pieces of blocks that are not verified yet, by block.
    pieces: BTreeMap<u64, Vec<Piece>>,
    /// Blocks that came wrong.
    contested: BTreeSet<u64>,
}

/// A piece of a block as it came.
struct Piece {
    server: usize,
    extent: Extent,
    hash: blake3::Hash,
}

/// What was found about data.
pub(super) struct BlockCheck {
    /// What their block has to hash to.
    pub(super) expected: [u8; 32],
    /// Who has sent wrong bytes, and which.
    pub(super) mismatches: Vec<(usize, Error)>,
}

impl Replicas {
    pub(super) fn new(hashes: Vec<[u8; 32]>, name: String, terms: Terms) -> Replicas {
        Replicas { hashes, name, terms, state: Mutex::default() }
    }

    /// Looks at data that a server was asked for, before they are written.
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
            // As many as a block can be cut into, and as many again.
            if pieces.len() < 128 {
                pieces.push(piece);
            }
        }
        BlockCheck { expected: hash, mismatches }
    }

    /// The block of an extent came wrong.
    pub(super) fn contest(&self, extent: Extent) {
        self.state().contested.insert(extent.start / BLOCK);
    }

    /// Whether some block did.
    pub(super) fn has_contested(&self) -> bool {
        !self.state().contested.is_empty()
    }

    /// Whether this one did.
    pub(super) fn is_contested(&self, extent: Extent) -> bool {
        self.state().contested.contains(&(extent.start / BLOCK))
    }

    /// The block of an extent is right.
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
