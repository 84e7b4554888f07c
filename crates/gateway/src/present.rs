//! The one session of a site, and the networks for which it may speak.

use std::net::IpAddr;

use peer::Fingerprint;
use reach::Network;
use stripe::Connection;

use crate::rights::GatewayRights;

/// A session as others see it.
pub(crate) struct Present {
    pub(crate) connection: Connection,
    /// The key of the side that dialed.
    pub(crate) dialer: Fingerprint,
}

impl Present {
    /// Whether a connection takes the place of this one. Both sides decide alike: of two that were
    /// dialed by the same side the later one stays, of two by different sides that of the smaller
    /// key.
    pub(crate) fn gives_way_to(&self, other: &Present) -> bool {
        self.connection.has_ended()
            || self.dialer == other.dialer
            || other.dialer.as_bytes() < self.dialer.as_bytes()
    }
}

/// The networks of an announcement that a peer may speak for.
pub(crate) fn permitted(
    announced: &[(IpAddr, u8)],
    rights: &GatewayRights,
    configured: &[Network],
    own: &[Network],
) -> (Vec<Network>, Vec<String>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for (address, bits) in announced {
        let network = Network::new(*address, *bits);
        let is_permitted = |network: &Network| {
            rights.permit(network)
                && configured.iter().any(|one| one.covers(network))
                && !own.iter().any(|one| one.overlaps(network))
        };
        match network.filter(is_permitted) {
            Some(network) if !taken.contains(&network) => taken.push(network),
            Some(_) => {}
            None => refused.push(format!("{address}/{bits}")),
        }
    }
    (taken, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_site_speaks_for_hosts_of_others() {
        let network = |text: &str| text.parse::<Network>().expect(text);
        let rights: GatewayRights =
            "10.2.0.0/16,10.1.0.0/16,10.4.0.0/16".parse().expect("networks");
        let configured = [network("10.2.0.0/16"), network("10.3.0.0/16"), network("10.1.0.0/16")];
        let own = [network("10.1.0.0/24")];
        let announced: Vec<_> = ["10.2.7.0", "10.3.0.0", "10.1.0.0", "10.4.0.0", "10.1.8.0"]
            .map(|text| (text.parse().expect(text), 24))
            .into();
        let (taken, refused) = permitted(&announced, &rights, &configured, &own);
        assert_eq!(taken, [network("10.2.7.0/24"), network("10.1.8.0/24")]);
        // Its entry does not name the first, the second is this side's, the file has not the third.
        assert_eq!(refused, ["10.3.0.0/24", "10.1.0.0/24", "10.4.0.0/24"]);
        let broken = [("10.2.0.7".parse().expect("an address"), 24)];
        assert_eq!(permitted(&broken, &rights, &configured, &own).1.len(), 1);
    }
}
