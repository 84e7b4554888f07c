//! The kernel's tables over a netlink socket: links, addresses, route lookups.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// An interface.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// The kind in `ip -d link`: "bridge", "veth"; `None` for hardware.
    pub(super) kind: Option<String>,
    /// Whether it is switched on.
    pub(super) up: bool,
    /// Whether it could carry packets.
    pub(super) carrier: bool,
    pub(super) loopback: bool,
    /// The bridge or bond that it belongs to.
    pub(super) controller: Option<u32>,
}

/// A possible source address.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) index: u32,
    pub(super) ip: IpAddr,
    /// The length of the prefix of its subnet, in bits.
    pub(super) prefix: u8,
    /// Whether it is valid, but not preferred for new connections (RFC 4862, 5.5.4).
    pub(super) deprecated: bool,
}

/// The kernel's route to a target.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// Whether the target is an address of this machine.
    pub(super) local: bool,
    pub(super) interface: Option<u32>,
    pub(super) gateway: Option<IpAddr>,
    /// The source address that the kernel prefers.
    pub(super) source: Option<IpAddr>,
}

/// The reason why there is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreachable {
    NoRoute,
    /// A blackhole or prohibit route.
    Forbidden,
    /// The route leaves by this other interface.
    Elsewhere(u32),
}

/// A socket to the kernel's routing tables.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Every interface, in the order of their numbers.
    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        for message in self.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), true)? {
            if let RouteNetlinkMessage::NewLink(message) = message {
                links.push(link(&message));
            }
        }
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// Every possible source address of `target`'s family.
    pub(super) fn addresses(&mut self, target: IpAddr) -> io::Result<Vec<Address>> {
        let mut query = AddressMessage::default();
        query.header.family = family(target);
        let answers = self.ask(RouteNetlinkMessage::GetAddress(query), true)?;
        Ok(answers
            .into_iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewAddress(message) => address(&message),
                _ => None,
            })
            .filter(|address| address.ip.is_ipv4() == target.is_ipv4())
            .collect())
    }

    /// The route of a packet to `target`, with a source and an interface if they are given.
    pub(super) fn route(
        &mut self,
        target: IpAddr,
        source: Option<IpAddr>,
        interface: Option<u32>,
    ) -> io::Result<Result<Route, Unreachable>> {
        self.lookup(target, source, interface, RouteFlags::empty())
    }

    /// The route from `source` to `target` by `interface`, if a table has one. A plain lookup with
    /// an interface never fails on IPv4, because the kernel takes every target for a neighbour;
    /// this one asks for the matched table entry.
    pub(super) fn matched_route(
        &mut self,
        target: IpAddr,
        source: IpAddr,
        interface: u32,
    ) -> io::Result<Result<Route, Unreachable>> {
        let by_source = self.lookup(target, Some(source), Some(interface), RouteFlags::FibMatch)?;
        let elsewhere = |route: &Route| route.interface.filter(|index| *index != interface);
        match by_source {
            Ok(route) => match elsewhere(&route) {
                None => Ok(Ok(route)),
                // A lookup with a source takes the interface as a preference on IPv6; a bound
                // socket is strict.
                Some(index) => {
                    match self.lookup(target, None, Some(interface), RouteFlags::FibMatch)? {
                        Ok(route) if elsewhere(&route).is_none() && target.is_ipv6() => {
                            Ok(Ok(route))
                        }
                        _ => Ok(Err(Unreachable::Elsewhere(index))),
                    }
                }
            },
            Err(why) => Ok(Err(why)),
        }
    }

    fn lookup(
        &mut self,
        target: IpAddr,
        source: Option<IpAddr>,
        interface: Option<u32>,
        flags: RouteFlags,
    ) -> io::Result<Result<Route, Unreachable>> {
        let whole = if target.is_ipv4() { 32 } else { 128 };
        let mut query = RouteMessage::default();
        query.header.address_family = family(target);
        query.header.destination_prefix_length = whole;
        query.header.flags = flags;
        query.attributes.push(RouteAttribute::Destination(target.into()));
        if let Some(source) = source {
            query.header.source_prefix_length = whole;
            query.attributes.push(RouteAttribute::Source(source.into()));
        }
        query.attributes.extend(interface.map(RouteAttribute::Oif));
        let answers = match self.ask(RouteNetlinkMessage::GetRoute(query), false) {
            Ok(answers) => answers,
            Err(error) => return unreachable(error).map(Err),
        };
        let answer = answers.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewRoute(message) => Some(message),
            _ => None,
        });
        Ok(answer.map_or(Err(Unreachable::NoRoute), |message| route(&message, interface)))
    }

    /// Sends a request and collects the answers: one, or all of a dump.
    fn ask(
        &mut self,
        query: RouteNetlinkMessage,
        dump: bool,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = if dump { NLM_F_REQUEST | NLM_F_DUMP } else { NLM_F_REQUEST };
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(query));
        message.finalize();
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        self.socket.send(&octets, 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while let Ok(buffer) = NetlinkBuffer::new_checked(rest) {
                let length =
                    usize::try_from(buffer.length()).unwrap_or(rest.len()).clamp(16, rest.len());
                let sequence = buffer.sequence_number();
                let decoded = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]);
                rest = &rest[length.next_multiple_of(4).min(rest.len())..];
                if sequence != self.sequence {
                    continue;
                }
                match decoded.map(|message| message.payload) {
                    Ok(NetlinkPayload::InnerMessage(answer)) => answers.push(answer),
                    Ok(NetlinkPayload::Done(_)) => return Ok(answers),
                    Ok(NetlinkPayload::Error(error)) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    // A message that the library can't decode is one interface less.
                    Ok(_) | Err(_) => {}
                }
                if !dump {
                    return Ok(answers);
                }
            }
        }
    }
}

fn family(target: IpAddr) -> AddressFamily {
    if target.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: None,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        loopback: flags.contains(LinkFlags::Loopback),
        controller: None,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    link
}

/// `None` for an address that can't be a source: not yet checked for duplicates, or valid on this
/// host only.
fn address(message: &AddressMessage) -> Option<Address> {
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut own, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link this is the own address, and the other attribute is the
            // peer's.
            AddressAttribute::Local(address) => own = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let tentative =
        flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    if tentative
        || flags.contains(AddressFlags::Dadfailed)
        || message.header.scope == AddressScope::Host
    {
        return None;
    }
    let deprecated = flags.contains(AddressFlags::Deprecated);
    let prefix = message.header.prefix_len;
    Some(Address { index: message.header.index, ip: own.or(other)?, prefix, deprecated })
}

/// The kernel's answer to a lookup; of several next hops, the one by `interface`.
fn route(message: &RouteMessage, interface: Option<u32>) -> Result<Route, Unreachable> {
    match message.header.kind {
        RouteType::BlackHole | RouteType::Prohibit => return Err(Unreachable::Forbidden),
        RouteType::Unreachable | RouteType::Throw => return Err(Unreachable::NoRoute),
        _ => {}
    }
    let mut route = Route {
        local: message.header.kind == RouteType::Local,
        interface: None,
        gateway: None,
        source: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::MultiPath(hops) => {
                let hop =
                    hops.iter().find(|hop| Some(hop.interface_index) == interface).or(hops.first());
                if let Some(hop) = hop {
                    route.interface = Some(hop.interface_index);
                    hop.attributes.iter().for_each(|attribute| route.take(attribute));
                }
            }
            other => route.take(other),
        }
    }
    Ok(route)
}

impl Route {
    fn take(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Oif(index) => self.interface = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(gateway))
            | RouteAttribute::Via(RouteVia::Inet(gateway)) => {
                self.gateway = Some((*gateway).into());
            }
            RouteAttribute::Gateway(RouteAddress::Inet6(gateway))
            | RouteAttribute::Via(RouteVia::Inet6(gateway)) => {
                self.gateway = Some((*gateway).into());
            }
            RouteAttribute::PrefSource(RouteAddress::Inet(source)) => {
                self.source = Some((*source).into());
            }
            RouteAttribute::PrefSource(RouteAddress::Inet6(source)) => {
                self.source = Some((*source).into());
            }
            _ => {}
        }
    }
}

/// The errors of a lookup that mean that there is no route.
fn unreachable(error: io::Error) -> io::Result<Unreachable> {
    match error.kind() {
        // NetworkDown: the interface is going away.
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::NetworkDown => Ok(Unreachable::NoRoute),
        // EACCES from a prohibit route, EINVAL from a blackhole.
        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => Ok(Unreachable::Forbidden),
        // The interface went away between two questions.
        _ if error.raw_os_error() == Some(ENODEV) => Ok(Unreachable::NoRoute),
        _ => Err(error),
    }
}

/// "No such device", for which `io::ErrorKind` has no name.
const ENODEV: i32 = 19;
