//! Rules with which the kernel marks background connections and hands their packets over: nftables,
//! and a route by mark.
//!
//! A connection is background if its SYN matches: that is kept in its mark of connection tracking.
//! What comes out of the gateway's device belongs to such a connection, and is never handed over
//! again. The table of routes has a route for each network of a connected site, which the gateway
//! keeps and the kernel removes with the device: without it marked packets take the main table.
//! Programs by cgroup have a chain of their own, which `programs` fills again.

use std::fmt::Write as _;

use net::programs::execute;
use reach::Network;

use crate::config::{Background, Fail, GatewayConfig, PortSpan};
use crate::programs;

/// The name of the table.
pub(crate) const TABLE: &str = "anabranch_gateway";
/// The chain of programs by cgroup.
const PROGRAMS: &str = "programs";
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

    /// The cgroups of programs that are not there at present: they have no rule.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        programs::named(&self.0.background).filter(|cgroup| !programs::is_there(cgroup))
    }

    /// The table for `nft -f`, in place of an earlier one.
    fn nft(&self) -> String {
        let GatewayConfig { device, mark, background, .. } = self.0;
        let mut forwarded = String::new();
        for one in background.iter().filter(|one| one.cgroup.is_none()) {
            for line in marking(*mark, one) {
                writeln!(forwarded, "        {line}").expect("a string takes it");
            }
        }
        let mut own = String::new();
        for line in of_programs(*mark, background) {
            writeln!(own, "        {line}").expect("a string takes it");
        }
        for cgroup in self.absent() {
            writeln!(own, "        # {cgroup} is not there: a gateway adds its rule when it is")
                .expect("a string takes it");
        }
        let handed = format!(
            "meta l4proto tcp ct mark & {mark:#x} == {mark:#x} meta mark set meta mark | \
             {mark:#x}"
        );
        format!(
            "add table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
    chain {PROGRAMS} {{
{own}    }}
    chain prerouting {{
        type filter hook prerouting priority mangle; policy accept;
        iifname \"{device}\" ct mark set ct mark | {mark:#x} accept
        fib daddr type local return
{forwarded}        {handed}
    }}
    chain output {{
        type route hook output priority mangle; policy accept;
        fib daddr type local return
{forwarded}        jump {PROGRAMS}
        {handed}
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

    /// Puts the rules of a file that has changed in place of those that are installed, at once:
    /// nothing is without rules meanwhile. The device, the mark and the table are the same.
    ///
    /// # Errors
    /// What nft said. Then those before stay.
    pub fn renew(&self) -> Result<(), String> {
        execute("nft", &["-f", "-"], &self.nft())?;
        for command in self.routes("add") {
            if let Err(error) = ip(&command) {
                tracing::debug!(%error, "it is there");
            }
        }
        Ok(())
    }

    /// Removes the rules, if there are any.
    ///
    /// # Errors
    /// What nft said.
    pub fn remove(&self) -> Result<(), String> {
        self.remove_routes();
        // What is there, or has just been made.
        execute(
            "nft",
            &["-f", "-"],
            &format!("add table inet {TABLE}\ndelete table inet {TABLE}\n"),
        )
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

/// The rules that mark what begins a background connection.
fn marking(mark: u32, one: &Background) -> Vec<String> {
    let begins = format!(
        "tcp flags & (fin | syn | rst | ack) == syn ct state new ct mark set ct mark | {mark:#x}"
    );
    matches(one).into_iter().map(|matched| format!("{matched} {begins}")).collect()
}

/// Those of programs whose cgroups are there; programs of other hosts have none here.
fn of_programs(mark: u32, background: &[Background]) -> Vec<String> {
    let is_there = |one: &&Background| one.cgroup.as_deref().is_some_and(programs::is_there);
    background.iter().filter(is_there).flat_map(|one| marking(mark, one)).collect()
}

/// What has `nft -f` fill the chain of programs again.
pub(crate) fn refilled(mark: u32, background: &[Background]) -> String {
    let mut text = format!("flush chain inet {TABLE} {PROGRAMS}\n");
    for line in of_programs(mark, background) {
        writeln!(text, "add rule inet {TABLE} {PROGRAMS} {line}").expect("a string takes it");
    }
    text
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
            cgroup = \"anabranch-none.slice/backup.service\""
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
        let handed = "        meta l4proto tcp ct mark & 0x2000000 == 0x2000000 \
                      meta mark set meta mark | 0x2000000\n";
        let expected = format!(
            "        fib daddr type local return\n{ports}{handed}    }}\n    chain output {{
        type route hook output priority mangle; policy accept;
        fib daddr type local return\n{ports}        jump programs\n{handed}    }}\n",
        );
        assert!(script.contains(&expected), "{script}");
        let absent = "    chain programs {\n        # anabranch-none.slice/backup.service is not \
                      there: a gateway adds its rule when it is\n    }\n";
        assert!(script.contains(absent), "{script}");
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

    /// A rule with a cgroup that is not there is refused by nft, with the whole table.
    #[test]
    fn a_program_is_marked_by_its_cgroup() {
        let mut one = config("").background.pop().expect("there are two");
        let program = |family, name| {
            format!(
                "meta nfproto {name} {family} dscp 8 socket cgroupv2 level 2 \
                 \"anabranch-none.slice/backup.service\" tcp flags & (fin | syn | rst | ack) == \
                 syn ct state new ct mark set ct mark | 0x10"
            )
        };
        assert_eq!(marking(0x10, &one), [program("ip", "ipv4"), program("ip6", "ipv6")]);
        let empty = "flush chain inet anabranch_gateway programs\n";
        assert_eq!(refilled(0x10, std::slice::from_ref(&one)), empty);
        // The folder of the kernel's cgroups themselves is there on each system.
        one.cgroup = Some(".".into());
        assert_eq!(refilled(0x10, &[one]).lines().count(), 3);
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
