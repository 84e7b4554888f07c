//! The bytes of one direction of a stream between two offsets, in pieces that are allocated as they
//! are written and freed as they are consumed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece.
const PIECE: usize = 16 << 10;
/// Bytes of the first piece at first: thousands of streams with a little data each stay cheap. It
/// doubles as it fills.
const LEAST: usize = 1 << 10;
/// Slots for pieces that are kept when a store is empty.
const KEPT_SLOTS: usize = 8;

/// Bytes by their offset in a stream.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The offset of the first piece.
    base: u64,
    /// The offset behind the last byte that was written.
    end: u64,
    /// Pieces of the same size in the order of offsets, each filled up to its length; empty:
    /// nothing was written there.
    pieces: VecDeque<Vec<u8>>,
    /// A piece that was freed, for the next one.
    spare: Vec<u8>,
    /// What the pieces take, the spare one included.
    held: usize,
    /// What all stores of a connection and a direction take together.
    total: Arc<AtomicU64>,
}

impl Store {
    /// An empty store, which counts what it takes in `total` too.
    pub(crate) fn counted(total: &Arc<AtomicU64>) -> Store {
        let mut store = Store::default();
        store.total = Arc::clone(total);
        store
    }

    /// What it takes: allocated bytes.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Writes bytes at an offset. What lies before what was freed is left out.
    pub(crate) fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        let freed = usize::try_from(self.base.saturating_sub(offset)).unwrap_or(usize::MAX);
        bytes = bytes.get(freed..).unwrap_or_default();
        offset = offset.max(self.base);
        let before = self.held;
        while !bytes.is_empty() {
            let (index, within) = self.place(offset);
            if self.pieces.len() <= index {
                self.pieces.resize_with(index + 1, Vec::new);
            }
            let len = bytes.len().min(PIECE - within);
            self.make_room(index, within + len);
            let piece = &mut self.pieces[index];
            if piece.len() < within {
                piece.resize(within, 0);
            }
            let known = (piece.len() - within).min(len);
            piece[within..within + known].copy_from_slice(&bytes[..known]);
            piece.extend_from_slice(&bytes[known..len]);
            bytes = &bytes[len..];
            offset += len as u64;
        }
        self.end = self.end.max(offset);
        self.count(before);
    }

    /// Makes a piece large enough for so many bytes. Only the first one grows: where there is one
    /// behind it, the stream is long enough for whole ones.
    fn make_room(&mut self, index: usize, bytes: usize) {
        let piece = &mut self.pieces[index];
        if piece.capacity() >= bytes {
            return;
        }
        if piece.is_empty() && self.spare.capacity() >= bytes {
            self.held -= piece.capacity();
            *piece = std::mem::take(&mut self.spare);
            return;
        }
        let wanted = if index == 0 { bytes.next_power_of_two().max(LEAST) } else { PIECE };
        let before = piece.capacity();
        piece.reserve_exact(wanted - piece.len());
        self.held += piece.capacity() - before;
    }

    /// The bytes that were written from `offset` on, at most `most` of them, up to the end of a
    /// piece. Empty where nothing was written.
    pub(crate) fn read(&self, offset: u64, most: usize) -> &[u8] {
        if offset < self.base {
            return &[];
        }
        let (index, within) = self.place(offset);
        let rest = self.pieces.get(index).and_then(|piece| piece.get(within..));
        rest.map_or(&[], |rest| &rest[..most.min(rest.len())])
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

    /// Frees everything before `offset`. With `is_over` nothing is written any more.
    pub(crate) fn free(&mut self, offset: u64, is_over: bool) {
        let before = self.held;
        if offset >= self.end || is_over {
            self.base = self.base.max(offset);
            self.end = self.end.max(offset);
            self.pieces.clear();
            self.pieces.shrink_to(if is_over { 0 } else { KEPT_SLOTS });
            self.spare = Vec::new();
            self.held = 0;
            self.count(before);
            return;
        }
        while offset >= self.base + PIECE as u64 {
            self.base += PIECE as u64;
            let freed = self.pieces.pop_front().unwrap_or_default();
            if freed.capacity() >= PIECE {
                self.held -= self.spare.capacity();
                self.spare = freed;
                self.spare.clear();
            } else {
                self.held -= freed.capacity();
            }
        }
        if self.pieces.len() < 2 {
            self.held -= self.spare.capacity();
            self.spare = Vec::new();
            self.shrink(offset);
        }
        self.count(before);
    }

    /// A little that is left of a single piece does not hold a whole one.
    fn shrink(&mut self, offset: u64) {
        let within = usize::try_from(offset.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let Some(piece) = self.pieces.front_mut() else { return };
        let Some(rest) = piece.get(within..) else { return };
        if rest.len().max(LEAST) * 4 > piece.capacity() {
            return;
        }
        self.held -= piece.capacity();
        let mut small = Vec::with_capacity(rest.len().next_power_of_two().max(LEAST));
        small.extend_from_slice(rest);
        self.base = offset;
        self.held += small.capacity();
        *piece = small;
    }

    fn count(&self, before: usize) {
        if self.held > before {
            self.total.fetch_add((self.held - before) as u64, Ordering::Relaxed);
        } else if self.held < before {
            self.total.fetch_sub((before - self.held) as u64, Ordering::Relaxed);
        }
    }

    /// The piece of an offset, and the place in it.
    fn place(&self, offset: u64) -> (usize, usize) {
        let at = usize::try_from(offset - self.base).expect("flow control bounds it");
        (at / PIECE, at % PIECE)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.held);
        self.count(before);
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
        assert_eq!(store.held(), LEAST, "a byte does not hold a whole piece");
        store.free(40_000, false);
        assert_eq!((store.held(), store.pieces.len()), (0, 0));
        store.write(40_000, &[8; 3]);
        assert_eq!(store.read(40_000, 3), [8; 3]);
    }

    #[test]
    fn a_freed_piece_is_used_again() {
        let mut store = Store::default();
        store.write(0, &vec![7; 2 * PIECE + 1]);
        let first = store.read(0, 1).as_ptr();
        store.free(PIECE as u64, false);
        store.write(3 * PIECE as u64, &[8]);
        assert_eq!(store.read(3 * PIECE as u64, 1).as_ptr(), first);
        assert_eq!(store.read(3 * PIECE as u64, 1), [8]);
    }

    /// What is allocated follows the data: at most twice of it, and a first piece.
    #[test]
    fn a_little_data_takes_a_little_memory() {
        let mut store = Store::default();
        let mut at = 0;
        for len in [1, 100, 1_000, 5_000, 20_000, 100, 1] {
            store.write(at, &vec![7; len]);
            assert!(store.held() <= (2 * len).max(LEAST).next_multiple_of(LEAST), "{len} bytes");
            at += len as u64;
            store.free(at, false);
            assert_eq!(store.held(), 0, "all was read");
        }
    }

    #[test]
    fn streams_count_together_what_they_take() {
        let total = Arc::default();
        let mut stores = [(); 2].map(|()| Store::counted(&total));
        for store in &mut stores {
            store.write(0, &vec![7; 40_000]);
            store.free(17_000, false);
        }
        let held: usize = stores.iter().map(Store::held).sum();
        assert_eq!(total.load(Ordering::Relaxed), held as u64);
        drop(stores);
        assert_eq!(total.load(Ordering::Relaxed), 0);
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
            let allocated: usize = store.pieces.iter().map(Vec::capacity).sum();
            prop_assert_eq!(store.held(), allocated + store.spare.capacity());
        }
    }
}
