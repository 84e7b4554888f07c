//! Rules with which the kernel marks background connections and hands their packets over: nftables,
//! and a route by mark.
//!
//! A connection is background if its SYN matches: that is kept in its mark of connection tracking.
//! What comes out of the gateway's device belongs to such a connection, and is never handed over
//! again. The table of routes has a route for each network of a connected site, which the gateway
//! keeps and the kernel removes with the device: without it marked packets take the main table.

use std::fmt::Write as _;

use net::programs::execute;
use reach::Network;

use crate::config::{Background, Fail, GatewayConfig, PortSpan};

/// The name of the table.
pub(crate) const TABLE: &str = "anabranch_gateway";
/// The priority of the rule: before the main table.
pub(crate) const PRIORITY: u32 = 7_707;
/// The metric of routes for what no gateway takes; that of the gateway's own is smaller.
const WORST: u32 = 4_278_198_272;

/// The rules of a gateway.
#[derive(Clone, Debug)]
pub struct Rules<'a>(&'a GatewayConfig);

impl<'a> Rules<'a> {
    /// The rules of a file.
    #[must_use]
    pub fn new(config: &'a GatewayConfig) -> Rules<'a> {
        Rules(config)
    }

    /// The table for `nft -f`, in place of an earlier one.
    fn nft(&self) -> String {
        let GatewayConfig { device, mark, background, .. } = self.0;
        let begins = format!(
            "tcp flags & (fin | syn | rst | ack) == syn ct state new ct mark set ct mark | \
             {mark:#x}"
        );
        let (mut forwarded, mut own) = (String::new(), String::new());
        for one in background {
            for matched in matches(one) {
                let line = format!("        {matched} {begins}\n");
                // Programs of other hosts have no cgroup here.
                if one.cgroup.is_none() {
                    forwarded.push_str(&line);
                }
                own.push_str(&line);
            }
        }
        let handed = format!(
            "meta l4proto tcp ct mark & {mark:#x} == {mark:#x} meta mark set meta mark | \
             {mark:#x}"
        );
        format!(
            "add table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain prerouting {{
        type filter hook prerouting priority mangle; policy accept;
        iifname \"{device}\" ct mark set ct mark | {mark:#x} accept
        fib daddr type local return
{forwarded}        {handed}
    }}
    chain output {{
        type route hook output priority mangle; policy accept;
        fib daddr type local return
{own}        {handed}
    }}
    chain postrouting {{
        type filter hook postrouting priority mangle; policy accept;
        oifname \"{device}\" tcp flags syn tcp option maxseg size set rt mtu
    }}
}}
"
        )
    }

    /// The arguments of `ip` that add or delete what leads marked packets.
    fn routes(&self, verb: &str) -> Vec<String> {
        let GatewayConfig { mark, table, fail, sites, .. } = self.0;
        let mut commands = Vec::new();
        for family in ["-4", "-6"] {
            commands.push(format!(
                "{family} rule {verb} fwmark {mark:#x}/{mark:#x} lookup {table} priority \
                 {PRIORITY}"
            ));
        }
        if *fail == Fail::Closed {
            for network in sites.iter().flat_map(|site| &site.networks) {
                let family = if network.address().is_ipv4() { "-4" } else { "-6" };
                commands.push(format!(
                    "{family} route {verb} unreachable {network} metric {WORST} table {table}"
                ));
            }
        }
        commands
    }

    /// A shell script that installs the rules, with the lines that remove them.
    #[must_use]
    pub fn script(&self) -> String {
        let mut script = format!("#!/bin/sh -e\nnft -f - <<'END'\n{}END\n", self.nft());
        for command in self.routes("add") {
            writeln!(script, "ip {command}").expect("a string takes it");
        }
        script.push_str("\n# To remove them:\n");
        writeln!(script, "# nft delete table inet {TABLE}").expect("a string takes it");
        for command in self.routes("del") {
            writeln!(script, "# ip {command}").expect("a string takes it");
        }
        script
    }

    /// Installs the rules, in place of earlier ones.
    ///
    /// # Errors
    /// What nft or ip said. Then none is left.
    pub fn install(&self) -> Result<(), String> {
        self.remove_routes();
        let installed = execute("nft", &["-f", "-"], &self.nft())
            .and_then(|()| self.routes("add").iter().try_for_each(|command| ip(command)));
        if installed.is_err() {
            let _ = self.remove();
        }
        installed
    }

    /// Removes the rules.
    ///
    /// # Errors
    /// What nft said, as if there are none.
    pub fn remove(&self) -> Result<(), String> {
        self.remove_routes();
        execute("nft", &["delete", "table", "inet", TABLE], "")
    }

    fn remove_routes(&self) {
        for command in self.routes("del") {
            // Each command removes one of several; most often there is none at all.
            if let Err(error) = ip(&command) {
                tracing::debug!(%error, "no route to remove");
            }
        }
    }
}

fn ip(command: &str) -> Result<(), String> {
    let arguments: Vec<&str> = command.split(' ').collect();
    execute("ip", &arguments, "")
}

/// What the SYN of a background connection matches: a line for each family that it may have.
fn matches(background: &Background) -> Vec<String> {
    let Background { ports, from, to, dscp, cgroup } = background;
    let mut lines = Vec::new();
    let of = |all: &[Network], is_v4: bool| -> Vec<Network> {
        all.iter().filter(|network| network.address().is_ipv4() == is_v4).copied().collect()
    };
    for (is_v4, family, name) in [(true, "ip", "ipv4"), (false, "ip6", "ipv6")] {
        let (own, other) = (of(from, is_v4), of(to, is_v4));
        if !from.is_empty() && own.is_empty() || !to.is_empty() && other.is_empty() {
            continue;
        }
        let mut line = format!("meta nfproto {name}");
        for (side, networks) in [("saddr", own), ("daddr", other)] {
            if !networks.is_empty() {
                let list: Vec<String> = networks.iter().map(Network::to_string).collect();
                write!(line, " {family} {side} {{ {} }}", list.join(", ")).expect("a string");
            }
        }
        if let Some(dscp) = dscp {
            write!(line, " {family} dscp {dscp}").expect("a string takes it");
        }
        if let Some(cgroup) = cgroup {
            let level = cgroup.split('/').filter(|part| !part.is_empty()).count();
            write!(line, " socket cgroupv2 level {level} \"{cgroup}\"").expect("a string");
        }
        if !ports.is_empty() {
            let list: Vec<String> = ports.iter().copied().map(nft_port).collect();
            write!(line, " tcp dport {{ {} }}", list.join(", ")).expect("a string takes it");
        }
        lines.push(line);
    }
    lines
}

fn nft_port(PortSpan { first, last }: PortSpan) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> GatewayConfig {
        let text = format!(
            "{more}
            networks = [\"10.1.0.0/24\"]
            [[site]]
            name = \"berlin\"
            networks = [\"10.2.0.0/24\", \"fd00:2::/64\"]
            [[background]]
            ports = [873, \"9000-9100\"]
            to = [\"10.2.0.0/24\"]
            [[background]]
            dscp = 8
            cgroup = \"system.slice/backup.service\""
        );
        text.parse().expect("it is right")
    }

    #[test]
    fn rules_mark_what_was_named_and_nothing_else() {
        let script = Rules::new(&config("")).script();
        let begins = "tcp flags & (fin | syn | rst | ack) == syn ct state new \
                      ct mark set ct mark | 0x2000000";
        let ports = format!(
            "        meta nfproto ipv4 ip daddr {{ 10.2.0.0/24 }} tcp dport {{ 873, 9000-9100 }} \
             {begins}\n"
        );
        let program = |family, name| {
            format!(
                "        meta nfproto {name} {family} dscp 8 socket cgroupv2 level 2 \
                 \"system.slice/backup.service\" {begins}\n"
            )
        };
        let handed = "        meta l4proto tcp ct mark & 0x2000000 == 0x2000000 \
                      meta mark set meta mark | 0x2000000\n";
        let expected = format!(
            "        fib daddr type local return\n{ports}{handed}    }}\n    chain output {{
        type route hook output priority mangle; policy accept;
        fib daddr type local return\n{ports}{}{}{handed}    }}\n",
            program("ip", "ipv4"),
            program("ip6", "ipv6"),
        );
        assert!(script.contains(&expected), "{script}");
        for line in [
            "        iifname \"anabranch0\" ct mark set ct mark | 0x2000000 accept\n",
            "        oifname \"anabranch0\" tcp flags syn tcp option maxseg size set rt mtu\n",
            "\nip -4 rule add fwmark 0x2000000/0x2000000 lookup 7707 priority 7707\n",
            "\n# ip -6 rule del fwmark 0x2000000/0x2000000 lookup 7707 priority 7707\n",
        ] {
            assert!(script.contains(line), "{line}: {script}");
        }
        assert!(!script.contains("unreachable"), "it fails open");
    }

    #[test]
    fn what_fails_closed_has_nowhere_to_go() {
        let script = Rules::new(&config("fail = \"closed\"")).script();
        for line in [
            "\nip -4 route add unreachable 10.2.0.0/24 metric 4278198272 table 7707\n",
            "\nip -6 route add unreachable fd00:2::/64 metric 4278198272 table 7707\n",
        ] {
            assert!(script.contains(line), "{line}: {script}");
        }
    }
}
