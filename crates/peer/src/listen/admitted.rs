//! The keys of peers that were admitted, for carriers that give more to those.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{AuthorizedPeers, Fingerprint, Peer};

/// The keys of peers that were admitted, for carriers that give more to those. A key whose entry
/// among the authorized peers changes is a stranger's until it is admitted again.
#[derive(Clone, Debug)]
pub struct Admitted {
    authorized: AuthorizedPeers,
    /// Each with its entry when it was admitted.
    peers: Arc<watch::Sender<BTreeMap<Fingerprint, Option<Peer>>>>,
}

impl Admitted {
    /// Nobody yet; `authorized` are the peers that are admitted by their keys.
    #[must_use]
    pub fn new(authorized: AuthorizedPeers) -> Admitted {
        Admitted { authorized, peers: Arc::default() }
    }

    /// The name of the holder of a key, which was admitted, for people.
    pub(crate) fn label(&self, peer: Fingerprint) -> String {
        let entry = self.peers.borrow().get(&peer).cloned().flatten();
        label_of(peer, entry.as_ref())
    }

    /// Waits until the holder of a key is admitted.
    pub async fn admitted(&self, peer: Fingerprint) {
        let mut peers = self.peers.subscribe();
        let is_there = |peers: &BTreeMap<_, _>| {
            peers.get(&peer).is_some_and(|entry| *entry == self.authorized.find(peer))
        };
        peers.wait_for(is_there).await.expect("this holds the sender");
    }

    /// Waits until the holder of a key, which was admitted, is so no longer.
    pub async fn removed(&self, peer: Fingerprint) {
        let entry = self.peers.borrow().get(&peer).cloned();
        if let Some(entry) = entry {
            self.authorized.changed(peer, entry.as_ref()).await;
        }
        self.peers.send_if_modified(|peers| peers.remove(&peer).is_some());
    }

    /// The holder of a key is admitted, by this entry or without one.
    pub(crate) fn insert(&self, peer: Fingerprint, entry: Option<Peer>) {
        self.peers.send_if_modified(|peers| {
            let is_new = peers.get(&peer) != Some(&entry);
            peers.insert(peer, entry);
            is_new
        });
    }
}

/// The name of a peer for people, known or not.
pub(crate) fn label_of(peer: Fingerprint, known: Option<&Peer>) -> String {
    known.map_or_else(|| peer.to_string(), Peer::label)
}
