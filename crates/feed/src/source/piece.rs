//! What inputs yield.

/// Octets that are read at a time.
pub(super) const CHUNK: usize = 64 << 10;

/// What is read.
pub(super) enum Piece {
    Octets(Vec<u8>),
    /// Records, as [`push_record`](wire::feed::push_record) has them.
    Records(Vec<u8>),
    /// What follows begins with the record of this number: others before it may be gone.
    At(u64),
}
