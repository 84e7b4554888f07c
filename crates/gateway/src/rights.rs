//! The right of peers that a gateway reads: the networks that a site may announce.

use std::fmt;
use std::str::FromStr;

use peer::rights::spell_but_default;
use peer::{Peer, RightsKey};
use reach::Network;

/// The rights' word of this crate.
pub static RIGHTS: [RightsKey; 1] = [RightsKey {
    key: GATEWAY,
    form: "NETWORKS",
    spell: |text| spell_but_default(text, &GatewayRights::default()),
}];

const GATEWAY: &str = "gateway";

/// The networks that a peer may announce as its own; none: it is no site's gateway. A list with
/// commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayRights(pub Vec<Network>);

impl GatewayRights {
    /// Those of an entry.
    #[must_use]
    pub fn of(peer: &Peer) -> GatewayRights {
        peer.rights.value(GATEWAY).unwrap_or_default()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether hosts of this network may be spoken for.
    #[must_use]
    pub fn permit(&self, network: &Network) -> bool {
        self.0.iter().any(|own| own.covers(network))
    }
}

impl FromStr for GatewayRights {
    type Err = String;

    fn from_str(text: &str) -> Result<GatewayRights, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(GatewayRights)
    }
}

impl fmt::Display for GatewayRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Network::to_string).collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use peer::{Fingerprint, May, Rights};

    use super::*;

    #[test]
    fn only_what_an_entry_names_may_be_announced() {
        let entry = |rights| Peer { rights, ..Peer::from(Fingerprint::from([1; 32])) };
        assert!(GatewayRights::of(&entry(Rights::from(May::Both))).is_empty());
        let rights = Rights::default().with(&RIGHTS[0], "10.2.0.0/16,fd00:2::/48");
        let rights = GatewayRights::of(&entry(rights.expect("networks")));
        for (network, expected) in [
            ("10.2.0.0/16", true),
            ("10.2.7.0/24", true),
            ("10.0.0.0/8", false),
            ("10.3.0.0/24", false),
            ("fd00:2::7", true),
            ("::/0", false),
        ] {
            assert_eq!(rights.permit(&network.parse().expect("a network")), expected, "{network}");
        }
        assert!(Rights::default().with(&RIGHTS[0], "10.2.0.1/16").is_err());
        assert!(Rights::default().with(&RIGHTS[0], "everything").is_err());
    }
}
