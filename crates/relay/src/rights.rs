//! The rights of peers that a relay reads.

use peer::rights::spell_but_default;
use peer::{Cap, May, Peer, RightsKey};
use reach::Reach;
use units::Rate;
use wire::tunnel::{Host, Target};

use crate::bounds::GUEST_RATE;

/// The rights' words of this crate: where a peer's connections may go, and how much they may move
/// in a month.
pub static RIGHTS: [RightsKey; 2] = [
    RightsKey {
        key: RELAY,
        form: "TARGETS",
        spell: |text| spell_but_default(text, &Reach::default()),
    },
    RightsKey {
        key: RELAY_CAP,
        form: "SIZE/month",
        spell: |text| {
            let cap: Cap = text.parse()?;
            Ok(Some(format!("{}B/month", cap.bytes.0)))
        },
    },
];

const RELAY: &str = "relay";
const RELAY_CAP: &str = "relay-cap";
/// Where a peer's connections may go that has `may=relay` and no targets: to the ports at which
/// hosts listen if nobody names another one.
const PORTS_OF_HOSTS: &str = "*:7707-7716";

/// What a peer may do through a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayRights {
    /// Where its connections may go.
    pub reach: Reach,
    /// The bound of what they move, in both directions together.
    pub max: Option<Rate>,
    /// The bound of what they move in a month.
    pub cap: Option<Cap>,
}

impl RelayRights {
    /// Those of an entry.
    #[must_use]
    pub fn of(peer: &Peer) -> RelayRights {
        let named: Option<Reach> = peer.rights.value(RELAY);
        let reach = match named {
            Some(reach) => reach,
            None if peer.may() == May::Relay => Self::ports_of_hosts(),
            None => Reach::default(),
        };
        RelayRights { reach, max: peer.max(), cap: peer.rights.value(RELAY_CAP) }
    }

    /// Those of a token's holder, if nothing is said: to the ports at which hosts listen.
    #[must_use]
    pub fn of_token() -> RelayRights {
        RelayRights { reach: Self::ports_of_hosts(), ..RelayRights::default() }
    }

    /// Those of the guests of a host with these: within its bounds, and within that of guests.
    pub(crate) fn of_guests(&self) -> RelayRights {
        let max = self.max.map_or(GUEST_RATE, |own| own.min(GUEST_RATE));
        RelayRights { reach: Reach::default(), max: Some(max), cap: self.cap }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reach.is_empty()
    }

    /// Whether a connection to a target may be permitted; the addresses of a name are looked at
    /// when it is dialed.
    #[must_use]
    pub fn may_permit(&self, target: &Target) -> bool {
        match &target.host {
            Host::Address(address) => self.reach.permits(None, address.to_canonical(), target.port),
            Host::Name(name) => self.reach.may_resolve(target.port, name),
        }
    }

    fn ports_of_hosts() -> Reach {
        PORTS_OF_HOSTS.parse().expect("it is a target")
    }
}

#[cfg(test)]
mod tests {
    use peer::{Fingerprint, Rights};
    use reach::parse_target;

    use super::*;

    fn rights(may: May, targets: Option<&str>) -> RelayRights {
        let rights = Rights::from(may);
        let rights = match targets {
            Some(targets) => rights.with(&RIGHTS[0], targets).expect("targets"),
            None => rights,
        };
        RelayRights::of(&Peer { rights, ..Peer::from(Fingerprint::from([1; 32])) })
    }

    fn may(rights: &RelayRights, target: &str) -> bool {
        rights.may_permit(&parse_target(target).expect(target))
    }

    #[test]
    fn only_who_may_relay_reaches_anything() {
        assert!(rights(May::Both, None).is_empty());
        assert!(rights(May::None, None).is_empty());
        let own = rights(May::Relay, None);
        assert!(may(&own, "nas.example:7707") && may(&own, "192.0.2.7:7716"));
        assert!(!may(&own, "192.0.2.7:22") && !may(&own, "127.0.0.1:7707"));
        for kind in [May::Relay, May::Send] {
            let named = rights(kind, Some("*.example:7707,10.0.0.0/8:*"));
            assert!(may(&named, "nas.example:7707") && may(&named, "10.1.2.3:22"));
            assert!(!may(&named, "192.0.2.7:7707") && !may(&named, "11.0.0.1:22"));
        }
        assert!(!may(&rights(May::Send, Some("*:*")), "169.254.169.254:80"));
    }
}
