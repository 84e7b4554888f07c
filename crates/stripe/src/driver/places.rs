//! Places of connections at the side that listens: those of strangers, and those of peers that were
//! admitted, of which each kind is bounded for itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::connection::inbox::Key;
use crate::memory::PeerKey;

/// The connections by whose they are.
#[derive(Debug)]
pub(super) struct Places {
    most_strangers: usize,
    most_admitted: usize,
    most_each: usize,
    /// Oldest first, each with its block of addresses ([`secure::address_block`]).
    strangers: VecDeque<(Key, u64)>,
    /// Oldest first.
    admitted: BTreeMap<PeerKey, VecDeque<Key>>,
    peers: HashMap<Key, PeerKey>,
}

/// There is no place for a connection of a peer that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoPlace;

impl Places {
    /// Places for so many strangers, so many connections of peers that were admitted, and so many
    /// of each of them.
    pub(super) fn new(strangers: usize, admitted: usize, each: usize) -> Places {
        Places {
            most_strangers: strangers,
            most_admitted: admitted,
            most_each: each,
            strangers: VecDeque::new(),
            admitted: BTreeMap::new(),
            peers: HashMap::new(),
        }
    }

    /// A stranger from a block of addresses. Returns the connection that gives way: the oldest of
    /// the block that has the most, so that whoever opens many crowds out their own.
    pub(super) fn enter(&mut self, key: Key, block: u64) -> Option<Key> {
        let displaced =
            if self.strangers.len() >= self.most_strangers { self.crowd(block) } else { None };
        let displaced = displaced.and_then(|index| self.strangers.remove(index));
        self.strangers.push_back((key, block));
        displaced.map(|(key, _)| key)
    }

    /// The oldest stranger of the block that has the most, with one more from `block`.
    fn crowd(&self, block: u64) -> Option<usize> {
        let mut crowds = BTreeMap::from([(block, 1_usize)]);
        for (_, block) in &self.strangers {
            *crowds.entry(*block).or_default() += 1;
        }
        let crowd = |index: &usize| crowds[&self.strangers[*index].1];
        (0..self.strangers.len()).min_by_key(|index| Reverse(crowd(index)))
    }

    /// A stranger turns out to be welcome. Returns the connection that gives way: the newest of the
    /// peer that has the most.
    ///
    /// # Errors
    /// If the peer has as many as it may, or no peer has more than this one would.
    pub(super) fn admit(&mut self, key: Key, peer: &PeerKey) -> Result<Option<Key>, NoPlace> {
        self.strangers.retain(|(stranger, _)| *stranger != key);
        let of_peer = self.admitted.get(peer).map_or(0, VecDeque::len);
        if of_peer >= self.most_each {
            return Err(NoPlace);
        }
        let mut displaced = None;
        if self.peers.len() >= self.most_admitted {
            let most = self.admitted.values().max_by_key(|others| others.len()).ok_or(NoPlace)?;
            if most.len() <= of_peer + 1 {
                return Err(NoPlace);
            }
            displaced = most.back().copied();
        }
        if let Some(displaced) = displaced {
            self.leave(displaced);
        }
        self.peers.insert(key, PeerKey::clone(peer));
        self.admitted.entry(PeerKey::clone(peer)).or_default().push_back(key);
        Ok(displaced)
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, key: Key) {
        let Some(peer) = self.peers.remove(&key) else {
            self.strangers.retain(|(stranger, _)| *stranger != key);
            return;
        };
        if let Some(of_peer) = self.admitted.get_mut(&peer) {
            of_peer.retain(|other| *other != key);
            if of_peer.is_empty() {
                self.admitted.remove(&peer);
            }
        }
    }

    /// The connections of a peer that was admitted, the oldest first.
    pub(super) fn of_peer(&self, peer: &PeerKey) -> impl Iterator<Item = Key> {
        self.admitted.get(peer).into_iter().flatten().copied()
    }

    /// The most connections that have a place.
    pub(super) fn most(&self) -> usize {
        self.most_strangers + self.most_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(octet: u8) -> PeerKey {
        PeerKey::from([octet].as_slice())
    }

    #[test]
    fn strangers_of_one_address_displace_their_own() {
        let mut places = Places::new(4, 4, 4);
        assert_eq!(places.enter(Key(1), 7), None);
        for number in 2..5 {
            assert_eq!(places.enter(Key(number), 8), None);
        }
        // Four of the block 8 and one of the block 7: the oldest of the crowd gives way.
        assert_eq!(places.enter(Key(5), 8), Some(Key(2)));
        assert_eq!(places.enter(Key(6), 9), Some(Key(3)));
        assert_eq!(places.enter(Key(7), 8), Some(Key(4)));
        places.leave(Key(5));
        assert_eq!(places.enter(Key(8), 9), None, "there is a place again");
    }

    #[test]
    fn strangers_take_no_place_of_peers_and_peers_none_of_strangers() {
        let mut places = Places::new(2, 3, 2);
        for number in 0..100 {
            places.enter(Key(number), 1);
        }
        assert_eq!(places.strangers.len(), 2);
        for (number, octet) in [(100, 1), (101, 1), (102, 2)] {
            places.enter(Key(number), 1);
            assert_eq!(places.admit(Key(number), &peer(octet)), Ok(None));
        }
        places.enter(Key(103), 1);
        assert_eq!(places.admit(Key(103), &peer(1)), Err(NoPlace), "a peer has so many");
        // All are taken: the newest of the peer with the most gives way to another peer.
        places.enter(Key(104), 1);
        assert_eq!(places.admit(Key(104), &peer(3)), Ok(Some(Key(101))));
        places.enter(Key(105), 1);
        assert_eq!(places.admit(Key(105), &peer(1)), Err(NoPlace), "which does not come back");
        assert_eq!(places.of_peer(&peer(1)).collect::<Vec<_>>(), [Key(100)]);
        for number in 100..106 {
            places.leave(Key(number));
        }
        assert!(places.admitted.is_empty() && places.peers.is_empty());
    }
}
