//! TLS messages put together from pieces in any order.

use std::ops::Range;

use crate::HandshakeError;

/// The longest stream of TLS messages at one level. A hello with a post-quantum key share has some
/// 1,600 octets, a flight with raw public keys fewer.
pub(crate) const MOST_BYTES: usize = 8_192;
/// Gaps between pieces. Pieces that would make more are dropped, and come again.
const MOST_GAPS: usize = 16;

/// The messages of one level and direction.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    bytes: Vec<u8>,
    /// What has arrived behind `delivered`, in order, without overlaps.
    islands: Vec<Range<usize>>,
    delivered: usize,
    /// What the reader has taken.
    read: usize,
}

impl Assembly {
    /// How much has arrived without a gap.
    pub(crate) fn delivered(&self) -> usize {
        self.delivered
    }

    /// Takes in a piece.
    ///
    /// # Errors
    /// [`HandshakeError::TooLong`] if it ends behind [`MOST_BYTES`].
    pub(crate) fn insert(&mut self, offset: usize, piece: &[u8]) -> Result<(), HandshakeError> {
        let end = offset + piece.len();
        if end > MOST_BYTES {
            return Err(HandshakeError::TooLong);
        }
        if end <= self.delivered {
            return Ok(());
        }
        let mut joined = offset.max(self.delivered)..end;
        let skipped = joined.start - offset;
        let mut islands = Vec::with_capacity(self.islands.len() + 1);
        for island in &self.islands {
            if island.end < joined.start || joined.end < island.start {
                islands.push(island.clone());
            } else {
                joined = joined.start.min(island.start)..joined.end.max(island.end);
            }
        }
        if joined.start > self.delivered && islands.len() >= MOST_GAPS {
            return Ok(());
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset + skipped..end].copy_from_slice(&piece[skipped..]);
        if joined.start == self.delivered {
            self.delivered = joined.end;
        } else {
            let at = islands.partition_point(|island| island.start < joined.start);
            islands.insert(at, joined);
        }
        self.islands = islands;
        Ok(())
    }

    /// What arrived without a gap since the last call.
    pub(crate) fn read(&mut self) -> &[u8] {
        let new = self.read..self.delivered;
        self.read = self.delivered;
        &self.bytes[new]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_for_pieces_is_bounded() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.insert(MOST_BYTES - 1, b"ab"), Err(HandshakeError::TooLong));
        for gap in 0..1_000 {
            assembly.insert(1 + 2 * gap, b"x").unwrap();
        }
        assert_eq!(assembly.islands.len(), MOST_GAPS);
        assert!(assembly.bytes.len() <= MOST_BYTES);
        // What fills the first gap is taken nevertheless.
        assembly.insert(0, b"x").unwrap();
        assert_eq!(assembly.delivered(), 2);
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_make_the_whole(
            whole in proptest::collection::vec(any::<u8>(), 1..300),
            pieces in proptest::collection::vec((0_usize..300, 1_usize..60), 0..60),
        ) {
            let mut assembly = Assembly::default();
            let mut model = vec![false; whole.len()];
            let mut read = Vec::new();
            for (start, len) in pieces {
                let range = start.min(whole.len())..(start + len).min(whole.len());
                let islands = assembly.islands.len();
                assembly.insert(range.start, &whole[range.clone()]).unwrap();
                if islands < MOST_GAPS {
                    model[range].fill(true);
                }
                let delivered = model.iter().position(|has| !has).unwrap_or(whole.len());
                if islands < MOST_GAPS {
                    prop_assert_eq!(assembly.delivered(), delivered);
                }
                read.extend_from_slice(assembly.read());
                prop_assert_eq!(&whole[..read.len()], &read[..]);
            }
            assembly.insert(0, &whole).unwrap();
            read.extend_from_slice(assembly.read());
            prop_assert_eq!(read, whole);
        }
    }
}
