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

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is asked for, in whatever order: a copy leaves only if nothing of it has left.
        #[test]
        fn no_range_is_copied_twice(
            pieces in prop::collection::vec((0u32..3, 0u64..60, 0u16..12, any::<bool>()), 1..80),
            delivered in 0u64..20,
        ) {
            let mut repeated = Repeated::default();
            let mut carried = BTreeSet::new();
            for (stream, offset, len, is_last) in pieces {
                // An empty piece is a stream's end alone.
                let len = len.max(u16::from(!is_last));
                let piece = Piece { offset: offset + delivered, len, is_last };
                let (from, to) = offsets(piece);
                let has_some = (from..to).any(|at| carried.contains(&(stream, at)));
                prop_assert_eq!(repeated.has_some_of(stream, piece), has_some);
                if !has_some {
                    repeated.insert(stream, piece, delivered);
                    carried.extend((from..to).map(|at| (stream, at)));
                }
            }
            repeated.remove(0);
            let all = Piece { offset: 0, len: u16::MAX, is_last: true };
            prop_assert!(!repeated.has_some_of(0, all));
        }
    }
}
