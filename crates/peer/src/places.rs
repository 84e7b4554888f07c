//! A bounded number of places for work on behalf of peers: so many of one peer, and so many in all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::Fingerprint;

/// All places.
pub struct Places {
    most: usize,
    each: usize,
    taken: Mutex<BTreeMap<Fingerprint, usize>>,
    /// Rings when a place is given back.
    freed: Notify,
}

impl Places {
    /// `most` places in all, and `each` for one peer.
    #[must_use]
    pub fn new(most: usize, each: usize) -> Arc<Places> {
        Arc::new(Places { most, each, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Waits for a place for `peer`.
    pub async fn take(self: &Arc<Self>, peer: Fingerprint) -> WorkPlace {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(place) = self.try_take(peer) {
                return place;
            }
            freed.await;
        }
    }

    /// The number of places in all.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// The number of places that are taken.
    #[must_use]
    pub fn count(&self) -> usize {
        self.taken().values().sum()
    }

    /// A place for `peer`, if there is one.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, peer: Fingerprint) -> Option<WorkPlace> {
        let mut taken = self.taken();
        let of_peer = taken.get(&peer).copied().unwrap_or(0);
        if of_peer >= self.each || taken.values().sum::<usize>() >= self.most {
            return None;
        }
        taken.insert(peer, of_peer + 1);
        Some(WorkPlace { places: Arc::clone(self), peer })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, usize>> {
        self.taken.lock().expect("no panic while held")
    }
}

/// A place; dropping it gives it back.
pub struct WorkPlace {
    places: Arc<Places>,
    peer: Fingerprint,
}

impl Drop for WorkPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(of_peer) = taken.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                taken.remove(&self.peer);
            }
        }
        drop(taken);
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_has_its_places_and_all_have_theirs() {
        let [a, b, c] = [1, 2, 3].map(|octet| Fingerprint::from([octet; 32]));
        let places = Places::new(3, 2);
        let (first, _second) = (places.take(a).await, places.take(a).await);
        assert!(places.try_take(a).is_none(), "a peer has two");
        let _third = places.take(b).await;
        assert!(places.try_take(c).is_none(), "and all have three");
        let (waited, ()) = tokio::join!(places.take(c), async { drop(first) });
        drop(waited);
        assert_eq!(places.taken().len(), 2, "nobody is remembered who has none");
    }
}
