//! The file of a gateway.

use std::net::IpAddr;
use std::str::FromStr;

use peer::{RelaySpec, Remote};
use reach::Network;
use serde::Deserialize;
use wire::gateway::MAX_NETWORKS;

/// The name of the device, if the file has none.
const DEVICE: &str = "anabranch0";
/// The bit that marks packets and connections, if the file has none.
const MARK: u32 = 0x0200_0000;
/// The number of the routing table, if the file has none: that of the default port.
const TABLE: u32 = 7_707;
/// The sites of one gateway.
const MOST_SITES: usize = 64;
/// The longest name that a device may have.
const LONGEST_DEVICE: usize = 15;

/// What a gateway is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// The TUN device.
    pub device: String,
    /// One bit.
    pub mark: u32,
    /// The routing table of marked packets.
    pub table: u32,
    /// Where packets go while a site's gateway does not answer.
    pub fail: Fail,
    /// The addresses at which it listens; none: all.
    pub listen: Vec<IpAddr>,
    /// The port at which it listens; `None`: the usual one.
    pub port: Option<u16>,
    /// Where it serves metrics: a port of loopback, or an address with one.
    pub metrics: Option<String>,
    /// The networks behind this gateway.
    pub networks: Vec<Network>,
    /// The other sites, one or more.
    pub sites: Vec<SiteConfig>,
    /// What is background; none: nothing begins here.
    pub background: Vec<Background>,
}

/// Where packets go while a site's gateway does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fail {
    /// The route that they would have without gateways.
    #[default]
    Open,
    /// Nowhere.
    Closed,
}

/// Another site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Its name, for people: that of its gateway among the authorized peers, or its fingerprint.
    pub name: String,
    /// Where its gateway listens; `None`: it dials this one.
    pub at: Option<Remote>,
    /// Relays to it, over each of which there are paths beside the direct ones.
    pub relays: Vec<RelaySpec>,
    /// The networks behind it. It is believed no others.
    pub networks: Vec<Network>,
}

/// Connections that are background: those that fulfil everything that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Background {
    /// Ports of the hosts that are connected to; none: all.
    pub ports: Vec<PortSpan>,
    /// Hosts and networks that connect; none: all.
    pub from: Vec<Network>,
    /// Hosts and networks that are connected to; none: all.
    pub to: Vec<Network>,
    /// The code point of differentiated services (RFC 2474).
    pub dscp: Option<u8>,
    /// Of programs of this host, those in this cgroup.
    pub cgroup: Option<String>,
}

/// A port, or a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpan {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl FromStr for PortSpan {
    type Err = String;

    /// `873` or `9000-9100`.
    fn from_str(text: &str) -> Result<PortSpan, String> {
        let bad = || format!("'{text}' is no port, and no range like 9000-9100");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0_u16);
        let (first, last) = port(first).zip(port(last)).ok_or_else(bad)?;
        if first <= last { Ok(PortSpan { first, last }) } else { Err(bad()) }
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    device: Option<String>,
    mark: Option<u32>,
    table: Option<u32>,
    #[serde(default)]
    fail: Fail,
    #[serde(default)]
    listen: Vec<String>,
    port: Option<u16>,
    metrics: Option<WrittenPort>,
    networks: Vec<String>,
    #[serde(default)]
    site: Vec<WrittenSite>,
    #[serde(default)]
    background: Vec<WrittenBackground>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSite {
    name: String,
    at: Option<String>,
    #[serde(default)]
    relays: Vec<String>,
    networks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBackground {
    #[serde(default)]
    ports: Vec<WrittenPort>,
    #[serde(default)]
    from: Vec<String>,
    #[serde(default)]
    to: Vec<String>,
    dscp: Option<u8>,
    cgroup: Option<String>,
}

/// A port as a number, or a text with a range or an address.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenPort {
    Number(u16),
    Text(String),
}

impl WrittenPort {
    fn text(self) -> String {
        match self {
            WrittenPort::Number(number) => number.to_string(),
            WrittenPort::Text(text) => text,
        }
    }
}

impl FromStr for GatewayConfig {
    type Err = String;

    /// Reads a file. Where the error is one of its form it begins with "line N: ".
    fn from_str(text: &str) -> Result<GatewayConfig, String> {
        let written: Written = toml::from_str(text).map_err(|error| {
            let before = text.bytes().take(error.span().map_or(0, |span| span.start));
            let line = before.filter(|octet| *octet == b'\n').count() + 1;
            format!("line {line}: {}", error.message())
        })?;
        let config = GatewayConfig {
            device: written.device.unwrap_or_else(|| DEVICE.into()),
            mark: written.mark.unwrap_or(MARK),
            table: written.table.unwrap_or(TABLE),
            fail: written.fail,
            listen: written.listen.iter().map(|text| address(text)).collect::<Result<_, _>>()?,
            port: written.port,
            metrics: written.metrics.map(WrittenPort::text),
            networks: networks("networks", &written.networks)?,
            sites: written.site.into_iter().map(site).collect::<Result<_, _>>()?,
            background: written.background.into_iter().map(background).collect::<Result<_, _>>()?,
        };
        config.check()?;
        Ok(config)
    }
}

impl GatewayConfig {
    fn check(&self) -> Result<(), String> {
        let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
        let device = self.device.as_bytes();
        if device.is_empty()
            || device.len() > LONGEST_DEVICE
            || !device.iter().all(|octet| is_plain(*octet))
            || device[0] == b'.'
        {
            return Err(format!(
                "device: '{}' is no name of a device: up to {LONGEST_DEVICE} letters and digits",
                self.device
            ));
        }
        if self.mark.count_ones() != 1 {
            return Err(format!("mark: {:#x} is not one bit, as {MARK:#x} is", self.mark));
        }
        if self.table == 0 || (253..=255).contains(&self.table) {
            return Err(format!("table: {} is one of the system's", self.table));
        }
        if self.sites.is_empty() {
            return Err("there is no [[site]]: name the other site, its networks, and the \
                        address of its gateway"
                .into());
        }
        if self.sites.len() > MOST_SITES {
            return Err(format!("there are more than {MOST_SITES} sites"));
        }
        for (at, site) in self.sites.iter().enumerate() {
            let name = &site.name;
            if self.sites[..at].iter().any(|other| other.name == *name) {
                return Err(format!("site: there are two of the name '{name}'"));
            }
            for network in &site.networks {
                if let Some(own) = self.networks.iter().find(|own| own.overlaps(network)) {
                    return Err(format!(
                        "site '{name}': {network} has addresses of {own}, which is behind this \
                         gateway"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn networks(key: &str, written: &[String]) -> Result<Vec<Network>, String> {
    if written.is_empty() {
        return Err(format!("{key}: name at least one network, as in [\"10.1.0.0/24\"]"));
    }
    if written.len() > MAX_NETWORKS {
        return Err(format!("{key}: there are more than {MAX_NETWORKS}"));
    }
    any_networks(key, written)
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("listen: '{text}' is no address"))
}

fn any_networks(key: &str, written: &[String]) -> Result<Vec<Network>, String> {
    let read = |text: &String| text.parse().map_err(|why: String| format!("{key}: {why}"));
    written.iter().map(read).collect()
}

fn site(written: WrittenSite) -> Result<SiteConfig, String> {
    let WrittenSite { name, at, relays, networks: behind } = written;
    let key = format!("site '{name}': networks");
    let at = at.map(|text| {
        text.parse::<Remote>().map_err(|why| format!("site '{name}': at = '{text}': {why}"))
    });
    let at = at.transpose()?;
    if at.is_none() && !relays.is_empty() {
        return Err(format!(
            "site '{name}': relays: the side that dials, which has at =, names them"
        ));
    }
    let relay = |text: &String| {
        let read = text.parse::<RelaySpec>();
        read.map_err(|why| format!("site '{name}': relays: '{text}': {why}"))
    };
    let relays = relays.iter().map(relay).collect::<Result<_, _>>()?;
    Ok(SiteConfig { at, relays, networks: networks(&key, &behind)?, name })
}

fn background(written: WrittenBackground) -> Result<Background, String> {
    let WrittenBackground { ports, from, to, dscp, cgroup } = written;
    let port = |port: WrittenPort| port.text().parse();
    let ports = ports.into_iter().map(port).collect::<Result<Vec<PortSpan>, String>>();
    let read = Background {
        ports: ports.map_err(|why| format!("background: ports: {why}"))?,
        from: any_networks("background: from", &from)?,
        to: any_networks("background: to", &to)?,
        dscp,
        cgroup,
    };
    if let Some(dscp) = read.dscp.filter(|dscp| *dscp > 63) {
        return Err(format!("background: dscp: {dscp} is more than 63"));
    }
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_./@:".contains(&octet);
    if let Some(cgroup) = &read.cgroup
        && (cgroup.is_empty() || cgroup.starts_with('/') || !cgroup.bytes().all(is_plain))
    {
        return Err(format!(
            "background: cgroup: '{cgroup}' is no path below /sys/fs/cgroup, as \
             system.slice/backup.service is"
        ));
    }
    if read == Background::default() {
        return Err("background: everything would be: name ports, from, to, dscp or cgroup".into());
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        listen = [\"192.0.2.1\"]
        port = 7709
        metrics = 9707
        networks = [\"10.1.0.0/24\", \"fd00:1::/64\"]

        [[site]]
        name = \"berlin\"
        at = \"gw.berlin.example\"
        networks = [\"10.2.0.0/24\"]

        [[background]]
        ports = [873, \"9000-9100\"]
        from = [\"10.1.0.7\"]
    ";

    fn read(text: &str) -> Result<GatewayConfig, String> {
        text.parse()
    }

    #[test]
    fn a_file_says_what_is_where() {
        let config = read(FILE).expect("it is right");
        assert_eq!((config.device.as_str(), config.mark), ("anabranch0", 0x0200_0000));
        assert_eq!((config.fail, config.table, config.networks.len()), (Fail::Open, 7_707, 2));
        assert_eq!(
            (&config.listen[..], config.port),
            (&["192.0.2.1".parse().unwrap()][..], Some(7_709))
        );
        assert_eq!(config.metrics.as_deref(), Some("9707"));
        let site = &config.sites[0];
        assert_eq!(
            site.at.as_ref().map(ToString::to_string).as_deref(),
            Some("gw.berlin.example:7707")
        );
        assert_eq!(site.networks[0].to_string(), "10.2.0.0/24");
        let Background { ports, from, dscp, .. } = &config.background[0];
        let spans = [PortSpan { first: 873, last: 873 }, PortSpan { first: 9_000, last: 9_100 }];
        assert_eq!((&ports[..], from[0].to_string().as_str()), (&spans[..], "10.1.0.7"));
        assert_eq!(*dscp, None);
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, why) in [
            ("networks = [\"10.1", "networks = [\"10.1.0.0/33\", \"10.1", "no network like"),
            ("networks = [\"10.1.0.0/24\", \"fd00:1::/64\"]", "networks = []", "at least one"),
            ("name = \"berlin\"", "nam = \"berlin\"", ": unknown field `nam`, expected"),
            ("10.2.0.0/24", "10.0.0.0/8", "which is behind this gateway"),
            ("873", "0", "'0' is no port"),
            ("\"192.0.2.1\"", "\"gw.example\"", "listen: 'gw.example' is no address"),
            ("= 7709", "= 77090", "line 3"),
            ("9000-9100", "9100-9000", "is no port"),
            ("gw.berlin.example", "gw berlin", "site 'berlin': at = 'gw berlin'"),
            (
                "at = \"gw.berlin.example\"",
                "relays = [\"r1.example\"]",
                "the side that dials, which has at =, names them",
            ),
            (
                "at = \"gw.berlin.example\"",
                "at = \"gw.berlin.example\"\nrelays = [\"r1 example\"]",
                "site 'berlin': relays: 'r1 example'",
            ),
            ("        networks = [\"10.1", "mark = 3\nnetworks = [\"10.1", "0x3 is not one bit"),
            (
                "        networks = [\"10.1",
                "table = 254\nnetworks = [\"10.1",
                "one of the system's",
            ),
            ("        networks = [\"10.1", "device = \"a b\"\nnetworks = [\"10.1", "no name of"),
            ("from = [\"10.1.0.7\"]", "dscp = 64", "more than 63"),
            ("from = [\"10.1.0.7\"]", "cgroup = \"a\\\" accept\"", "no path below"),
        ] {
            let text = FILE.replacen(from, to, 1);
            let error = read(&text).expect_err(to);
            assert!(error.contains(why) && !error.contains('\n'), "{to}: {error}");
        }
        assert!(read("networks = [\"10.1.0.0/24\"]").expect_err("no site").contains("[[site]]"));
        let empty =
            FILE.replace("ports = [873, \"9000-9100\"]", "").replace("from = [\"10.1.0.7\"]", "");
        assert!(read(&empty).expect_err("all").contains("everything would be"));
    }
}
