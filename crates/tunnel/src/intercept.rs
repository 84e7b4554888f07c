//! Rules with which the kernel hands over connections that go elsewhere: TPROXY of nftables, and a
//! route by mark (Linux, Documentation/networking/tproxy.rst).

use std::fmt::Write as _;
use std::net::IpAddr;
use std::str::FromStr;

use net::programs;

use crate::{Place, TunnelError};

/// The mark of packets that are handed over, and the number of the routing table for them, plus the
/// port: several tunnels may intercept at a time. It has not the bit of gateways (`mark` in their
/// file), whose packets have a routing table of their own.
const MARK: u32 = 0x7800_0000;

/// Destinations whose connections are handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    network: IpAddr,
    bits: u8,
    /// First and last; `None`: all.
    ports: Option<(u16, u16)>,
}

/// The rules for a listener.
#[derive(Clone, Debug)]
pub struct Rules {
    port: u16,
    destinations: Vec<Destination>,
}

/// Rules that are installed; dropped, they are removed.
#[derive(Debug)]
pub struct Installed(Rules);

impl FromStr for Destination {
    type Err = String;

    /// `10.20.0.0/16`, `10.20.0.7:443`, `10.20.0.0/16:80-90`, `[2001:db8::/32]:443`.
    fn from_str(text: &str) -> Result<Destination, String> {
        let bad = || format!("'{text}' is not a network, or NETWORK:PORT, as in 10.20.0.0/16:443");
        let (network, ports) = if let Some(rest) = text.strip_prefix('[') {
            let (network, rest) = rest.split_once(']').ok_or_else(bad)?;
            let ports = match rest.strip_prefix(':') {
                Some(ports) => Some(ports),
                None if rest.is_empty() => None,
                None => return Err(bad()),
            };
            (network, ports)
        } else {
            text.split_once(':').map_or((text, None), |(network, ports)| (network, Some(ports)))
        };
        let (address, bits) =
            network.split_once('/').map_or((network, None), |(a, b)| (a, Some(b)));
        let network: IpAddr = address.parse().map_err(|_| bad())?;
        let width = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), |bits| bits.parse().map_err(|_| bad()))?;
        let port = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
            is_number.then(|| text.parse().ok()).flatten().filter(|port| *port != 0_u16)
        };
        let ports = match ports {
            None | Some("*") => None,
            Some(ports) => {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                let range = port(first).zip(port(last)).filter(|(first, last)| first <= last);
                Some(range.ok_or_else(bad)?)
            }
        };
        if bits > width {
            return Err(bad());
        }
        Ok(Destination { network, bits, ports })
    }
}

impl Rules {
    /// Rules that hand connections to these destinations to a listener at a port of loopback.
    ///
    /// # Errors
    /// A message, if the listener is elsewhere, or there is no destination.
    pub fn new(place: &Place, destinations: Vec<Destination>) -> Result<Rules, String> {
        let Place::Loopback(port @ 1..) = *place else {
            return Err(format!("--transparent {place}: rules need a port of loopback"));
        };
        if destinations.is_empty() {
            return Err("name what to intercept: --for 10.20.0.0/16:443, for example".into());
        }
        Ok(Rules { port, destinations })
    }

    fn table(&self) -> String {
        format!("anabranch_{}", self.port)
    }

    fn mark(&self) -> u32 {
        MARK + u32::from(self.port)
    }

    /// The table for `nft -f`. A connection belongs to the tunnel if its first packet matches: that
    /// is kept in its mark of connection tracking. Packets alone do not show who opened the
    /// connection: answers to hosts of an intercepted network, and connections that were open
    /// before, would be taken and reset. What goes to this host itself is nobody else's.
    fn nft(&self) -> String {
        let (port, mark) = (self.port, self.mark());
        let mut begun = String::new();
        for destination in &self.destinations {
            writeln!(
                begun,
                "        {} tcp flags & (fin | syn | rst | ack) == syn ct state new ct mark set \
                 {mark:#x}",
                destination.matched()
            )
            .expect("a string takes it");
        }
        let taken = format!("meta l4proto tcp ct mark {mark:#x} ct direction original");
        let mut handed = String::new();
        for (family, protocol, own) in [("ip", "ipv4", "127.0.0.1"), ("ip6", "ipv6", "[::1]")] {
            // Sockets that are open already are found by TPROXY itself.
            writeln!(
                handed,
                "        meta nfproto {protocol} {taken} tproxy {family} to {own}:{port} meta mark \
                 set {mark:#x} accept"
            )
            .expect("a string takes it");
        }
        format!(
            "table inet {table} {{
    chain prerouting {{
        type filter hook prerouting priority mangle; policy accept;
        fib daddr type local return
{begun}{handed}    }}
    chain output {{
        type route hook output priority mangle; policy accept;
        fib daddr type local return
{begun}        {taken} meta mark set {mark:#x}
    }}
}}
",
            table = self.table()
        )
    }

    /// The arguments of `ip` that add or delete the routes of marked packets.
    fn routes(&self, verb: &str) -> Vec<Vec<String>> {
        let (mark, table) = (format!("{:#x}", self.mark()), self.mark().to_string());
        let words = |text: String| text.split(' ').map(String::from).collect();
        let mut commands = Vec::new();
        for (family, all) in [("-4", "0.0.0.0/0"), ("-6", "::/0")] {
            let is_used =
                |destination: &Destination| destination.network.is_ipv4() == (family == "-4");
            if self.destinations.iter().any(is_used) {
                commands.push(words(format!("{family} rule {verb} fwmark {mark} lookup {table}")));
                commands
                    .push(words(format!("{family} route {verb} local {all} dev lo table {table}")));
            }
        }
        commands
    }

    /// A shell script that installs the rules, with the lines that remove them.
    #[must_use]
    pub fn script(&self) -> String {
        let mut script = format!("#!/bin/sh -e\nnft -f - <<'END'\n{}END\n", self.nft());
        for command in self.routes("add") {
            writeln!(script, "ip {}", command.join(" ")).expect("a string takes it");
        }
        script.push_str("\n# To remove them:\n");
        writeln!(script, "# nft delete table inet {}", self.table()).expect("a string takes it");
        for command in self.routes("del") {
            writeln!(script, "# ip {}", command.join(" ")).expect("a string takes it");
        }
        script
    }

    /// Installs the rules, in place of those that a killed run has left.
    ///
    /// # Errors
    /// [`TunnelError::Rules`], with what nft or ip said. Then none is left.
    pub fn install(self) -> Result<Installed, TunnelError> {
        let installed = Installed(self);
        installed.remove();
        let Installed(rules) = &installed;
        execute("nft", &["-f", "-"], &rules.nft())?;
        for command in rules.routes("add") {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            execute("ip", &arguments, "")?;
        }
        Ok(installed)
    }
}

/// Runs a program with this input.
fn execute(program: &str, arguments: &[&str], input: &str) -> Result<(), TunnelError> {
    programs::execute(program, arguments, input).map_err(TunnelError::Rules)
}

impl Installed {
    fn remove(&self) {
        let table = self.0.table();
        let delete = execute("nft", &["delete", "table", "inet", &table], "");
        let routes = self.0.routes("del");
        let routes = routes.iter().map(|command| {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            execute("ip", &arguments, "")
        });
        for error in std::iter::once(delete).chain(routes).filter_map(Result::err) {
            tracing::debug!(%error, "no rule to remove");
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Destination {
    /// What its packets match in nft.
    fn matched(&self) -> String {
        let family = if self.network.is_ipv4() { "ip" } else { "ip6" };
        let to = format!("{family} daddr {}/{}", self.network, self.bits);
        match self.ports {
            None => format!("{to} meta l4proto tcp"),
            Some((first, last)) if first == last => format!("{to} tcp dport {first}"),
            Some((first, last)) => format!("{to} tcp dport {first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(place: &str, destinations: &[&str]) -> Result<Rules, String> {
        let destinations = destinations.iter().map(|text| text.parse().expect(text)).collect();
        Rules::new(&place.parse().expect(place), destinations)
    }

    #[test]
    fn rules_hand_over_what_was_named_and_nothing_else() {
        let rules = rules("3129", &["10.20.0.0/16:443", "192.0.2.7", "[2001:db8::/32]:80-90"]);
        let script = rules.unwrap().script();
        let begins =
            "tcp flags & (fin | syn | rst | ack) == syn ct state new ct mark set 0x78000c39";
        let taken = "meta l4proto tcp ct mark 0x78000c39 ct direction original";
        let [first, second, third] = [
            "ip daddr 10.20.0.0/16 tcp dport 443",
            "ip daddr 192.0.2.7/32 meta l4proto tcp",
            "ip6 daddr 2001:db8::/32 tcp dport 80-90",
        ];
        let handed = "meta mark set 0x78000c39 accept";
        let expected = format!(
            "table inet anabranch_3129 {{
    chain prerouting {{
        type filter hook prerouting priority mangle; policy accept;
        fib daddr type local return
        {first} {begins}
        {second} {begins}
        {third} {begins}
        meta nfproto ipv4 {taken} tproxy ip to 127.0.0.1:3129 {handed}
        meta nfproto ipv6 {taken} tproxy ip6 to [::1]:3129 {handed}
    }}
    chain output {{
        type route hook output priority mangle; policy accept;
        fib daddr type local return
        {first} {begins}
        {second} {begins}
        {third} {begins}
        {taken} meta mark set 0x78000c39
    }}
}}
"
        );
        assert!(script.contains(&expected), "{script}");
        for line in [
            "\nip -4 rule add fwmark 0x78000c39 lookup 2013269049\n",
            "\nip -6 route add local ::/0 dev lo table 2013269049\n",
            "\n# nft delete table inet anabranch_3129\n",
            "\n# ip -4 route del local 0.0.0.0/0 dev lo table 2013269049\n",
        ] {
            assert!(script.contains(line), "{line}: {script}");
        }
    }

    #[test]
    fn rules_need_a_port_of_loopback_and_destinations() {
        assert!(rules("3129", &[]).is_err());
        for place in ["0", "*:3129", "192.0.2.7:3129", "./path"] {
            assert!(rules(place, &["192.0.2.7"]).is_err(), "{place}");
        }
        for text in [
            "",
            "host",
            "10.0.0.0/33",
            "10.0.0.0/8:",
            "10.0.0.0/8:0",
            "10.0.0.0/8:9-8",
            "2001:db8::/32",
            "[2001:db8::/32]443",
            "10.0.0.0/8; flush ruleset",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }
}
