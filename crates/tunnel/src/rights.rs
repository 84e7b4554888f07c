//! The rights of peers that a tunnel reads.

use peer::rights::spell_but_default;
use peer::{Peer, RightsKey};
use reach::{ListenRights, Reach};

/// The rights' words of this crate: what a peer may reach, and where it may have this host listen.
pub static RIGHTS: [RightsKey; 2] = [
    RightsKey {
        key: REACH,
        form: "TARGETS",
        spell: |text| spell_but_default(text, &Reach::default()),
    },
    RightsKey {
        key: LISTEN,
        form: "PORTS",
        spell: |text| spell_but_default(text, &ListenRights::default()),
    },
];

const REACH: &str = "tunnel";
const LISTEN: &str = "listen";

/// What a peer may do through a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelRights {
    /// What it may reach.
    pub reach: Reach,
    /// Where it may have this host listen.
    pub listen: ListenRights,
}

impl TunnelRights {
    /// Those of an entry.
    #[must_use]
    pub fn of(peer: &Peer) -> TunnelRights {
        let reach = peer.rights.value(REACH).unwrap_or_default();
        TunnelRights { reach, listen: peer.rights.value(LISTEN).unwrap_or_default() }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reach.is_empty() && self.listen.is_empty()
    }

    /// These and others.
    #[must_use]
    pub fn and(self, other: TunnelRights) -> TunnelRights {
        TunnelRights { reach: self.reach.and(other.reach), listen: self.listen.and(other.listen) }
    }
}
