//! Addresses, routes and rules by rtnetlink, without the `ip` program.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A netlink socket for the routing of the namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Connects, in the namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel has no rtnetlink.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// The index of the device called `name`.
    ///
    /// # Errors
    /// If there is none.
    pub fn index(&self, name: &str) -> io::Result<u32> {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?;
        Ok(rustix::net::netdevice::name_to_index(socket, name)?)
    }

    /// Brings the device up.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.set_link(index, Vec::new())
    }

    /// Brings the device up with this MTU in bytes and this many packets of transmit queue.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_up_with(&mut self, index: u32, mtu: u32, queue: u32) -> io::Result<()> {
        self.set_link(index, vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue)])
    }

    /// Gives the device an address, usable at once (no duplicate address detection).
    ///
    /// # Errors
    /// The kernel's error; `AlreadyExists` if the device has the address.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let message = address_of(index, address, prefix);
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Takes an address from the device. With its last IPv4 address it loses its IPv4 routes.
    ///
    /// # Errors
    /// The kernel's error; `AddrNotAvailable` if the device does not have the address.
    pub fn remove_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let message = address_of(index, address, prefix);
        self.request(RouteNetlinkMessage::DelAddress(message), 0)
    }

    /// Lets the main table lead packets to the prefix `to` out through the device, in place of an
    /// equal route with this metric. Of routes to the same prefix, the one with the smallest metric
    /// is used.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_route(&mut self, index: u32, to: (IpAddr, u8), metric: u32) -> io::Result<()> {
        let mut message = route_to(RouteHeader::RT_TABLE_MAIN, index, to);
        message.attributes.push(RouteAttribute::Priority(metric));
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Lets `table` lead packets to the prefix `to` out through the device, in place of an equal
    /// route; packets of at most `mtu` octets, if it is given and less than the device's.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_route_in(
        &mut self,
        table: u32,
        index: u32,
        to: (IpAddr, u8),
        mtu: Option<u32>,
    ) -> io::Result<()> {
        let mut message = route_in(table, index, to);
        message
            .attributes
            .extend(mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Undoes [`Netlink::set_route_in`].
    ///
    /// # Errors
    /// The kernel's error; `NotFound` if there is no such route.
    pub fn remove_route_in(&mut self, table: u32, index: u32, to: (IpAddr, u8)) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRoute(route_in(table, index, to)), 0)
    }

    /// Lets `table` (1 to 252) lead everything of the family of `like` out through the device.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add_default_route(&mut self, table: u8, index: u32, like: IpAddr) -> io::Result<()> {
        let message = route_of(table, index, like);
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The same, whether the route is there or not.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_default_route(&mut self, table: u8, index: u32, like: IpAddr) -> io::Result<()> {
        let message = route_of(table, index, like);
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Lets packets from `source` look up `table` before the main one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn add_rule(&mut self, source: IpAddr, table: u8) -> io::Result<()> {
        let message = rule_of(source, table);
        self.request(RouteNetlinkMessage::NewRule(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Undoes [`Netlink::add_rule`].
    ///
    /// # Errors
    /// The kernel's error; `NotFound` if there is no such rule.
    pub fn remove_rule(&mut self, source: IpAddr, table: u8) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRule(rule_of(source, table)), 0)
    }

    fn set_link(&mut self, index: u32, attributes: Vec<LinkAttribute>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes = attributes;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let what = format!("{message:?}");
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match answer.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => {
                let error = error.to_io();
                Err(io::Error::new(error.kind(), format!("{error} ({what})")))
            }
            _ => Ok(()),
        }
    }
}

fn address_of(index: u32, address: IpAddr, prefix: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix;
    message.header.index = index;
    message.header.scope = AddressScope::Universe;
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

/// The route of everything of the family of `like` out through the device.
fn route_of(table: u8, index: u32, like: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(like),
        table,
        protocol: RouteProtocol::Static,
        scope: RouteScope::Link,
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes = vec![RouteAttribute::Oif(index)];
    message
}

/// The route of packets to a prefix out through the device.
fn route_to(table: u8, index: u32, (address, prefix): (IpAddr, u8)) -> RouteMessage {
    let mut message = route_of(table, index, address);
    message.header.destination_prefix_length = prefix;
    if prefix > 0 {
        message.attributes.push(RouteAttribute::Destination(match address {
            IpAddr::V4(address) => RouteAddress::Inet(address),
            IpAddr::V6(address) => RouteAddress::Inet6(address),
        }));
    }
    message
}

/// The same in a table of any number, with the metric that the kernel gives the first route of
/// IPv6.
fn route_in(table: u32, index: u32, to: (IpAddr, u8)) -> RouteMessage {
    let mut message = route_to(RouteHeader::RT_TABLE_UNSPEC, index, to);
    message.attributes.push(RouteAttribute::Table(table));
    message.attributes.push(RouteAttribute::Priority(METRIC));
    message
}

/// The metric of routes in tables of their own.
const METRIC: u32 = 1_024;

fn rule_of(source: IpAddr, table: u8) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(source);
    message.header.src_len = if source.is_ipv4() { 32 } else { 128 };
    message.header.table = table;
    message.header.action = RuleAction::ToTable;
    message.attributes =
        vec![RuleAttribute::Source(source), RuleAttribute::Priority(1_000 + u32::from(table))];
    message
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
