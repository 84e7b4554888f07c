//! Rules of nftables that translate addresses: which of them count for the packets of sites.

use reach::Network;

use crate::config::GatewayConfig;

/// The first rule of a ruleset that may translate what hosts of this side send to a site's.
///
/// Networks that a rule names say that it does not, and so does a rule before it in its chain that
/// lets the packets pass. What else a rule asks for is not looked at: it may be so.
pub(super) fn translating<'a>(config: &GatewayConfig, ruleset: &'a str) -> Option<&'a str> {
    let own = |network: &&Network, family: Family| family.has(network);
    let theirs = config.sites.iter().flat_map(|site| &site.networks);
    let (mut family, mut passed) = (Family::Both, Vec::new());
    for line in ruleset.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix("table ") {
            family = Family::of(table);
        }
        if line.starts_with("chain ") {
            passed.clear();
        }
        let from = Side::of(line, "saddr");
        let to = Side::of(line, "daddr");
        if !translates(line) {
            let verdict = line.split_whitespace().next_back();
            if let (Some("accept" | "return"), Some(Side { networks, is_other: false, .. })) =
                (verdict, to)
            {
                passed.extend(networks);
            }
            continue;
        }
        let leaves = |side: Option<&Side>, network: &Network| {
            side.is_some_and(|side| side.leaves_out(network))
        };
        let takes_own = config
            .networks
            .iter()
            .filter(|network| own(network, family))
            .any(|network| !leaves(from.as_ref(), network));
        let takes_theirs = theirs.clone().filter(|network| own(network, family)).any(|network| {
            let is_passed = passed.iter().any(|passed| passed.covers(network));
            !is_passed && !leaves(to.as_ref(), network)
        });
        if takes_own && takes_theirs {
            return Some(line);
        }
    }
    None
}

fn translates(line: &str) -> bool {
    // Rules of iptables that nft has no words for have quotation marks.
    let mut words = line.split_whitespace().map(|word| word.trim_matches('"'));
    words.any(|word| ["masquerade", "snat", "MASQUERADE", "SNAT"].contains(&word))
}

/// The packets that a table has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    Both,
}

impl Family {
    /// Of the text behind `table`.
    fn of(table: &str) -> Family {
        match table.split_whitespace().next() {
            Some("ip") => Family::V4,
            Some("ip6") => Family::V6,
            _ => Family::Both,
        }
    }

    fn has(self, network: &Network) -> bool {
        self == Family::Both || (self == Family::V4) == network.address().is_ipv4()
    }
}

/// The networks that a rule names for one side of a packet.
struct Side {
    networks: Vec<Network>,
    /// Whether the rule is for all others.
    is_other: bool,
    /// Whether all that it names are known; a set by its name is not.
    are_known: bool,
}

impl Side {
    /// What is behind `saddr` or `daddr`.
    fn of(line: &str, side: &str) -> Option<Side> {
        let mut words = line.split_whitespace().map(|word| word.trim_end_matches(','));
        words.find(|word| *word == side)?;
        let mut word = words.next()?;
        let is_other = word == "!=";
        if is_other {
            word = words.next()?;
        }
        let named: Vec<&str> = match word {
            "{" => words.take_while(|word| *word != "}").collect(),
            one => vec![one],
        };
        let networks: Vec<Network> = named.iter().filter_map(|text| text.parse().ok()).collect();
        let are_known = networks.len() == named.len();
        Some(Side { networks, is_other, are_known })
    }

    /// Whether the rule is for no packet of this network.
    fn leaves_out(&self, network: &Network) -> bool {
        if self.is_other {
            return self.networks.iter().any(|named| named.covers(network));
        }
        self.are_known && !self.networks.iter().any(|named| named.overlaps(network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> GatewayConfig {
        "networks = [\"10.1.0.0/24\", \"fd00:1::/64\"]
         [[site]]
         name = \"b\"
         networks = [\"10.2.0.0/24\", \"fd00:2::/64\"]
         [[site]]
         name = \"c\"
         networks = [\"10.3.0.0/16\"]
         [[background]]
         ports = [873]"
            .parse()
            .expect("a file")
    }

    /// The rule that is found of a chain's.
    fn found(table: &str, rules: &[&str]) -> Option<String> {
        let rules = rules.join("\n\t\t");
        let ruleset = format!(
            "table {table} nat {{\n\tchain other {{\n\t\tip daddr 0.0.0.0/0 accept\n\t}}\n\tchain \
             out {{\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t\t{rules}\n\t\
             }}\n}}\n"
        );
        translating(&config(), &ruleset).map(String::from)
    }

    #[test]
    fn what_may_translate_packets_of_sites_is_found() {
        for rule in [
            "oifname \"eth0\" masquerade",
            "oifname \"eth0\" counter packets 7 bytes 420 xt target \"MASQUERADE\"",
            "ip saddr 10.0.0.0/8 snat to 192.0.2.1",
            "ip saddr { 172.17.0.0/16, 10.1.0.0/24 } masquerade",
            "ip saddr @inside masquerade",
            "ip daddr != 10.2.0.0/24 masquerade",
            "ip daddr != @sites masquerade",
            "ip saddr != 10.1.0.128/25 masquerade",
        ] {
            assert_eq!(found("ip", &[rule]).as_deref(), Some(rule));
        }
    }

    /// Containers and virtual machines have rules of their own on each host that has them.
    #[test]
    fn what_is_for_other_packets_is_not() {
        for rule in [
            "ip saddr 172.17.0.0/16 oifname != \"docker0\" counter packets 0 bytes 0 masquerade",
            "ip saddr 192.168.122.0/24 ip daddr != 192.168.122.0/24 masquerade",
            "ip saddr != { 10.1.0.0/24, 10.9.0.0/24 } masquerade",
            "ip daddr != { 10.2.0.0/24, 10.0.0.0/8 } masquerade",
            "ip daddr 192.0.2.0/24 masquerade",
            "oifname \"eth0\" accept",
        ] {
            assert_eq!(found("ip", &[rule]), None, "{rule}");
        }
        let sites = ["ip daddr 10.2.0.0/24 accept", "ip daddr 10.3.0.0/16 return"];
        let rest = "oifname \"eth0\" masquerade";
        assert_eq!(found("ip", &[sites[0], sites[1], rest]), None, "they are exempt");
        assert!(found("ip", &[sites[0], rest]).is_some(), "one of two");
        assert!(found("ip", &[rest, sites[0], sites[1]]).is_some(), "too late");
        // IPv6 has a site too.
        assert!(found("inet", &[sites[0], sites[1], rest]).is_some());
        assert!(found("ip6", &[rest]).is_some());
        assert!(found("ip6", &["ip6 daddr fd00:2::/64 return", rest]).is_none());
    }
}
