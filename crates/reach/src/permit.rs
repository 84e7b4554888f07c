//! What a peer may reach through a tunnel, and where it may have this host listen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::Network;

mod protected;

/// Whether an address is protected: one of this host's own services, of its neighbours on the link,
/// or of a cloud's metadata, in any form.
#[must_use]
pub fn is_protected(address: IpAddr) -> bool {
    protected::has(protected::plain(address))
}

/// Targets that a peer may reach: a list of `HOST:PORTS` with commas. Empty: none.
///
/// A host is a name, `*.` and the end of names, an address, a network like `10.0.0.0/8`, or `*`;
/// ports are a number, two with a hyphen between them, or `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach(Vec<ReachPattern>);

/// Ports at which a peer may have this host listen: a list of `[ADDRESS:]PORTS` with commas. Empty:
/// none. Without an address: on loopback; `*` is every address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenRights(Vec<ListenPattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReachPattern {
    host: HostPattern,
    ports: PortRange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    /// In lower case.
    Name(String),
    /// The end of a name with its dot, in lower case.
    Below(String),
    Network(Network),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ListenPattern {
    place: ListenPlace,
    ports: PortRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenPlace {
    Loopback,
    Everywhere,
    At(IpAddr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PortRange(RangeInclusive<u16>);

impl Reach {
    /// Whether there is no target.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These targets and others.
    #[must_use]
    pub fn and(mut self, others: Reach) -> Reach {
        self.0.extend(others.0);
        self
    }

    /// Whether a peer may have a name resolved, for a connection to this port: an address may be
    /// permitted. A name that is not worth the question is not looked up.
    #[must_use]
    pub fn may_resolve(&self, port: u16, name: &str) -> bool {
        self.at_port(port).any(|host| match host {
            HostPattern::Network(_) => true,
            host => host.is_name(name),
        })
    }

    /// Whether a peer may connect to this address at this port; `name`: what it called the host, if
    /// the address comes from a name.
    #[must_use]
    pub fn permits(&self, name: Option<&str>, address: IpAddr, port: u16) -> bool {
        let address = protected::plain(address);
        let is_protected = protected::has(address);
        self.at_port(port).any(|host| match host {
            HostPattern::Network(network) => {
                network.has(address) && (!is_protected || protected::has_all_of(*network))
            }
            HostPattern::Name(known) if known == "localhost" => {
                address.is_loopback() && name.is_some_and(|name| host.is_name(name))
            }
            HostPattern::Any => !is_protected,
            host => !is_protected && name.is_some_and(|name| host.is_name(name)),
        })
    }

    fn at_port(&self, port: u16) -> impl Iterator<Item = &HostPattern> {
        self.0.iter().filter(move |target| target.ports.0.contains(&port)).map(|known| &known.host)
    }
}

impl ListenRights {
    /// Whether there is no place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These places and others.
    #[must_use]
    pub fn and(mut self, others: ListenRights) -> ListenRights {
        self.0.extend(others.0);
        self
    }

    /// Whether a peer may have this host listen at this address and port.
    #[must_use]
    pub fn permits(&self, address: IpAddr, port: u16) -> bool {
        let address = protected::plain(address);
        self.0.iter().filter(|known| known.ports.0.contains(&port)).any(|known| match known.place {
            ListenPlace::Everywhere => true,
            ListenPlace::Loopback => address.is_loopback(),
            ListenPlace::At(known) => known == address,
        })
    }
}

impl HostPattern {
    fn is_name(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match self {
            HostPattern::Any => true,
            HostPattern::Name(known) => *known == name,
            HostPattern::Below(end) => name.len() > end.len() && name.ends_with(end.as_str()),
            HostPattern::Network(_) => false,
        }
    }
}

impl FromStr for Reach {
    type Err = String;

    fn from_str(text: &str) -> Result<Reach, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Reach)
    }
}

impl FromStr for ListenRights {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenRights, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(ListenRights)
    }
}

impl FromStr for ReachPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<ReachPattern, String> {
        let bad = || format!("'{text}' is not HOST:PORT, HOST:PORT-PORT or HOST:*");
        let (host, ports) = text.rsplit_once(':').ok_or_else(bad)?;
        let ports = ports.parse().map_err(|()| bad())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(network) => HostPattern::Network(network.parse()?),
            None if host == "*" => HostPattern::Any,
            None if host.contains(':') => {
                return Err(format!("'{text}': an IPv6 address is in brackets"));
            }
            None if host.contains('/') || host.parse::<Ipv4Addr>().is_ok() => {
                HostPattern::Network(host.parse()?)
            }
            None => {
                let (is_end, name) =
                    host.strip_prefix("*.").map_or((false, host), |name| (true, name));
                if !wire::tunnel::is_name(name) {
                    return Err(bad());
                }
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                if is_end {
                    HostPattern::Below(format!(".{name}"))
                } else {
                    HostPattern::Name(name)
                }
            }
        };
        Ok(ReachPattern { host, ports })
    }
}

impl FromStr for ListenPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenPattern, String> {
        let bad = || format!("'{text}' is not PORT, PORT-PORT, * or ADDRESS: and one of these");
        let (place, ports) = match text.rsplit_once(':') {
            None => (ListenPlace::Loopback, text),
            Some(("*", ports)) => (ListenPlace::Everywhere, ports),
            Some((address, ports)) => {
                let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let address: IpAddr = match bare {
                    Some(bare) => bare.parse::<Ipv6Addr>().map_err(|_| bad())?.into(),
                    None => address.parse::<Ipv4Addr>().map_err(|_| bad())?.into(),
                };
                let is_every = address.is_unspecified();
                (if is_every { ListenPlace::Everywhere } else { ListenPlace::At(address) }, ports)
            }
        };
        Ok(ListenPattern { place, ports: ports.parse().map_err(|()| bad())? })
    }
}

impl FromStr for PortRange {
    type Err = ();

    fn from_str(text: &str) -> Result<PortRange, ()> {
        if text == "*" {
            return Ok(PortRange(0..=u16::MAX));
        }
        let port = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
            if is_number { text.parse::<u16>().map_err(drop) } else { Err(()) }
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if first <= last { Ok(PortRange(first..=last)) } else { Err(()) }
    }
}

impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, ReachPattern { host, ports }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match host {
                HostPattern::Any => write!(f, "{comma}*:{ports}"),
                HostPattern::Name(name) => write!(f, "{comma}{name}:{ports}"),
                HostPattern::Below(end) => write!(f, "{comma}*{end}:{ports}"),
                HostPattern::Network(network) if network.address.is_ipv6() => {
                    write!(f, "{comma}[{network}]:{ports}")
                }
                HostPattern::Network(network) => write!(f, "{comma}{network}:{ports}"),
            }?;
        }
        Ok(())
    }
}

impl std::fmt::Display for ListenRights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, ListenPattern { place, ports }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match place {
                ListenPlace::Loopback => write!(f, "{comma}{ports}"),
                ListenPlace::Everywhere => write!(f, "{comma}*:{ports}"),
                ListenPlace::At(IpAddr::V6(address)) => write!(f, "{comma}[{address}]:{ports}"),
                ListenPlace::At(address) => write!(f, "{comma}{address}:{ports}"),
            }?;
        }
        Ok(())
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.start(), self.0.end()) {
            (0, &u16::MAX) => f.write_str("*"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests;
