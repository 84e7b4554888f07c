//! Bounds of the memory for lists of files: of one peer, and of all peers together.
//!
//! A known host may open any number of connections, and each may bring a manifest. Their memory is
//! counted entry by entry as they arrive, so that a stalled list holds no more than its entries so
//! far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use peer::Fingerprint;
use peer::conn::{Conn, ConnError};
use peer::metrics::{Registry, Unit, register_budget};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Memory that a connection takes besides its list, until both sides agree: its receive and send
/// buffers.
pub(crate) const CONNECTION_BYTES: usize = 1 << 20;
/// Bytes of each bound that only small shares may take, so that they need not wait for large ones.
const FOR_SMALL: usize = 64 << 20;
const SMALL: usize = CONNECTION_BYTES + (1 << 20);
/// The time that a list may wait for others to end.
const ROOM_PATIENCE: Duration = Duration::from_secs(15);

/// The memory that all lists may take together.
pub(crate) struct Budget {
    most: usize,
    each: usize,
    taken: Mutex<Taken>,
    /// Rings when a share is given back.
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_peer: BTreeMap<Fingerprint, usize>,
}

impl Budget {
    /// `most` bytes for all peers together, and `each` bytes for one of them. Of these, 64 MiB are
    /// for shares of up to 2 MiB: one peer's small shares may exceed `each` by that much, and large
    /// shares leave that much of `most`.
    #[must_use]
    pub(crate) fn new(most: usize, each: usize) -> Arc<Budget> {
        Arc::new(Budget { most, each, taken: Mutex::default(), freed: Notify::new() })
    }

    /// An empty share for a list of `peer`.
    pub(crate) fn share(self: &Arc<Self>, peer: Fingerprint) -> Share {
        Share { budget: Arc::clone(self), peer, bytes: 0 }
    }

    /// Registers what is taken, and the bound. `what` is the subject.
    pub(crate) fn register(self: &Arc<Self>, registry: &mut Registry, what: &str) {
        let (budget, most) = (Arc::clone(self), self.most as u64);
        let taken = move || budget.taken().all as u64;
        register_budget(registry, "memory", what, Some(Unit::Bytes), most, taken);
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().expect("no panic while held")
    }
}

/// The bound that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// That of the peer.
    OfPeer,
    /// That of all peers together.
    OfAll,
}

/// The memory of one list; dropping it gives the memory back.
pub(crate) struct Share {
    budget: Arc<Budget>,
    peer: Fingerprint,
    bytes: usize,
}

impl Share {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// The bound that they would exceed; nothing is taken then.
    pub(crate) fn try_take(&mut self, bytes: usize) -> Result<(), Short> {
        let Budget { most, each, .. } = *self.budget;
        let is_small = self.bytes + bytes <= SMALL;
        let (most, each) =
            if is_small { (most, each + FOR_SMALL) } else { (most - FOR_SMALL, each) };
        let mut taken = self.budget.taken();
        let all = taken.all + bytes;
        let of_peer = taken.by_peer.get(&self.peer).map_or(bytes, |of_peer| of_peer + bytes);
        if of_peer > each {
            return Err(Short::OfPeer);
        }
        if all > most {
            return Err(Short::OfAll);
        }
        taken.by_peer.insert(self.peer, of_peer);
        taken.all = all;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes `bytes` more; if they exceed a bound, waits 15 seconds at most for other shares to be
    /// given back, and pings the peer meanwhile. Returns whether the bytes were taken.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails.
    pub(crate) async fn take(&mut self, conn: &mut Conn, bytes: usize) -> Result<bool, ConnError> {
        if self.try_take(bytes).is_ok() {
            return Ok(true);
        }
        let budget = Arc::clone(&self.budget);
        let waiting = async {
            loop {
                let freed = budget.freed.notified();
                tokio::pin!(freed);
                freed.as_mut().enable();
                if self.try_take(bytes).is_ok() {
                    return;
                }
                freed.await;
            }
        };
        Ok(conn.ping_during(timeout(ROOM_PATIENCE, waiting)).await?.is_ok())
    }

    /// The message to the peer when [`Share::take`] fails: the bounds, and the remedy.
    #[must_use]
    pub(crate) fn why_not(&self) -> String {
        let of_peer = self.budget.taken().by_peer.get(&self.peer).copied().unwrap_or(0);
        let mebibytes = |bytes: usize| bytes >> 20;
        format!(
            "its memory for lists of files is used up (this host's take {} MiB of {}, and all may \
             take {} together): try again when fewer transfers are under way, or with fewer files \
             at a time",
            mebibytes(of_peer),
            mebibytes(self.budget.each),
            mebibytes(self.budget.most)
        )
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.budget.taken();
        taken.all -= self.bytes;
        if let Some(of_peer) = taken.by_peer.get_mut(&self.peer) {
            *of_peer -= self.bytes;
            if *of_peer == 0 {
                taken.by_peer.remove(&self.peer);
            }
        }
        drop(taken);
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use peer::Identity;

    use super::{Budget, FOR_SMALL, SMALL, Short};

    #[test]
    fn one_peer_leaves_room_for_another_and_much_leaves_room_for_little() {
        let [a, b] = [(); 2].map(|()| Identity::generate().unwrap().fingerprint());
        let most = 4 * FOR_SMALL;
        let budget = Budget::new(most, most / 2);
        let mut large = budget.share(a);
        assert_eq!(large.try_take(most / 2), Ok(()));
        assert_eq!(large.try_take(1), Err(Short::OfPeer), "a peer gets its half");
        let mut second = budget.share(a);
        assert_eq!(second.try_take(SMALL), Ok(()), "and a little list besides");
        assert_eq!(second.try_take(1), Err(Short::OfPeer));
        let mut others = budget.share(b);
        let left = most / 2 - FOR_SMALL - SMALL;
        assert_eq!(
            others.try_take(left + 1),
            Err(Short::OfAll),
            "the last of it is not for large ones"
        );
        assert_eq!(others.try_take(left), Ok(()));
        assert_eq!(budget.share(b).try_take(SMALL), Ok(()), "but for small ones");
        drop(large);
        assert_eq!(others.try_take(1), Ok(()), "what is dropped is there again");
    }

    #[test]
    fn what_was_not_had_is_not_counted() {
        let peer = Identity::generate().unwrap().fingerprint();
        let budget = Budget::new(4 * FOR_SMALL, 2 * FOR_SMALL);
        let mut share = budget.share(peer);
        assert_eq!(share.try_take(3 * FOR_SMALL), Err(Short::OfPeer));
        assert_eq!(share.try_take(2 * FOR_SMALL), Ok(()));
        drop(share);
        assert_eq!(budget.share(peer).try_take(2 * FOR_SMALL), Ok(()));
        assert!(budget.taken().by_peer.is_empty(), "nobody is remembered who has nothing");
        assert_eq!(budget.taken().all, 0);
    }
}
