//! Bounds of authorized connections: of one peer, and of all together. Every connection is a
//! descriptor, and a process usually has 1,024.

use std::collections::VecDeque;
use std::sync::Arc;

use super::by_peer::{ByPeer, PeerPlace};
use crate::Fingerprint;
use crate::metrics::{Registry, register_budget};

/// The most authorized connections of one peer, in all its sessions: twice those of a session that
/// has as many as it may.
pub(crate) const CONNECTIONS_EACH: usize = 2 * super::MOST_CONNECTIONS;
/// The most authorized connections of all peers. A further one takes the place of the newest of the
/// peer that has the most.
pub(crate) const CONNECTIONS: usize = 512;

/// All authorized connections.
#[derive(Default)]
pub(crate) struct Connections(Arc<ByPeer>);

impl Connections {
    /// Counts a connection of `peer` until the returned value is dropped. `None` if the peer has as
    /// many as it may, or there are as many in all and no peer has more than this one.
    pub(crate) fn enter(&self, peer: Fingerprint) -> Option<PeerPlace> {
        self.0.enter(peer, |lists| {
            let of_peer = lists.get(&peer).map_or(0, VecDeque::len);
            if of_peer >= CONNECTIONS_EACH {
                return None;
            }
            if lists.values().map(VecDeque::len).sum::<usize>() >= CONNECTIONS {
                let most = lists.values_mut().max_by_key(|others| others.len())?;
                if most.len() <= of_peer + 1 {
                    return None;
                }
                most.pop_back()?.notify_one();
            }
            Some(())
        })
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let (all, what) = (Arc::clone(&self.0), "Authorized connections in all");
        let count = move || all.lists().values().map(VecDeque::len).sum::<usize>() as u64;
        register_budget(registry, "connection_places", what, None, CONNECTIONS as u64, count);
    }
}

/// The message to a peer whose connection has no place.
pub(crate) fn no_place() -> String {
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

    fn is_displaced(place: &PeerPlace) -> bool {
        let displaced = pin!(place.displaced.notified());
        displaced.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn peer(octet: u8) -> Fingerprint {
        Fingerprint::from([octet; 32])
    }

    #[test]
    fn the_peer_with_the_most_connections_gives_way_to_another() {
        let connections = Connections::default();
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
        assert!(connections.0.lists().is_empty());
    }
}
