//! The memory of a collector for records that wait, which hosts share.

use peer::metrics::{Registry, Unit, register_budget};
use stripe::{Memory, Share};
use units::Bytes;

use crate::bounds::{EARLY_IN_ALL, OWN, WAITING_IN_ALL};

/// The memory for records that wait. Those that came before their turn have one of their own: they
/// wait for others, which therefore never wait for them.
pub(crate) struct Room {
    in_turn: Memory,
    early: Memory,
}

impl Default for Room {
    fn default() -> Room {
        Room::of(WAITING_IN_ALL, EARLY_IN_ALL)
    }
}

impl Room {
    /// So much for what came in its turn, and so much for what came before.
    pub(crate) fn of(in_turn: Bytes, early: Bytes) -> Room {
        let [in_turn, early] = [in_turn, early].map(|most| Memory::new(most, most));
        Room { in_turn, early }
    }

    /// An empty share of a host for what comes in its turn.
    pub(crate) fn in_turn(&self, host: &str) -> Share {
        self.in_turn.share_of(host.as_bytes())
    }

    /// An empty share of a host for what comes before its turn.
    pub(crate) fn early(&self, host: &str) -> Share {
        self.early.share_of(host.as_bytes())
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let what = "Octets that wait for the disk, beyond the room of each stream";
        let early = "Octets of records that came before their turn";
        for (name, what, memory) in
            [("waiting_memory", what, &self.in_turn), ("early_memory", early, &self.early)]
        {
            let (most, memory) = (memory.most().0, memory.clone());
            let taken = move || memory.taken().0;
            register_budget(registry, name, what, Some(Unit::Bytes), most, taken);
        }
    }

    /// What is taken of either.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> (Bytes, Bytes) {
        (self.in_turn.taken(), self.early.taken())
    }
}

/// What is beyond the room that each stream, and each connection, has in any case.
pub(crate) fn beyond_own(octets: usize) -> usize {
    octets.saturating_sub(usize::try_from(OWN.0).unwrap_or(usize::MAX))
}

/// Has a share be `bytes`, if there is as much.
pub(crate) fn try_set(share: &mut Share, bytes: usize) -> bool {
    let more = (bytes as u64).saturating_sub(share.bytes());
    more == 0 || share.grow(more, more) > 0
}

/// Has a share be `bytes`. The lock of all shares is for changes alone.
pub(crate) fn set(share: &mut Share, bytes: usize) {
    if share.bytes() != bytes as u64 {
        share.set(bytes as u64);
    }
}
