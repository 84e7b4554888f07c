//! How many connections a host that listens keeps, and what they may take.

use crate::Memory;

/// The connections that a host keeps at a time, each kind for itself, so that none of them keeps
/// another out. Whether a peer is welcome is the program's decision
/// ([`Connection::admit`](crate::Connection::admit)); until then it is a stranger.
#[derive(Clone, Debug)]
pub struct Rations {
    /// Connections of strangers. A further one takes the place of the oldest of the block of
    /// addresses ([`address_block`](crate::address_block)) that has the most.
    pub strangers: usize,
    /// Connections of peers that were admitted. A further one takes the place of the newest of the
    /// peer that has the most, if that has more than this one.
    pub admitted: usize,
    /// Those of one peer; further ones are closed.
    pub each: usize,
    /// The memory of all of them.
    pub memory: Memory,
}

impl Default for Rations {
    /// 64 strangers, and 1,024 connections of peers, of which one has 32: what each has in any case
    /// is 720 KiB with a path and 128 streams, and so they fit into the default memory.
    fn default() -> Rations {
        Rations { strangers: 64, admitted: 1_024, each: 32, memory: Memory::default() }
    }
}
