//! Violations of the protocol by a peer.

use crate::Extent;

/// The peer broke the protocol. The driver closes its connections and gives this as the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// An extent of no bytes.
    #[error("an empty extent at {0}")]
    Empty(u64),
    /// An extent that lies outside every object, or crosses an object's end.
    #[error("{0} does not lie within one object")]
    Outside(Extent),
    /// A data extent that crosses a block boundary.
    #[error("{0} crosses a block boundary")]
    CrossesBlock(Extent),
    /// A data extent whose start or end is neither a multiple of 4 KiB nor an object's end.
    #[error("{0} is not aligned to 4 KiB")]
    Misaligned(Extent),
    /// A block outside every object.
    #[error("there is no block {0}")]
    UnknownBlock(u64),
    /// Two different hashes for one block.
    #[error("a second, different hash for block {0}")]
    ConflictingHash(u64),
    /// A stream that grew to a size that it cannot have: more than a layout holds, not whole blocks
    /// before its end, or other bytes after its end.
    #[error("a stream cannot grow to {0} bytes")]
    Grown(u64),
    /// An acknowledgement or a refusal of bytes that were never sent.
    #[error("{0} was never sent")]
    NeverSent(Extent),
}
