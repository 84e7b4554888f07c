//! Authorized connections that wait for their dialer: it may still read its files, or another of
//! its connections may be opening the session.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use wire::frame::HEADER;
use wire::session::{SessionFrame, SessionId};

use super::by_peer::{ByPeer, PeerPlace};
use crate::Fingerprint;
use crate::conn::{Conn, ConnError};

/// The most waiting connections of one peer: twice its paths, so that each path may be replaced. A
/// further one displaces the oldest.
const WAITING_EACH: usize = 32;
/// A dialer that is silent for this long is gone: it pings twice a second.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest wait: the dialer may hash all that it sends.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);
/// The longest frame that a waiting connection handles itself, in bytes: Join.
const LONGEST: usize = HEADER + size_of::<SessionId>();

/// All waiting connections.
#[derive(Default)]
pub(crate) struct Waiting(Arc<ByPeer>);

/// The end of a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The connection joins this session.
    Join(SessionId),
    /// The connection opens its session; the frame that does so is still to be read.
    Open,
}

impl Waiting {
    /// Waits until the dialer of `conn` joins a session or opens one.
    ///
    /// # Errors
    /// Those of the connection; [`ConnError::Silent`] for a dialer that has gone, and for one that
    /// waits for a day; [`ConnError::Refused`] if further connections of the same peer displace
    /// this one.
    pub(crate) async fn wait(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
    ) -> Result<Waited, ConnError> {
        let place = self.take(peer);
        let waited = timeout(LONGEST_WAIT, Self::hear(conn, &place)).await;
        waited.map_err(|_| ConnError::Silent(LONGEST_WAIT))?
    }

    async fn hear(conn: &mut Conn, place: &PeerPlace) -> Result<Waited, ConnError> {
        loop {
            let told = conn.receive_if(LONGEST, |frame| match SessionFrame::try_from(frame) {
                Ok(SessionFrame::Join(id)) => Some(Some(Waited::Join(id))),
                Ok(SessionFrame::Ping(_)) => Some(None),
                _ => None,
            });
            let told = tokio::select! {
                told = timeout(SILENCE, told) => told.map_err(|_| ConnError::Silent(SILENCE))??,
                () = place.displaced.notified() => {
                    let why = format!("more than {WAITING_EACH} connections of this key wait");
                    return Err(ConnError::Refused(why));
                }
            };
            match told {
                Some(Some(joins)) => return Ok(joins),
                Some(None) => {}
                None => return Ok(Waited::Open),
            }
        }
    }

    fn take(&self, peer: Fingerprint) -> PeerPlace {
        let place = self.0.enter(peer, |lists| {
            let of_peer = lists.entry(peer).or_default();
            if of_peer.len() >= WAITING_EACH
                && let Some(oldest) = of_peer.pop_front()
            {
                oldest.notify_one();
            }
            Some(())
        });
        place.expect("the oldest makes room")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(octet: u8) -> Fingerprint {
        Fingerprint::from([octet; 32])
    }

    #[tokio::test]
    async fn a_further_connection_of_a_peer_displaces_its_oldest() {
        let waiting = Waiting::default();
        let other = waiting.take(peer(2));
        let mut places: Vec<_> = (0..WAITING_EACH).map(|_| waiting.take(peer(1))).collect();
        places.push(waiting.take(peer(1)));
        places[0].displaced.notified().await;
        assert_eq!(waiting.0.lists()[&peer(1)].len(), WAITING_EACH);
        // The displaced one takes no other with it.
        drop(places.remove(0));
        assert_eq!(waiting.0.lists()[&peer(1)].len(), WAITING_EACH);
        drop(places);
        drop(other);
        assert!(waiting.0.lists().is_empty());
    }
}
