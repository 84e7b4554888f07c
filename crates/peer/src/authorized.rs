//! The peers that a host knows by key, and their permissions.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;
use units::Rate;

use crate::rights::{MAX, MAY, RELAY_AT, RelayAddresses};
use crate::{Fingerprint, May, Rights};

/// A host that needs no token here, and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub fingerprint: Fingerprint,
    /// Its name here; may be empty.
    pub name: String,
    /// What it may do here.
    pub rights: Rights,
}

/// The peers that a listening host knows by key. Clones share one list, which may change while the
/// host listens: a peer whose entry changes loses its connections at once, and has to be admitted
/// again.
#[derive(Clone, Debug)]
pub struct AuthorizedPeers(Arc<watch::Sender<Vec<Peer>>>);

impl AuthorizedPeers {
    /// These peers; the first entry of a key counts.
    #[must_use]
    pub fn new(peers: Vec<Peer>) -> AuthorizedPeers {
        AuthorizedPeers(Arc::new(watch::Sender::new(peers)))
    }

    /// The entry of a key.
    #[must_use]
    pub fn find(&self, key: Fingerprint) -> Option<Peer> {
        find(&self.0.borrow(), key).cloned()
    }

    /// All entries.
    #[must_use]
    pub fn all(&self) -> Vec<Peer> {
        self.0.borrow().clone()
    }

    /// Whether any entry fulfils a condition.
    pub fn any(&self, condition: impl FnMut(&Peer) -> bool) -> bool {
        self.0.borrow().iter().any(condition)
    }

    /// Puts another list in the place of this one.
    pub fn replace(&self, peers: Vec<Peer>) {
        self.0.send_replace(peers);
    }

    /// Waits until the entry of a key is no longer `entry`.
    pub async fn changed(&self, key: Fingerprint, entry: Option<&Peer>) {
        let mut list = self.0.subscribe();
        let differs = |list: &Vec<Peer>| find(list, key) != entry;
        list.wait_for(differs).await.expect("this holds the sender");
    }
}

impl Default for AuthorizedPeers {
    /// No peer.
    fn default() -> AuthorizedPeers {
        AuthorizedPeers::new(Vec::new())
    }
}

fn find(list: &[Peer], key: Fingerprint) -> Option<&Peer> {
    list.iter().find(|peer| peer.fingerprint == key)
}

impl Peer {
    /// Whether it may get files from here.
    #[must_use]
    pub fn may_get(&self) -> bool {
        matches!(self.may(), May::Get | May::Both)
    }

    /// Whether it may send files here.
    #[must_use]
    pub fn may_send(&self) -> bool {
        matches!(self.may(), May::Send | May::Both)
    }

    /// In which directions its data may flow.
    #[must_use]
    pub fn may(&self) -> May {
        // What nobody can read lets nobody in.
        let read = |word: &str| word.parse().unwrap_or(May::None);
        self.rights.word(MAY).map_or_else(May::default, read)
    }

    /// The upper bound of its total rate, in each direction.
    #[must_use]
    pub fn max(&self) -> Option<Rate> {
        self.rights.value(MAX)
    }

    /// Whether it is a relay, and connections of others come here through it from this address.
    #[must_use]
    pub fn is_relay_at(&self, from: IpAddr) -> bool {
        let addresses = self.rights.value::<RelayAddresses>(RELAY_AT);
        addresses.is_some_and(|addresses| addresses.has(from))
    }

    /// Its name for people: its key, if it has none.
    #[must_use]
    pub fn label(&self) -> String {
        if self.name.is_empty() { self.fingerprint.to_string() } else { self.name.clone() }
    }
}

impl From<Fingerprint> for Peer {
    /// A host that may send here, without a name or a bound.
    fn from(fingerprint: Fingerprint) -> Peer {
        Peer { fingerprint, name: String::new(), rights: Rights::default() }
    }
}
