//! The bytes of one direction of a stream between two offsets, in pieces that are allocated as they
//! are written and freed as they are consumed.

use std::collections::VecDeque;

/// Bytes of a piece: small enough that thousands of streams with a little data each stay cheap.
const PIECE: usize = 16 << 10;

/// Bytes by their offset in a stream.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The offset of the first piece, a multiple of its size.
    base: u64,
    /// Pieces in the order of offsets; `None`: nothing was written there.
    pieces: VecDeque<Option<Box<[u8]>>>,
    /// A piece that was freed, for the next one: a fresh one has to be cleared.
    spare: Option<Box<[u8]>>,
}

impl Store {
    /// Writes bytes at an offset. What lies before what was freed is left out.
    pub(crate) fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        let freed = usize::try_from(self.base.saturating_sub(offset)).unwrap_or(usize::MAX);
        bytes = bytes.get(freed..).unwrap_or_default();
        offset = offset.max(self.base);
        while !bytes.is_empty() {
            let (index, within) = self.place(offset);
            if self.pieces.len() <= index {
                self.pieces.resize_with(index + 1, || None);
            }
            let spare = &mut self.spare;
            let fresh = || spare.take().unwrap_or_else(|| vec![0; PIECE].into_boxed_slice());
            let piece = self.pieces[index].get_or_insert_with(fresh);
            let len = bytes.len().min(PIECE - within);
            piece[within..within + len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            offset += len as u64;
        }
    }

    /// The bytes that were written from `offset` on, at most `most` of them, up to the end of a
    /// piece. Empty where nothing was written.
    pub(crate) fn read(&self, offset: u64, most: usize) -> &[u8] {
        if offset < self.base {
            return &[];
        }
        let (index, within) = self.place(offset);
        let Some(Some(piece)) = self.pieces.get(index) else { return &[] };
        &piece[within..within + most.min(PIECE - within)]
    }

    /// Appends the bytes from `offset` on. Whether all of them were there.
    pub(crate) fn copy(&self, mut offset: u64, mut len: usize, into: &mut Vec<u8>) -> bool {
        while len > 0 {
            let bytes = self.read(offset, len);
            if bytes.is_empty() {
                return false;
            }
            into.extend_from_slice(bytes);
            len -= bytes.len();
            offset += bytes.len() as u64;
        }
        true
    }

    /// Frees everything before `offset`. `is_empty`: there is nothing at it or behind it.
    pub(crate) fn free(&mut self, offset: u64, is_empty: bool) {
        while offset >= self.base + PIECE as u64 {
            self.base += PIECE as u64;
            if let Some(Some(piece)) = self.pieces.pop_front() {
                self.spare = Some(piece);
            }
            if self.pieces.is_empty() {
                self.base = offset - offset % PIECE as u64;
            }
        }
        if is_empty {
            self.pieces.clear();
            self.pieces.shrink_to(0);
            self.spare = None;
        }
    }

    /// The piece of an offset, and the place in it.
    fn place(&self, offset: u64) -> (usize, usize) {
        let at = usize::try_from(offset - self.base).expect("flow control bounds it");
        (at / PIECE, at % PIECE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn byte(offset: u64) -> u8 {
        (offset.wrapping_mul(151) >> 3).to_le_bytes()[0]
    }

    #[test]
    fn an_empty_stream_holds_no_memory() {
        let mut store = Store::default();
        store.write(0, &vec![7; 40_000]);
        store.free(39_999, false);
        assert_eq!(store.pieces.iter().flatten().count(), 1);
        store.free(40_000, true);
        assert!(store.pieces.is_empty() && store.spare.is_none());
        store.write(40_000, &[8; 3]);
        assert_eq!(store.read(40_000, 3), [8; 3]);
    }

    #[test]
    fn a_freed_piece_is_used_again() {
        let mut store = Store::default();
        store.write(0, &vec![7; PIECE + 1]);
        let first = store.read(0, 1).as_ptr();
        store.free(PIECE as u64, false);
        store.write(2 * PIECE as u64, &[8]);
        assert_eq!(store.read(2 * PIECE as u64, 1).as_ptr(), first);
        assert_eq!(store.read(2 * PIECE as u64, 1), [8]);
    }

    proptest! {
        /// Pieces in any order, some twice, read back what was written, beside a plain vector.
        #[test]
        fn bytes_are_where_they_were_written(
            pieces in proptest::collection::vec((0u64..100_000, 1usize..2_000), 1..200),
            frees in proptest::collection::vec(0u64..100_000, 0..5),
        ) {
            let mut store = Store::default();
            let mut model = vec![false; 102_000];
            let mut freed = 0;
            for (at, (offset, len)) in pieces.iter().copied().enumerate() {
                if let Some(to) = frees.get(at) {
                    freed = freed.max(*to);
                    store.free(freed, false);
                }
                let bytes: Vec<u8> = (offset..offset + len as u64).map(byte).collect();
                store.write(offset, &bytes);
                for known in &mut model[usize::try_from(offset).expect("small")..][..len] {
                    *known = true;
                }
            }
            for offset in freed..100_000 {
                if model[usize::try_from(offset).expect("small")] {
                    prop_assert_eq!(store.read(offset, 1), &[byte(offset)]);
                }
            }
        }
    }
}
