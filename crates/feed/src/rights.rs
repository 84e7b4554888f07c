//! Who may feed.

use peer::{May, Peer};

/// Whether a peer with this entry may feed: `may=feed`.
#[must_use]
pub fn may_feed(peer: &Peer) -> bool {
    peer.may() == May::Feed
}
