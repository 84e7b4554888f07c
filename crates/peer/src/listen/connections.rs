//! Bounds of authorized connections: of one peer, and of all together. Every connection is a
//! descriptor, and a process usually has 1,024.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::Fingerprint;

/// The most authorized connections of one peer, in all its sessions: twice those of a session that
/// has as many as it may.
pub(super) const CONNECTIONS_EACH: usize = 2 * super::MOST_CONNECTIONS;
/// The most authorized connections of all peers. A further one takes the place of the newest of the
/// peer that has the most.
pub(super) const CONNECTIONS: usize = 512;

/// All authorized connections, by peer, the newest last.
#[derive(Default)]
pub(super) struct Connections(Mutex<BTreeMap<Fingerprint, Vec<Arc<Notify>>>>);

impl Connections {
    /// Counts a connection of `peer` until the returned value is dropped. `None` if the peer has as
    /// many as it may, or there are as many in all and no peer has more than this one.
    pub(super) fn enter(self: &Arc<Self>, peer: Fingerprint) -> Option<ConnectionPlace> {
        let mut all = self.all();
        let of_peer = all.get(&peer).map_or(0, Vec::len);
        if of_peer >= CONNECTIONS_EACH {
            return None;
        }
        if all.values().map(Vec::len).sum::<usize>() >= CONNECTIONS {
            let most = all.values_mut().max_by_key(|others| others.len())?;
            if most.len() <= of_peer + 1 {
                return None;
            }
            most.pop()?.notify_one();
        }
        let displaced = Arc::new(Notify::new());
        all.entry(peer).or_default().push(Arc::clone(&displaced));
        drop(all);
        Some(ConnectionPlace { connections: Arc::clone(self), peer, displaced })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, Vec<Arc<Notify>>>> {
        self.0.lock().expect("no panic while held")
    }
}

/// The place of a connection, until dropped.
pub(super) struct ConnectionPlace {
    connections: Arc<Connections>,
    peer: Fingerprint,
    /// Rings when another peer's connection takes the place.
    pub(super) displaced: Arc<Notify>,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut all = self.connections.all();
        if let Some(of_peer) = all.get_mut(&self.peer) {
            of_peer.retain(|other| !Arc::ptr_eq(other, &self.displaced));
            if of_peer.is_empty() {
                all.remove(&self.peer);
            }
        }
    }
}

/// The message to a peer whose connection has no place.
pub(super) fn no_place() -> String {
    format!(
        "it has as many connections as it takes ({CONNECTIONS_EACH} of a host, {CONNECTIONS} in \
         all): try again when fewer transfers are under way"
    )
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_displaced(place: &ConnectionPlace) -> bool {
        let displaced = pin!(place.displaced.notified());
        displaced.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn peer(octet: u8) -> Fingerprint {
        Fingerprint::from([octet; 32])
    }

    #[test]
    fn the_peer_with_the_most_connections_gives_way_to_another() {
        let connections = Arc::new(Connections::default());
        let enter = |octet| connections.enter(peer(octet));
        let of_one: Vec<_> = (0..CONNECTIONS_EACH).map(|_| enter(1).unwrap()).collect();
        assert!(enter(1).is_none(), "a peer has so many and no more");
        let half = (CONNECTIONS - CONNECTIONS_EACH) / 2;
        let mut others: Vec<_> =
            (0..2 * half).map(|i| enter(if i < half { 2 } else { 3 }).unwrap()).collect();
        let new = enter(4).expect("another peer gets in");
        let (newest, rest) = of_one.split_last().unwrap();
        assert!(is_displaced(newest), "for the newest of the peer with the most");
        assert!(!rest.iter().chain(&others).any(is_displaced));
        assert!(enter(1).is_none(), "which does not come back for it");
        others.push(new);
        drop((of_one, others));
        assert!(connections.all().is_empty());
    }
}
