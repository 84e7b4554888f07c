//! What a peer may do here.

use crate::TunnelRights;

/// What a session may do.
pub struct PeerRights {
    pub(super) rights: TunnelRights,
    /// The peer's name for people.
    pub(super) name: String,
}
