//! The limit of a queue.

use units::Bytes;

/// The backlog at which a queue drops arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A number of bytes.
    Bytes(Bytes),
    /// A number of packets.
    Packets(u64),
}
