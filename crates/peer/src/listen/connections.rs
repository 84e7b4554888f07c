//! Bounds of authorized connections: of one peer, and of all together. Every connection is a
//! descriptor, and holds memory.

use std::collections::VecDeque;
use std::sync::Arc;

use super::by_peer::{ByPeer, PeerPlace};
use crate::Fingerprint;
use crate::metrics::{Registry, register_budget};

/// The most authorized connections of one peer, in all its sessions: twice those of a session that
/// has as many as it may.
pub(crate) const CONNECTIONS_EACH: usize = 2 * super::MOST_CONNECTIONS;
/// The most authorized connections of all peers, but for those that hold little. A further one
/// takes the place of the newest of the peer that has the most.
pub(crate) const CONNECTIONS: usize = 512;

/// What a connection may make this host hold, by its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    Usual,
    /// [`Service::has_small_connections`](crate::host::Service::has_small_connections)
    Little,
}

/// All authorized connections. Those of a kind take no place of the other's.
pub(crate) struct Connections {
    usual: Kind,
    /// `None`: no service has such.
    little: Option<Kind>,
}

/// The connections of one kind.
struct Kind {
    all: Arc<ByPeer>,
    most: usize,
}

impl Connections {
    /// [`CONNECTIONS`], and so many that hold little, if there are such.
    pub(crate) fn new(little: Option<usize>) -> Connections {
        Connections { usual: Kind::new(CONNECTIONS), little: little.map(Kind::new) }
    }

    /// Counts a connection of `peer` until the returned value is dropped. `None` if the peer has as
    /// many as it may, or there are as many of the kind in all and no peer has more than this one.
    pub(crate) fn enter(&self, peer: Fingerprint, holding: Holding) -> Option<PeerPlace> {
        let others = self.kinds().filter(|(other, _)| *other != holding);
        let elsewhere = others.map(|(_, kind)| kind.of(peer)).sum();
        self.kind(holding).enter(peer, elsewhere)
    }

    /// The message to a peer whose connection has no place.
    pub(crate) fn no_place(&self, holding: Holding) -> String {
        let most = self.kind(holding).most;
        format!(
            "it has as many connections as it takes ({CONNECTIONS_EACH} of a host, {most} in all): \
             try again when fewer transfers are under way"
        )
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        for (holding, kind) in self.kinds() {
            let (name, what) = match holding {
                Holding::Usual => ("connection_places", "Authorized connections in all"),
                Holding::Little => {
                    ("small_connection_places", "Authorized connections that hold little in all")
                }
            };
            let all = Arc::clone(&kind.all);
            let count = move || total(&all) as u64;
            register_budget(registry, name, what, None, kind.most as u64, count);
        }
    }

    fn kinds(&self) -> impl Iterator<Item = (Holding, &Kind)> {
        let little = self.little.iter().map(|kind| (Holding::Little, kind));
        std::iter::once((Holding::Usual, &self.usual)).chain(little)
    }

    fn kind(&self, holding: Holding) -> &Kind {
        match holding {
            Holding::Usual => &self.usual,
            Holding::Little => self.little.as_ref().unwrap_or(&self.usual),
        }
    }
}

impl Kind {
    fn new(most: usize) -> Kind {
        Kind { all: Arc::default(), most }
    }

    /// The connections of a peer.
    fn of(&self, peer: Fingerprint) -> usize {
        self.all.lists().get(&peer).map_or(0, VecDeque::len)
    }

    /// Enters a connection of a peer that has so many of the other kind.
    fn enter(&self, peer: Fingerprint, elsewhere: usize) -> Option<PeerPlace> {
        self.all.enter(peer, |lists| {
            let of_peer = lists.get(&peer).map_or(0, VecDeque::len);
            if of_peer + elsewhere >= CONNECTIONS_EACH {
                return None;
            }
            if lists.values().map(VecDeque::len).sum::<usize>() >= self.most {
                let most = lists.values_mut().max_by_key(|others| others.len())?;
                if most.len() <= of_peer + 1 {
                    return None;
                }
                most.pop_back()?.notify_one();
            }
            Some(())
        })
    }
}

fn total(all: &ByPeer) -> usize {
    all.lists().values().map(VecDeque::len).sum()
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
        let connections = Connections::new(None);
        let enter = |octet| connections.enter(peer(octet), Holding::Usual);
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
        assert!(connections.usual.all.lists().is_empty());
    }

    #[test]
    fn small_connections_have_many_places_of_their_own() {
        let connections = Connections::new(Some(2_048));
        let enter = |octet, holding| connections.enter(peer(octet), holding);
        let small: Vec<_> = (0..2_048)
            .map(|n| enter(u8::try_from(n / 32).unwrap(), Holding::Little).unwrap())
            .collect();
        let usual: Vec<_> = (0..CONNECTIONS)
            .map(|n| enter(u8::try_from(n / 8).unwrap(), Holding::Usual).unwrap())
            .collect();
        assert!(!small.iter().chain(&usual).any(is_displaced));
        assert!(connections.no_place(Holding::Little).contains("2048 in all"));
        // One more source takes the place of the newest of the host with the most.
        let _new = enter(100, Holding::Little).expect("another peer gets in");
        assert_eq!(small.iter().filter(|place| is_displaced(place)).count(), 1);
        assert!(!usual.iter().any(is_displaced));
    }

    #[test]
    fn the_connections_of_a_peer_count_together() {
        let connections = Connections::new(Some(2_048));
        let places: Vec<_> = (0..CONNECTIONS_EACH)
            .map(|n| {
                let holding = if n % 2 == 0 { Holding::Usual } else { Holding::Little };
                connections.enter(peer(1), holding).unwrap()
            })
            .collect();
        for holding in [Holding::Usual, Holding::Little] {
            assert!(connections.enter(peer(1), holding).is_none(), "{holding:?}");
            assert!(connections.enter(peer(2), holding).is_some(), "{holding:?}");
        }
        drop(places);
    }
}
