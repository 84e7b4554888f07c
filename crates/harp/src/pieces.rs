//! What is under way of a connection, piece by piece, within the memory of all connections.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::RangeMut;
use alloc::sync::Arc;
use core::ops::{Deref, RangeBounds};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Pieces of a connection that are remembered. Windows of hosts have fewer packets; a host that
/// ignores them loses credit. What divides pieces, segments that overlap others and losses that the
/// other gateway reports, makes no more of them either: a connection takes 16 MiB for them at most.
pub(crate) const MOST_PIECES: usize = 1 << 16;
/// Pieces of all connections with another gateway: 128 MiB at most.
pub(crate) const MOST_IN_ALL: usize = 1 << 19;

/// The pieces that all connections of a gateway have.
#[derive(Clone, Debug, Default)]
pub(crate) struct PieceCount(Arc<AtomicUsize>);

/// The pieces of one connection by their first positions; they count until this is dropped.
#[derive(Debug)]
pub(crate) struct Pieces<T> {
    map: BTreeMap<u64, T>,
    all: PieceCount,
}

impl<T> Pieces<T> {
    /// None yet; they count among `all`.
    pub(crate) fn new(all: PieceCount) -> Pieces<T> {
        Pieces { map: BTreeMap::new(), all }
    }

    /// Whether there may be so many more.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.map.len() + more <= MOST_PIECES
            && self.all.0.load(Ordering::Relaxed) + more <= MOST_IN_ALL
    }

    pub(crate) fn insert(&mut self, start: u64, piece: T) {
        if self.map.insert(start, piece).is_none() {
            self.all.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&mut self, start: u64) {
        if self.map.remove(&start).is_some() {
            self.all.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn range_mut(&mut self, range: impl RangeBounds<u64>) -> RangeMut<'_, u64, T> {
        self.map.range_mut(range)
    }
}

impl<T> Deref for Pieces<T> {
    type Target = BTreeMap<u64, T>;

    fn deref(&self) -> &BTreeMap<u64, T> {
        &self.map
    }
}

impl<T: Clone> Clone for Pieces<T> {
    fn clone(&self) -> Pieces<T> {
        self.all.0.fetch_add(self.map.len(), Ordering::Relaxed);
        Pieces { map: self.map.clone(), all: self.all.clone() }
    }
}

impl<T> Drop for Pieces<T> {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.map.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_their_room() {
        let all = PieceCount::default();
        let mut connections = alloc::vec::Vec::new();
        for _ in 0..MOST_IN_ALL / MOST_PIECES {
            let mut pieces = Pieces::new(all.clone());
            (0..MOST_PIECES as u64).for_each(|start| pieces.insert(start, ()));
            assert!(!pieces.has_room(1));
            connections.push(pieces);
        }
        let mut last = Pieces::new(all.clone());
        assert!(!last.has_room(1), "nothing is left");
        connections[0].remove(7);
        assert!(last.has_room(1) && !last.has_room(2));
        last.insert(7, ());
        last.insert(7, ());
        drop(connections.pop());
        assert!(last.has_room(MOST_PIECES - 1) && !last.clone().has_room(MOST_PIECES));
        connections.clear();
        drop(last);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
