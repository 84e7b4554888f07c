//! Which ranges of streams a path has carried copies of, so that it carries none twice.

use alloc::collections::BTreeMap;

use crate::ranges::Ranges;
use crate::stream::send::Piece;

/// What a path has carried copies of, by stream, as far as it is not delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeated(BTreeMap<u32, Ranges>);

impl Repeated {
    /// Whether the path has carried a copy of some of this piece.
    pub(crate) fn has_some_of(&self, stream: u32, piece: Piece) -> bool {
        let (from, to) = offsets(piece);
        self.0.get(&stream).is_some_and(|ranges| {
            ranges.around(from).is_some() || ranges.after(from).is_some_and(|begin| begin < to)
        })
    }

    /// A copy leaves of a stream that is delivered up to `delivered`.
    pub(crate) fn insert(&mut self, stream: u32, piece: Piece, delivered: u64) {
        let (from, to) = offsets(piece);
        let ranges = self.0.entry(stream).or_default();
        ranges.remove(0, delivered);
        ranges.insert(from, to);
    }

    /// The stream has ended.
    pub(crate) fn remove(&mut self, stream: u32) {
        self.0.remove(&stream);
    }
}

/// A piece's offsets, its stream's end as a byte behind the last.
fn offsets(piece: Piece) -> (u64, u64) {
    let end = piece.offset + u64::from(piece.len);
    (piece.offset, end + u64::from(piece.is_last))
}
