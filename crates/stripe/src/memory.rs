//! Memory that peers may make this host hold: of one peer, and of all together. Striped connections
//! of a listening host have one, and a service may have others for what it holds.
//!
//! What a connection may make this host hold is taken here before it is promised to the peer: a
//! window, a number of streams. Each connection has a little in any case, and the number of
//! connections bounds that. Beyond it a peer is given at most as much as is left when it has it
//! (dynamic thresholds, Choudhury and Hahne 1998): one alone has half of the memory, and there is
//! always some for one that comes later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use units::Bytes;

/// Memory that peers share, as the striped connections of one host do. Clones are the same.
///
/// ```
/// use stripe::{Listening, Memory, Rations};
/// use units::Bytes;
///
/// // Two endpoints of one process have a gibibyte together, and each peer at most a half.
/// let memory = Memory::new(Bytes::mib(1_024), Bytes::mib(512));
/// let rations = Rations { memory, ..Rations::default() };
/// let _ends = [7_707, 7_708].map(|port| Listening {
///     rations: rations.clone(),
///     ..Listening::everywhere(port)
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<Bounds>);

#[derive(Debug)]
struct Bounds {
    most: u64,
    each: u64,
    taken: Mutex<Taken>,
}

/// The key of a peer that was admitted.
pub(crate) type PeerKey = Arc<[u8]>;

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    /// Of peers that were admitted.
    by_peer: BTreeMap<PeerKey, u64>,
}

impl Memory {
    /// `most` for all connections together, and `each` for those of one peer.
    #[must_use]
    pub fn new(most: Bytes, each: Bytes) -> Memory {
        Memory(Arc::new(Bounds { most: most.0, each: each.0, taken: Mutex::default() }))
    }

    /// An empty share of a peer, by its key or its name.
    #[must_use]
    pub fn share_of(&self, peer: &[u8]) -> Share {
        Share { memory: self.clone(), peer: Some(Arc::from(peer)), bytes: 0 }
    }

    /// The share of a connection of a stranger.
    pub(crate) fn share(&self) -> Share {
        Share { memory: self.clone(), peer: None, bytes: 0 }
    }

    /// What is taken in all.
    #[must_use]
    pub fn taken(&self) -> Bytes {
        Bytes(self.state().all)
    }

    /// What there is in all.
    #[must_use]
    pub fn most(&self) -> Bytes {
        Bytes(self.0.most)
    }

    /// The peer that has the most, if more is taken than there is.
    pub(crate) fn to_give_way(&self) -> Option<PeerKey> {
        let taken = self.state();
        if taken.all <= self.0.most {
            return None;
        }
        taken.by_peer.iter().max_by_key(|(_, bytes)| **bytes).map(|(peer, _)| Arc::clone(peer))
    }

    fn state(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().expect("no panic while held")
    }
}

impl Default for Memory {
    /// A gibibyte, and half of it for each peer.
    fn default() -> Memory {
        Memory::new(Bytes::mib(1_024), Bytes::mib(512))
    }
}

/// What is taken of a [`Memory`] for one purpose; dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    memory: Memory,
    peer: Option<PeerKey>,
    bytes: u64,
}

impl Share {
    /// What is taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes what is held already, or promised in any case, and gives back the rest.
    pub fn set(&mut self, bytes: u64) {
        let memory = self.memory.clone();
        let mut taken = memory.state();
        taken.all = taken.all - self.bytes + bytes;
        if let Some(peer) = &self.peer {
            let of_peer = taken.by_peer.entry(Arc::clone(peer)).or_default();
            *of_peer = *of_peer - self.bytes + bytes;
            if *of_peer == 0 {
                taken.by_peer.remove(peer);
            }
        }
        self.bytes = bytes;
    }

    /// Takes up to `wanted` more, and returns how much it was: nothing if less than `least` is
    /// there. A peer has at most as much as is left then.
    pub fn grow(&mut self, wanted: u64, least: u64) -> u64 {
        let there = {
            let Bounds { most, each, .. } = *self.memory.0;
            let taken = self.memory.state();
            let left = most.saturating_sub(taken.all);
            let of_peer = self.peer.as_ref().and_then(|peer| taken.by_peer.get(peer));
            let of_peer = of_peer.copied().unwrap_or(self.bytes);
            // So that it has no more than what is left then.
            let fair = left.saturating_sub(of_peer) / 2;
            wanted.min(fair).min(each.saturating_sub(of_peer))
        };
        if there < least || there == 0 {
            return 0;
        }
        self.set(self.bytes + there);
        there
    }

    /// The connection is one of a peer that was admitted.
    pub(crate) fn admit(&mut self, peer: PeerKey) {
        let bytes = self.bytes;
        self.set(0);
        self.peer = Some(peer);
        self.set(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1 << 30;

    fn memory() -> Memory {
        Memory::new(Bytes(MOST), Bytes(MOST / 2))
    }

    fn share(memory: &Memory, peer: u8) -> Share {
        let mut share = memory.share();
        share.admit(Arc::from([peer].as_slice()));
        share
    }

    #[test]
    fn a_peer_leaves_as_much_as_it_has() {
        let memory = memory();
        // A peer with many connections, each of which takes what it can get.
        let greedy: Vec<Share> = (0..100)
            .map(|_| {
                let mut share = share(&memory, 1);
                share.grow(128 << 20, 1);
                share
            })
            .collect();
        let of_greedy: u64 = greedy.iter().map(Share::bytes).sum();
        assert_eq!(of_greedy, MOST / 2, "half of it, and no more");
        let mut honest = share(&memory, 2);
        assert_eq!(honest.grow(128 << 20, 1), 128 << 20, "another has what it needs");
        let others: Vec<Share> = (3..20)
            .map(|peer| {
                let mut share = share(&memory, peer);
                assert!(share.grow(4 << 10, 1) > 0, "and there is some for each that comes later");
                share.grow(MOST, 1);
                share
            })
            .collect();
        assert!(memory.taken().0 <= MOST);
        drop((greedy, honest, others));
        assert_eq!(memory.taken(), Bytes::ZERO);
        assert!(memory.state().by_peer.is_empty(), "nobody is remembered who has nothing");
    }

    #[test]
    fn what_is_held_counts_and_the_peer_with_the_most_gives_way() {
        let memory = memory();
        let mut shares = [1, 2, 2].map(|peer| share(&memory, peer));
        for share in &mut shares {
            share.set(MOST / 3);
        }
        assert_eq!(memory.to_give_way(), None);
        assert_eq!(shares[0].grow(1, 1), 0, "there is nothing left to promise");
        let mut stranger = memory.share();
        stranger.set(2);
        let second: PeerKey = Arc::from([2].as_slice());
        assert_eq!(memory.to_give_way(), Some(second));
        shares[1].set(0);
        assert_eq!(memory.to_give_way(), None);
    }
}
