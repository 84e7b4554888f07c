//! What the system of a gateway does to its packets: rules, routes, settings, the programs that it
//! needs.

mod translation;

use std::fs::{self, OpenOptions};

use net::programs::read;

use crate::config::{Fail, GatewayConfig};
use crate::programs;
use crate::rules::{PRIORITY, TABLE};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemFinding {
    /// What was looked at, in a word or two.
    pub subject: &'static str,
    /// What was found, as a sentence.
    pub text: String,
    /// What to do, if something is wrong.
    pub remedy: Option<String>,
}

/// What the system says of itself.
#[derive(Clone, Debug)]
pub(crate) struct SystemFacts {
    /// Why `/dev/net/tun` cannot be opened.
    pub(crate) tun: Option<String>,
    /// What `nft list ruleset` prints, or why it prints nothing.
    pub(crate) ruleset: Result<String, String>,
    /// What `ip rule` prints, of IPv4 and IPv6.
    pub(crate) lookups: [String; 2],
    /// Settings that are not 0.
    pub(crate) set: Vec<&'static str>,
    /// Tables of the older iptables.
    pub(crate) legacy: String,
    /// Whether there are cgroups that nft knows.
    pub(crate) has_cgroups: bool,
}

/// The settings that are looked at, below `/proc/sys`.
const FORWARDING: [&str; 2] = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
const STRICT: &str = "net/ipv4/conf/all/rp_filter";

impl SystemFacts {
    /// Those of this host.
    pub(crate) fn read() -> SystemFacts {
        let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
        let is_set = |key: &&str| {
            fs::read_to_string(format!("/proc/sys/{key}")).is_ok_and(|value| value.trim() != "0")
        };
        let lookups = ["-4", "-6"].map(|family| read("ip", &[family, "rule"]).unwrap_or_default());
        let keys = FORWARDING.into_iter().chain([STRICT]);
        SystemFacts {
            tun: tun.err().map(|error| error.to_string()),
            ruleset: read("nft", &["list", "ruleset"]),
            lookups,
            set: keys.filter(is_set).collect(),
            legacy: fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default(),
            has_cgroups: programs::are_known(),
        }
    }
}

/// Looks at what the system does to the packets of a gateway with this file.
#[must_use]
pub fn examine(config: &GatewayConfig) -> Vec<SystemFinding> {
    judge(config, &SystemFacts::read())
}

pub(crate) fn judge(config: &GatewayConfig, facts: &SystemFacts) -> Vec<SystemFinding> {
    let mut findings = vec![device(facts)];
    match &facts.ruleset {
        Err(why) => findings.push(wrong(
            "nftables",
            format!("the rules cannot be read: {why}"),
            "install nftables, and run this as root".into(),
        )),
        Ok(ruleset) => {
            findings.push(marks(ruleset));
            findings.push(translation(config, ruleset, &facts.legacy));
            findings.push(offload(ruleset));
            findings.push(forward(config, ruleset));
        }
    }
    findings.extend(cgroups(config, facts));
    findings.push(lookup(config, facts));
    findings.push(forwarding(config, facts));
    findings.push(if facts.set.contains(&STRICT) {
        wrong(
            "rp_filter",
            "net.ipv4.conf.all.rp_filter is not 0, which counts for every device: packets of IPv4 \
             that come out of the gateway are dropped"
                .into(),
            "set it to 0, and that of each other device instead".into(),
        )
    } else {
        right("rp_filter", "net.ipv4.conf.all.rp_filter is 0: each device has its own".into())
    });
    findings
}

fn right(subject: &'static str, text: String) -> SystemFinding {
    SystemFinding { subject, text, remedy: None }
}

fn wrong(subject: &'static str, text: String, remedy: String) -> SystemFinding {
    SystemFinding { subject, text, remedy: Some(remedy) }
}

fn device(facts: &SystemFacts) -> SystemFinding {
    match &facts.tun {
        None => right("TUN", "/dev/net/tun can be opened".into()),
        Some(why) => wrong(
            "TUN",
            format!("/dev/net/tun cannot be opened: {why}"),
            "load the module 'tun', and let this user use it".into(),
        ),
    }
}

fn marks(ruleset: &str) -> SystemFinding {
    if ruleset.contains(&format!("table inet {TABLE} ")) {
        right("rules", format!("the table inet {TABLE} is there"))
    } else {
        wrong(
            "rules",
            "the rules are not installed: nothing is marked".into(),
            "'anabranch gateway rules --install', as root, after each start of the machine".into(),
        )
    }
}

/// Whether programs can be told by their cgroups, if the file has some.
fn cgroups(config: &GatewayConfig, facts: &SystemFacts) -> Option<SystemFinding> {
    programs::named(&config.background).next()?;
    let subject = "cgroups";
    Some(if facts.has_cgroups {
        right(subject, format!("{} has cgroups of version 2", programs::ROOT))
    } else {
        wrong(
            subject,
            format!(
                "{} has no cgroups of version 2, and nftables knows no others: the programs that \
                 are named by cgroup are not in the background",
                programs::ROOT
            ),
            "start the kernel with systemd.unified_cgroup_hierarchy=1, or name ports".into(),
        )
    })
}

/// Whether the usual route may translate addresses.
fn translation(config: &GatewayConfig, ruleset: &str, legacy: &str) -> SystemFinding {
    let found = translation::translating(config, ruleset);
    let where_found = match found {
        Some(line) => format!("'{line}'"),
        None if legacy.lines().any(|table| table == "nat") => "a table of iptables".into(),
        None => return right("NAT", "no rule translates addresses of what goes to a site".into()),
    };
    let text = format!("{where_found} translates addresses of hosts");
    if config.fail == Fail::Closed {
        return right(
            "NAT",
            format!("{text}; connections end when a site is away (fail = closed)"),
        );
    }
    wrong(
        "NAT",
        format!(
            "{text}: where it counts for the other site, a connection cannot go on by the usual \
             route when the gateway dies"
        ),
        "exempt the sites' networks from it, or say fail = \"closed\" in the file".into(),
    )
}

fn offload(ruleset: &str) -> SystemFinding {
    let found = ruleset.lines().map(str::trim).find(|line| line.contains("flow add @"));
    match found {
        None => right("flowtables", "no rule hands connections to a flowtable".into()),
        Some(line) => wrong(
            "flowtables",
            format!(
                "'{line}': packets of a connection that is offloaded pass no rules, and none is \
                 marked"
            ),
            "leave the background's ports out of it".into(),
        ),
    }
}

/// Whether a chain drops what is forwarded and no rule names the device.
fn forward(config: &GatewayConfig, ruleset: &str) -> SystemFinding {
    let drops = |line: &str| line.contains("hook forward") && line.contains("policy drop");
    let named = format!("\"{}\"", config.device);
    let own = |line: &&str| line.contains(&named) && line.contains("accept");
    let accepts = |side: &str| ruleset.lines().filter(own).any(|line| line.contains(side));
    if !ruleset.lines().any(drops) {
        return right("firewall", "no chain drops what is forwarded by its policy".into());
    }
    if accepts("iifname") && accepts("oifname") {
        return right("firewall", format!("a policy drops, and rules let {} pass", config.device));
    }
    wrong(
        "firewall",
        "the policy of a chain drops what is forwarded, and no rules let the device pass".into(),
        format!("accept 'iifname {named}' and 'oifname {named}' there"),
    )
}

/// Whether marked packets find the gateway's routes.
fn lookup(config: &GatewayConfig, facts: &SystemFacts) -> SystemFinding {
    let mark = format!("fwmark {:#x}", config.mark);
    let table = format!("lookup {}", config.table);
    let leads = |text: &String| {
        text.lines().any(|line| line.contains(&mark) && line.trim_end().ends_with(&table))
    };
    if facts.lookups.iter().all(leads) {
        return right("routes", format!("marked packets look into table {}", config.table));
    }
    wrong(
        "routes",
        format!("no rule of priority {PRIORITY} leads marked packets to table {}", config.table),
        "'anabranch gateway rules --install', as root".into(),
    )
}

fn forwarding(config: &GatewayConfig, facts: &SystemFacts) -> SystemFinding {
    let is_v4 = |is_v4: bool| config.networks.iter().any(|one| one.address().is_ipv4() == is_v4);
    let wanted = FORWARDING.into_iter().zip([is_v4(true), is_v4(false)]);
    let missing: Vec<String> = wanted
        .filter(|(key, is_wanted)| *is_wanted && !facts.set.contains(key))
        .map(|(key, _)| key.replace('/', "."))
        .collect();
    if missing.is_empty() {
        return right("forwarding", "packets of other hosts are forwarded".into());
    }
    let missing = missing.join(" and ");
    wrong(
        "forwarding",
        format!("{missing} is 0: packets of other hosts are not forwarded"),
        "set it to 1, unless this host is its own gateway and no other one's".into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "table inet anabranch_gateway {\n\tchain prerouting {\n\t}\n}\n";
    const LOOKUP: &str = "7707:\tfrom all fwmark 0x2000000/0x2000000 lookup 7707\n";

    fn config(more: &str) -> GatewayConfig {
        let text = format!(
            "networks = [\"10.1.0.0/24\"]\n{more}\n[[site]]\nname = \"b\"\n\
             networks = [\"10.2.0.0/24\"]\n[[background]]\nports = [873]\n"
        );
        text.parse().expect("a file")
    }

    fn sound() -> SystemFacts {
        SystemFacts {
            tun: None,
            ruleset: Ok(RULES.into()),
            lookups: [LOOKUP.into(), LOOKUP.into()],
            set: vec![FORWARDING[0]],
            legacy: String::new(),
            has_cgroups: false,
        }
    }

    /// The subjects of what is wrong.
    fn wrongs(config: &GatewayConfig, facts: &SystemFacts) -> Vec<&'static str> {
        let all = judge(config, facts);
        all.iter().filter(|found| found.remedy.is_some()).map(|found| found.subject).collect()
    }

    fn with_rules(more: &str) -> SystemFacts {
        SystemFacts { ruleset: Ok(format!("{RULES}{more}")), ..sound() }
    }

    #[test]
    fn a_sound_system_has_nothing_to_mend() {
        assert_eq!(wrongs(&config(""), &sound()), [""; 0]);
        assert_eq!(judge(&config(""), &sound()).len(), 8);
    }

    #[test]
    fn what_is_missing_is_told() {
        let nothing = SystemFacts {
            tun: Some("Permission denied".into()),
            ruleset: Err("nft list ruleset: No such file or directory".into()),
            lookups: [String::new(), String::new()],
            set: vec![STRICT],
            ..sound()
        };
        let expected = ["TUN", "nftables", "routes", "forwarding", "rp_filter"];
        assert_eq!(wrongs(&config(""), &nothing), expected);
        let bare = SystemFacts { ruleset: Ok(String::new()), ..sound() };
        assert_eq!(wrongs(&config(""), &bare), ["rules"]);
        let other = SystemFacts { lookups: [LOOKUP.into(), String::new()], ..sound() };
        assert_eq!(wrongs(&config(""), &other), ["routes"]);
        let v6 = "networks = [\"10.1.0.0/24\", \"2001:db8:1::/48\"]\n[[site]]\nname = \"b\"\n\
                  networks = [\"10.2.0.0/24\"]\n[[background]]\nports = [873]\n";
        assert_eq!(wrongs(&v6.parse().expect("a file"), &sound()), ["forwarding"]);
    }

    #[test]
    fn programs_by_cgroup_need_cgroups_that_nft_knows() {
        let config = config("[[background]]\ncgroup = \"system.slice/backup.service\"");
        assert_eq!(wrongs(&config, &sound()), ["cgroups"]);
        let unified = SystemFacts { has_cgroups: true, ..sound() };
        assert_eq!(wrongs(&config, &unified), [""; 0]);
        assert_eq!(judge(&config, &unified).len(), 9);
    }

    #[test]
    fn rules_of_others_that_are_in_the_way_are_told() {
        let nat = "table ip nat {\n\t\toifname \"eth0\" masquerade\n}\n";
        assert_eq!(wrongs(&config(""), &with_rules(nat)), ["NAT"]);
        assert_eq!(wrongs(&config("fail = \"closed\""), &with_rules(nat)), [""; 0]);
        let legacy = SystemFacts { legacy: "filter\nnat\n".into(), ..sound() };
        assert_eq!(wrongs(&config(""), &legacy), ["NAT"]);
        let flows = "table inet f {\n\t\tip protocol tcp flow add @f\n}\n";
        assert_eq!(wrongs(&config(""), &with_rules(flows)), ["flowtables"]);
        let chain = "type filter hook forward priority filter; policy drop;\n";
        assert_eq!(wrongs(&config(""), &with_rules(chain)), ["firewall"]);
        let half = format!("{chain}iifname \"anabranch0\" accept\n");
        assert_eq!(wrongs(&config(""), &with_rules(&half)), ["firewall"]);
        let both = format!("{half}oifname \"anabranch0\" accept\n");
        assert_eq!(wrongs(&config(""), &with_rules(&both)), [""; 0]);
    }
}
