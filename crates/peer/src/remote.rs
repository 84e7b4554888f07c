//! A remote host in its written form.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use net::interfaces::interface_index;

use crate::Error;

/// A host that listens: a name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Host name or address literal (without brackets and zone).
    pub host: String,
    /// The zone of a link-local IPv6 address: the name of the interface that leads to it, or the
    /// interface's number (RFC 4007, 11). `None` for every other host.
    pub zone: Option<String>,
    /// TCP port.
    pub port: u16,
}

/// The port used where none is named.
pub const DEFAULT_PORT: u16 = 7707;
/// The ports behind it that a listening host may take where it is taken.
pub const FURTHER_PORTS: u16 = 9;

impl Remote {
    /// The host without its port, as in `--to`: with its zone, without brackets.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match &self.zone {
            Some(zone) => Cow::Owned(format!("{}%{zone}", self.host)),
            None => Cow::Borrowed(&self.host),
        }
    }

    /// The address in its zone, if the host has one. It needs no resolver.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no interface of the zone's name or number, or if the host is no
    /// IPv6 address; [`Error::System`] if the kernel can't be asked.
    pub(crate) fn in_zone(&self) -> Result<Option<SocketAddr>, Error> {
        let Some(zone) = &self.zone else { return Ok(None) };
        let address: Ipv6Addr = self.host.parse().map_err(|_| Error::Usage(zone_error(self)))?;
        let index = interface_index(zone).map_err(|error| match error.source.kind() {
            std::io::ErrorKind::NotFound => Error::Usage(error.to_string()),
            _ => error.into(),
        })?;
        Ok(Some(SocketAddrV6::new(address, self.port, 0, index).into()))
    }
}

impl From<SocketAddr> for Remote {
    /// The host at an address; the zone is the interface's number.
    fn from(address: SocketAddr) -> Remote {
        let zone = match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 && v6.ip().is_unicast_link_local() => {
                Some(v6.scope_id().to_string())
            }
            _ => None,
        };
        Remote { host: address.ip().to_string(), zone, port: address.port() }
    }
}

impl FromStr for Remote {
    type Err = String;

    /// `host`, `host:port`, `192.0.2.1:7707`, `2001:db8::1`, `[2001:db8::1]:7707`, `fe80::1%eth0`,
    /// `[fe80::1%eth0]:7707`.
    fn from_str(text: &str) -> Result<Remote, String> {
        let bad = || format!("'{text}' is not HOST or HOST:PORT");
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or_else(bad)?;
            let address = host.split('%').next().unwrap_or_default();
            address.parse::<IpAddr>().map_err(|_| bad())?;
            match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if port.is_empty() => (host, None),
                None => return Err(bad()),
            }
        } else if text.bytes().filter(|byte| *byte == b':').count() > 1 {
            (text, None)
        } else {
            text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
        };
        let is_plain = |name: &str| {
            let no_part = |c: char| {
                c.is_whitespace() || c.is_control() || matches!(c, ':' | '/' | '%' | '[' | ']')
            };
            !name.is_empty() && !name.contains(no_part)
        };
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| bad()))?;
        let (host, zone) =
            host.split_once('%').map_or((host, None), |(host, zone)| (host, Some(zone)));
        match (host.parse::<IpAddr>(), zone) {
            (Ok(IpAddr::V6(address)), Some(zone)) if address.is_unicast_link_local() => {
                if !is_plain(zone) {
                    return Err(format!("'{text}': '{zone}' is no name of an interface"));
                }
                Ok(Remote { host: address.to_string(), zone: Some(zone.into()), port })
            }
            (_, Some(_)) => Err(zone_error(&text)),
            (Ok(address), None) if address.is_unspecified() => Err(format!(
                "'{text}' stands for all addresses of a host, and is no address to dial; this host \
                 is 'localhost'"
            )),
            (Ok(address), None) => Ok(Remote { host: address.to_string(), zone: None, port }),
            (Err(_), None) if !is_plain(host) => Err(bad()),
            (Err(_), None) => match no_name(host) {
                None => Ok(Remote { host: host.into(), zone: None, port }),
                Some(why) => Err(format!("'{text}' is not HOST or HOST:PORT: {why}")),
            },
        }
    }
}

/// The longest name of a host, and the longest part of it (RFC 1035, 2.3.4).
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// The reason why a host cannot have this name, if there is one.
fn no_name(host: &str) -> Option<&'static str> {
    let mut labels = host.strip_suffix('.').unwrap_or(host).split('.');
    let last = labels.clone().next_back().unwrap_or_default();
    if host.contains('@') {
        return Some("it has no user; 'anabranch cp' takes USER@HOST:PATH");
    }
    // As the resolver would read them, 192.0.2 is 192.0.0.2.
    if last.bytes().all(|byte| byte.is_ascii_digit()) && !last.is_empty() {
        return Some("an IPv4 address has four numbers from 0 to 255");
    }
    if labels.any(|label| label.is_empty() || label.len() > LONGEST_LABEL)
        || host.len() > LONGEST_NAME
    {
        return Some("a name has parts of 1 to 63 characters with dots between them");
    }
    let is_odd = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.".contains(c);
    host.contains(is_odd).then_some("a name has letters, digits, hyphens and dots")
}

fn zone_error(remote: &impl std::fmt::Display) -> String {
    format!("'{remote}': only a link-local IPv6 address has a zone, as in fe80::1%eth0")
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.name(), self.port)
        } else {
            write!(f, "{}:{}", self.name(), self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(host: &str, zone: Option<&str>, port: u16) -> Remote {
        Remote { host: host.into(), zone: zone.map(String::from), port }
    }

    #[test]
    fn hosts_with_and_without_ports() {
        for (text, host, port) in [
            ("host", "host", 7_707),
            ("host:80", "host", 80),
            ("192.0.2.1", "192.0.2.1", 7_707),
            ("192.0.2.1:80", "192.0.2.1", 80),
            ("2001:db8::1", "2001:db8::1", 7_707),
            ("2001:DB8:0::1", "2001:db8::1", 7_707),
            ("[2001:db8::1]", "2001:db8::1", 7_707),
            ("[2001:db8::1]:80", "2001:db8::1", 80),
            ("fe80::1", "fe80::1", 7_707),
        ] {
            assert_eq!(text.parse(), Ok(remote(host, None, port)), "{text}");
        }
    }

    #[test]
    fn link_local_addresses_have_zones() {
        for (text, zone, port) in [
            ("fe80::1%wan0", "wan0", 7_707),
            ("FE80:0::1%wan0", "wan0", 7_707),
            ("[fe80::1%wan0]", "wan0", 7_707),
            ("[fe80::1%wan0]:80", "wan0", 80),
            ("[fe80::1%2]:80", "2", 80),
            ("fe80::1%br-lan.7", "br-lan.7", 7_707),
        ] {
            assert_eq!(text.parse(), Ok(remote("fe80::1", Some(zone), port)), "{text}");
        }
    }

    #[test]
    fn zones_of_other_hosts_are_refused_with_the_reason() {
        for text in [
            "2001:db8::1%wan0",
            "[2001:db8::1%wan0]:80",
            "192.0.2.1%wan0",
            "192.0.2.1%wan0:80",
            "host%wan0",
            "host%wan0:80",
            "ff02::1%wan0",
            "::1%lo",
        ] {
            let why = text.parse::<Remote>().expect_err(text);
            assert!(why.contains(text) && why.contains("only a link-local"), "{text}: {why}");
        }
        for text in ["fe80::1%", "[fe80::1%]:80", "fe80::1%a b", "fe80::1%a%b", "fe80::1%a/b"] {
            let why = text.parse::<Remote>().expect_err(text);
            assert!(why.contains("no name of an interface"), "{text}: {why}");
        }
    }

    #[test]
    fn all_addresses_of_a_host_are_none_to_dial() {
        for text in ["0.0.0.0:7707", "[::]:7707", "0.0.0.0", "::"] {
            let error = text.parse::<Remote>().unwrap_err();
            assert!(error.contains("no address to dial"), "{error}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            ":80",
            "a b",
            "a/b",
            "host:",
            "host:x",
            "host:70000",
            "a:b:c",
            "[host]",
            "[host]:80",
            "[2001:db8::1",
            "[2001:db8::1]80",
            "[2001:db8::1]:",
            "2001:db8::1]:80",
            "fe80::1%wan0:80",
            "[]",
            "me@host",
            "192.0.2.300",
            "192.0.2",
            "7707",
            "host..example",
            ".",
            ".example",
            "nas!",
            "$HOST",
            "nas,eth0",
        ] {
            assert!(text.parse::<Remote>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let hosts = [
            ("host", &[None][..]),
            ("192.0.2.1", &[None]),
            ("2001:db8::1", &[None]),
            ("::1", &[None]),
            ("fe80::1", &[None, Some("wan0"), Some("2"), Some("br-lan.7"), Some("wlp0s20f3")]),
            ("febf:ffff::ffff", &[None, Some("lo")]),
        ];
        for (host, zones) in hosts {
            for zone in zones {
                for port in [1, 80, DEFAULT_PORT, u16::MAX] {
                    let written = remote(host, *zone, port);
                    assert_eq!(written.to_string().parse(), Ok(written.clone()), "{written}");
                    let named = remote(host, *zone, DEFAULT_PORT);
                    assert_eq!(written.name().parse(), Ok(named), "{written}");
                }
            }
        }
    }

    #[test]
    fn addresses_keep_their_scope() {
        let link_local = SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, 2);
        assert_eq!(Remote::from(SocketAddr::from(link_local)), remote("fe80::1", Some("2"), 80));
        let global = SocketAddrV6::new("2001:db8::1".parse().unwrap(), 80, 0, 2);
        assert_eq!(Remote::from(SocketAddr::from(global)), remote("2001:db8::1", None, 80));
    }

    #[test]
    fn a_zone_is_an_interface() {
        let found = remote("fe80::1", Some("lo"), 80).in_zone().unwrap().unwrap();
        let SocketAddr::V6(found) = found else { panic!("IPv6") };
        // The loopback is the first interface of every network namespace.
        assert_eq!((found.scope_id(), found.port()), (1, 80));
        assert_eq!(remote("fe80::1", Some("1"), 80).in_zone().unwrap(), Some(found.into()));
        assert_eq!(remote("fe80::1", None, 80).in_zone().unwrap(), None);
        for wrong in [remote("fe80::1", Some("no-such"), 80), remote("host", Some("lo"), 80)] {
            let error = wrong.in_zone().unwrap_err();
            assert!(matches!(error, Error::Usage(_)), "{error}");
        }
        let unknown = remote("fe80::1", Some("no-such"), 80).in_zone().unwrap_err().to_string();
        assert!(unknown.contains("'no-such'") && unknown.contains("lo"), "{unknown}");
    }
}
