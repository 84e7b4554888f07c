//! Connections by peer, any of which may have to give its place to another one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::Fingerprint;

/// The connections of each peer, the newest last; each by what rings when it is displaced.
pub(crate) type Lists = BTreeMap<Fingerprint, VecDeque<Arc<Notify>>>;

/// Connections by peer.
#[derive(Default)]
pub(crate) struct ByPeer(Mutex<Lists>);

/// The place of a connection, until dropped.
pub(crate) struct PeerPlace {
    all: Arc<ByPeer>,
    peer: Fingerprint,
    /// Rings when another connection takes the place.
    pub(crate) displaced: Arc<Notify>,
}

impl ByPeer {
    /// Adds a connection of `peer`, if `make_room` finds room for it, which may displace others.
    pub(crate) fn enter(
        self: &Arc<Self>,
        peer: Fingerprint,
        make_room: impl FnOnce(&mut Lists) -> Option<()>,
    ) -> Option<PeerPlace> {
        let displaced = Arc::new(Notify::new());
        let mut lists = self.lists();
        make_room(&mut lists)?;
        lists.entry(peer).or_default().push_back(Arc::clone(&displaced));
        drop(lists);
        Some(PeerPlace { all: Arc::clone(self), peer, displaced })
    }

    pub(crate) fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().expect("no panic while held")
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut lists = self.all.lists();
        if let Some(of_peer) = lists.get_mut(&self.peer) {
            of_peer.retain(|other| !Arc::ptr_eq(other, &self.displaced));
            if of_peer.is_empty() {
                lists.remove(&self.peer);
            }
        }
    }
}
