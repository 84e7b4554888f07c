//! What one peer sees of the folder.

use std::sync::Arc;

use peer::Peer;
use peer::limit::Limit;
use stripe::Effort;

use crate::source::SourceRoot;

/// The view of one peer: its root and its rate limit, and what it asked for.
#[derive(Clone)]
pub(super) struct PeerView {
    pub(super) root: SourceRoot,
    /// The limit of all fetches of the peer together.
    pub(super) limit: Option<Arc<Limit>>,
    /// The peer's name; empty for the holder of a token.
    pub(super) name: String,
    /// The entry of the peer among the authorized ones.
    pub(super) admitted: Option<Peer>,
    /// Whether what is sent to it is in the background.
    pub(super) effort: Effort,
}
