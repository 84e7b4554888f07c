//! The local paths towards a host.
//!
//! [`discover`] asks the kernel over netlink, without privilege, for its interfaces, their
//! addresses, and for each address whether a packet from it to the target would leave by that
//! interface. That costs a few system calls for each interface, so a caller may repeat it every
//! second to notice changes.

mod kind;
mod netlink;
mod probe;
mod reason;

pub use probe::connect_time;
pub use reason::{Family, Reason};

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use units::Rate;

use crate::Error;
use crate::scope::{is_link_local, scope};
use kind::Traits;
use netlink::{Address, Link, Netlink, Route, Unreachable};

/// The result of [`discover`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The paths to the target, in the order of the kernel's interface numbers.
    pub usable: Vec<LocalPath>,
    /// The interfaces without a path, in the same order.
    pub unusable: Vec<Unusable>,
}

impl Discovery {
    /// The names of all interfaces, some of them repeatedly.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        let usable = self.usable.iter().map(|path| path.interface.as_str());
        usable.chain(self.unusable.iter().map(|device| device.interface.as_str()))
    }
}

/// The local end of a path: an interface and a source address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPath {
    /// The interface's name.
    pub interface: String,
    /// Its number; the scope of a link-local address.
    pub index: u32,
    /// The source address, of the target's family.
    pub address: IpAddr,
    /// The length of the prefix of its subnet, in bits.
    pub prefix: u8,
    /// Whether data over it probably costs money: a modem, or a telephone on USB.
    pub metered: bool,
    /// The link's nominal speed, where its driver knows one.
    pub speed: Option<Rate>,
}

/// The number of the loopback, the first interface of every network namespace (in the kernel,
/// `LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

impl LocalPath {
    /// The device that a socket of the path binds to; `None` for the loopback. A socket bound to
    /// the loopback reaches `127.0.0.0/8` and `::1` alone, not the host's other addresses, which
    /// the kernel keeps with their interfaces.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        (self.index != LOOPBACK).then_some(&self.interface)
    }
}

/// An interface that is no path to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The interface's name.
    pub interface: String,
    /// The reason.
    pub why: Reason,
}

/// The local paths towards `target`: one for each interface that is up, has an address of the
/// target's family and a route, and another one for a second address of the interface with another
/// gateway. A target on this machine has one path, the loopback.
///
/// # Errors
/// [`Error`] if the kernel can't be asked.
pub fn discover(target: IpAddr) -> Result<Discovery, Error> {
    in_zone(target.to_canonical(), None)
}

/// As [`discover`], towards the address of a connection. A link-local IPv6 address with a scope is
/// reached by the interface of that number alone, and is an address of this machine only if that
/// interface has it.
///
/// # Errors
/// [`Error`] if the kernel can't be asked.
pub fn discover_remote(remote: SocketAddr) -> Result<Discovery, Error> {
    let target = remote.ip().to_canonical();
    let zone = Some(scope(remote)).filter(|index| *index != 0 && is_link_local(target));
    in_zone(target, zone)
}

/// The local paths towards `target`, a link-local address if it is in the zone of an interface.
fn in_zone(target: IpAddr, zone: Option<u32>) -> Result<Discovery, Error> {
    let failed =
        |source| Error { action: "ask the kernel for its network interfaces".into(), source };
    let mut netlink = Netlink::open().map_err(failed)?;
    let links = netlink.links().map_err(failed)?;
    let mut addresses: BTreeMap<u32, Vec<Address>> = BTreeMap::new();
    for address in netlink.addresses(target).map_err(failed)? {
        addresses.entry(address.index).or_default().push(address);
    }
    // The kernel's own route to the target.
    let natural = netlink.route(target, None, zone).map_err(failed)?.ok();
    let is_local = natural.as_ref().is_some_and(|route| route.local);
    let mut found = Discovery::default();
    for link in &links {
        let addresses = addresses.get(&link.index).map_or(&[][..], Vec::as_slice);
        let judged = match zone {
            Some(zone) if zone != link.index && !is_local => {
                let name = links.iter().find(|link| link.index == zone).map(|link| &link.name);
                let name = name.map_or("an interface that is gone", |name| name);
                Err(Reason::OtherZone(target, name.to_string()))
            }
            _ => judge(&mut netlink, link, &links, addresses, target, natural.as_ref())
                .map_err(failed)?,
        };
        match judged {
            Ok(sources) => {
                let Traits { metered, speed } = Traits::of(&link.name);
                found.usable.extend(sources.into_iter().map(|address| LocalPath {
                    interface: link.name.clone(),
                    index: link.index,
                    prefix: prefix(addresses, address),
                    address,
                    metered,
                    speed,
                }));
            }
            Err(why) => found.unusable.push(Unusable { interface: link.name.clone(), why }),
        }
    }
    Ok(found)
}

/// The kernel's route from a path's address, if it leaves by another interface than the path's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reversal {
    /// The interface of the kernel's route.
    pub interface: String,
    /// The gateway of the path.
    pub gateway: Option<IpAddr>,
}

/// The kernel's route from the path's address to `target`, if it leaves by another interface.
/// Strict reverse-path filtering (RFC 3704, 2.2) then expects answers on that interface.
///
/// # Errors
/// [`Error`] if the kernel can't be asked.
pub fn reversal(path: &LocalPath, target: IpAddr) -> Result<Option<Reversal>, Error> {
    let ask = || -> io::Result<Option<Reversal>> {
        let mut netlink = Netlink::open()?;
        let natural = netlink.route(target.to_canonical(), Some(path.address), None)?;
        let own = netlink.matched_route(target.to_canonical(), path.address, path.index)?;
        let other =
            natural.ok().and_then(|route| route.interface).filter(|index| *index != path.index);
        let Some(other) = other else { return Ok(None) };
        let links = netlink.links()?;
        let name = links
            .iter()
            .find(|link| link.index == other)
            .map_or("another interface", |link| &link.name);
        Ok(Some(Reversal {
            interface: name.to_string(),
            gateway: own.ok().and_then(|route| route.gateway),
        }))
    };
    ask().map_err(|source| Error { action: "ask the kernel for its routes".into(), source })
}

/// The addresses at which other hosts may reach this one: those of every interface that is up and
/// no loopback or container bridge. IPv4 comes first, and of either family the interface that leads
/// to everywhere, then those to single networks, then link-local addresses: what most others can
/// reach. Empty if the kernel can't be asked.
#[must_use]
pub fn own_addresses() -> Vec<IpAddr> {
    let ask = || -> io::Result<Vec<IpAddr>> {
        let mut netlink = Netlink::open()?;
        let links = netlink.links()?;
        let mut own = Vec::new();
        for elsewhere in ELSEWHERE {
            let way = netlink.route(elsewhere, None, None)?.ok().and_then(|route| route.interface);
            let mut addresses = netlink.addresses(elsewhere)?;
            let rank = |address: &Address| match address.ip {
                IpAddr::V4(ip) if ip.is_link_local() => 2,
                _ => u8::from(Some(address.index) != way),
            };
            addresses.sort_by_key(rank);
            for Address { index, ip, deprecated, .. } in addresses {
                let link = links.iter().find(|link| link.index == index);
                let reachable = link.is_some_and(|link| excluded(link, &links, None).is_none());
                if reachable && !deprecated && !is_link_local(ip) {
                    own.push(ip);
                }
            }
        }
        Ok(own)
    };
    ask().unwrap_or_default()
}

/// Addresses that no network has (RFC 5737, RFC 3849): the way there is the one to everywhere.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// The length of the prefix of an address's subnet; of the loopback's target, all of its bits.
fn prefix(addresses: &[Address], ip: IpAddr) -> u8 {
    let own = addresses.iter().find(|address| address.ip == ip);
    own.map_or(if ip.is_ipv4() { 32 } else { 128 }, |address| address.prefix)
}

/// The number of the interface that a zone of a link-local address names (RFC 4007, 11.2), by its
/// name or by its number.
///
/// # Errors
/// [`Error`] of the kind [`io::ErrorKind::NotFound`], which names the interfaces that there are; or
/// if the kernel can't be asked.
pub fn interface_index(zone: &str) -> Result<u32, Error> {
    let find = || -> io::Result<u32> {
        let links = Netlink::open()?.links()?;
        let number = zone.parse().ok();
        let by_name = links.iter().find(|link| link.name == zone);
        let found = by_name.or_else(|| links.iter().find(|link| Some(link.index) == number));
        found.map(|link| link.index).ok_or_else(|| {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            let why = format!("the interfaces are {}", names.join(", "));
            io::Error::new(io::ErrorKind::NotFound, why)
        })
    };
    find().map_err(|source| Error { action: format!("find the interface '{zone}'"), source })
}

/// The number of leading bits that two addresses share; zero for different families.
#[must_use]
pub fn common_prefix(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// The source addresses of `link`, one for each gateway; or the reason why there is none.
fn judge(
    netlink: &mut Netlink,
    link: &Link,
    links: &[Link],
    addresses: &[Address],
    target: IpAddr,
    natural: Option<&Route>,
) -> io::Result<Result<Vec<IpAddr>, Reason>> {
    if let Some(Route { local: true, source, .. }) = natural {
        return Ok(if link.loopback {
            Ok(vec![source.unwrap_or(target)])
        } else {
            Err(Reason::ThisMachine(target))
        });
    }
    if let Some(why) = excluded(link, links, natural) {
        return Ok(Err(why));
    }
    let link_local = is_link_local(target);
    let mut candidates: Vec<&Address> = addresses
        .iter()
        .filter(|address| is_link_local(address.ip) == link_local || address.ip.is_ipv4())
        .collect();
    if candidates.is_empty() {
        let owner = links.iter().find(|other| Some(other.index) == link.controller);
        let family = match target {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) if link_local => Family::LinkLocal,
            IpAddr::V6(_) => Family::V6,
        };
        return Ok(Err(match owner {
            Some(owner) => Reason::PortOf(owner.name.clone()),
            None => Reason::NoAddress(family),
        }));
    }
    // The address that the kernel would choose comes first, deprecated ones last.
    let chosen = netlink.route(target, None, Some(link.index))?.ok().and_then(|route| route.source);
    candidates.sort_by_key(|address| (address.deprecated, Some(address.ip) != chosen));
    let mut ways: Vec<(Option<IpAddr>, IpAddr)> = Vec::new();
    let mut why = None;
    for candidate in candidates {
        match netlink.matched_route(target, candidate.ip, link.index)? {
            Ok(route) => {
                if !ways.iter().any(|(gateway, _)| *gateway == route.gateway) {
                    ways.push((route.gateway, candidate.ip));
                }
            }
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    if !ways.is_empty() {
        return Ok(Ok(ways.into_iter().map(|(_, source)| source).collect()));
    }
    Ok(Err(match why {
        Some(Unreachable::Forbidden) => Reason::Forbidden(target),
        Some(Unreachable::Elsewhere(index)) => {
            let name = links
                .iter()
                .find(|other| other.index == index)
                .map_or("another interface", |other| &other.name);
            Reason::Elsewhere(target, name.to_string())
        }
        Some(Unreachable::NoRoute) | None => Reason::NoRoute(target),
    }))
}

/// The reason to rule an interface out before a look at its routes.
fn excluded(link: &Link, links: &[Link], natural: Option<&Route>) -> Option<Reason> {
    if link.loopback {
        return Some(Reason::Loopback);
    }
    if !link.up {
        return Some(Reason::Down);
    }
    if !link.carrier {
        return Some(Reason::NoCarrier);
    }
    // A container's own address is reached by way of its bridge, and then that is the path.
    let members = links.iter().filter(|member| member.controller == Some(link.index));
    let way_there = natural.is_some_and(|route| route.interface == Some(link.index));
    (!way_there && kind::is_container_bridge(link, members)).then_some(Reason::Bridge)
}
