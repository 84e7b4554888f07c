//! Sessions that are being opened. The dialing host may know that its session is open before this
//! host does, and join further connections to it at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use wire::session::SessionId;

use crate::Fingerprint;

/// The sessions that are being opened. A request opens one, so there are no more than connections.
#[derive(Default)]
pub(crate) struct OpeningSessions(Mutex<Sessions>);

/// Each session with its peer, and what closes when it is open, or never will be.
type Sessions = BTreeMap<SessionId, (Fingerprint, watch::Receiver<()>)>;

/// A session that is being opened, until dropped.
pub struct OpeningPlace {
    all: Arc<OpeningSessions>,
    id: SessionId,
    /// Closes with the place.
    _settling: watch::Sender<()>,
}

/// The longest wait of a connection for the session that it joins.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

impl OpeningSessions {
    /// The session `id` of `peer` is being opened.
    pub(crate) fn begin(self: &Arc<Self>, id: SessionId, peer: Fingerprint) -> OpeningPlace {
        let (settling, settled) = watch::channel(());
        self.sessions().insert(id, (peer, settled));
        OpeningPlace { all: Arc::clone(self), id, _settling: settling }
    }

    /// Waits until the session `id` of `peer` is no longer being opened.
    pub(crate) async fn settled(&self, id: SessionId, peer: Fingerprint) {
        self.settled_within(JOIN_PATIENCE, id, peer).await;
    }

    async fn settled_within(&self, patience: Duration, id: SessionId, peer: Fingerprint) {
        let known = self.sessions().get(&id).filter(|(of, _)| *of == peer).cloned();
        if let Some((_, mut settled)) = known {
            // An error is the end that is waited for.
            let _ = timeout(patience, settled.changed()).await;
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.0.lock().expect("no panic while held")
    }
}

impl Drop for OpeningPlace {
    fn drop(&mut self) {
        self.all.sessions().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither a long nor a short time, on any machine.
    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_connection_waits_for_its_own_session_and_not_for_ever() {
        let opening = Arc::new(OpeningSessions::default());
        let (ours, other) = (Fingerprint::from([1; 32]), Fingerprint::from([2; 32]));
        let place = opening.begin([7; 16], ours);
        // Neither an unknown session nor one of another peer is waited for.
        for (id, peer) in [([8; 16], ours), ([7; 16], other)] {
            let waiting = opening.settled_within(LONG * 2, id, peer);
            timeout(LONG, waiting).await.unwrap();
        }
        let waiting = opening.settled_within(LONG, [7; 16], ours);
        tokio::pin!(waiting);
        assert!(timeout(SHORT, &mut waiting).await.is_err());
        timeout(LONG, opening.settled_within(SHORT, [7; 16], ours)).await.unwrap();
        drop(place);
        timeout(SHORT, waiting).await.unwrap();
        assert!(opening.sessions().is_empty());
    }
}
