//! What the kernel's connection tracking knows of a TCP connection's window scales, by ctnetlink
//! (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};

/// The window scale options of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowScales {
    /// The shift in the SYN of the one end; `None`: it had no option.
    pub near: Option<u8>,
    /// The same of the other end.
    pub far: Option<u8>,
}

/// A netlink socket for the connection tracking of the namespace in which it was opened.
#[derive(Debug)]
pub struct Conntrack {
    socket: Socket,
    sequence: u32,
}

/// `IPCTNL_MSG_CT_GET` of `NFNL_SUBSYS_CTNETLINK`.
const GET: u16 = 1 << 8 | 1;
const REQUEST: u16 = 1;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
const NESTED: u16 = 1 << 15;
/// The bits of an attribute's type that are not flags.
const TYPE: u16 = 0x3fff;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_PROTOINFO: u16 = 4;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTOINFO_TCP: u16 = 1;
const TCP_WSCALE_ORIGINAL: u16 = 2;
const TCP_WSCALE_REPLY: u16 = 3;
const TCP_FLAGS_ORIGINAL: u16 = 4;
const TCP_FLAGS_REPLY: u16 = 5;
/// `IP_CT_TCP_FLAG_WINDOW_SCALE`: the SYN had the option.
const WINDOW_SCALE: u8 = 0x01;
/// `IP_CT_TCP_FLAG_BE_LIBERAL`: the connection was met without its SYN.
const BE_LIBERAL: u8 = 0x08;
const TCP: u8 = 6;
/// Octets of the headers of netlink and of netfilter.
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;

impl Conntrack {
    /// Connects, in the namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel has no ctnetlink.
    pub fn open() -> io::Result<Conntrack> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&NetlinkAddress::new(0, 0))?;
        Ok(Conntrack { socket, sequence: 0 })
    }

    /// The window scales of the TCP connection between two ends, whichever of them opened it;
    /// `None` if the kernel does not know it, or met it without its SYNs.
    ///
    /// # Errors
    /// The error of the socket; `PermissionDenied` without `CAP_NET_ADMIN`.
    pub fn scales(
        &mut self,
        near: SocketAddr,
        far: SocketAddr,
    ) -> io::Result<Option<WindowScales>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(self.sequence, near, far), 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        answered(&answer, near)
    }
}

/// The message that asks for a connection. Its addresses may be those of either direction.
fn request(sequence: u32, near: SocketAddr, far: SocketAddr) -> Vec<u8> {
    let (family, ip) = match (near.ip(), far.ip()) {
        (IpAddr::V4(near), IpAddr::V4(far)) => {
            let near = attribute(CTA_IP_V4_SRC, &near.octets());
            (2, [near, attribute(CTA_IP_V4_DST, &far.octets())].concat())
        }
        (near, far) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
                IpAddr::V6(six) => six.octets(),
            };
            let near = attribute(CTA_IP_V6_SRC, &octets(near));
            (10, [near, attribute(CTA_IP_V6_DST, &octets(far))].concat())
        }
    };
    let protocol = [
        attribute(CTA_PROTO_NUM, &[TCP]),
        attribute(CTA_PROTO_SRC_PORT, &near.port().to_be_bytes()),
        attribute(CTA_PROTO_DST_PORT, &far.port().to_be_bytes()),
    ]
    .concat();
    let tuple =
        [attribute(CTA_TUPLE_IP | NESTED, &ip), attribute(CTA_TUPLE_PROTO | NESTED, &protocol)]
            .concat();
    let tuple = attribute(CTA_TUPLE_ORIG | NESTED, &tuple);
    let length = u32::try_from(HEADER + FAMILY_HEADER + tuple.len()).expect("some 100 octets");
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(GET.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend([family, 0, 0, 0]);
    message.extend(tuple);
    message
}

/// What the kernel said of the connection that `near` is an end of.
fn answered(answer: &[u8], near: SocketAddr) -> io::Result<Option<WindowScales>> {
    let short = || io::Error::from(io::ErrorKind::InvalidData);
    let head: &[u8; HEADER] = answer.first_chunk().ok_or_else(short)?;
    if u16::from_ne_bytes([head[4], head[5]]) == ERROR {
        let code = answer.get(HEADER..HEADER + 4).and_then(|octets| octets.try_into().ok());
        let code = i32::from_ne_bytes(code.ok_or_else(short)?);
        let error = io::Error::from_raw_os_error(-code);
        return if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) };
    }
    let attributes = answer.get(HEADER + FAMILY_HEADER..).ok_or_else(short)?;
    let Some(info) = find(attributes, CTA_PROTOINFO) else { return Ok(None) };
    let Some(info) = find(info, CTA_PROTOINFO_TCP) else { return Ok(None) };
    let first = |attribute| find(info, attribute).and_then(|value| value.first().copied());
    let scale = |flags, shift| {
        let flags = first(flags).filter(|flags| flags & BE_LIBERAL == 0)?;
        Some((flags & WINDOW_SCALE != 0).then_some(first(shift)?))
    };
    let original = scale(TCP_FLAGS_ORIGINAL, TCP_WSCALE_ORIGINAL);
    let reply = scale(TCP_FLAGS_REPLY, TCP_WSCALE_REPLY);
    let (Some(original), Some(reply)) = (original, reply) else { return Ok(None) };
    let Some(source) = find(attributes, CTA_TUPLE_ORIG).and_then(source) else { return Ok(None) };
    Ok(Some(if source == near {
        WindowScales { near: original, far: reply }
    } else {
        WindowScales { near: reply, far: original }
    }))
}

/// The source of a tuple.
fn source(tuple: &[u8]) -> Option<SocketAddr> {
    let (ip, protocol) = (find(tuple, CTA_TUPLE_IP)?, find(tuple, CTA_TUPLE_PROTO)?);
    let four = find(ip, CTA_IP_V4_SRC).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
    let six = find(ip, CTA_IP_V6_SRC).and_then(|octets| <[u8; 16]>::try_from(octets).ok());
    let address: IpAddr = four.map(IpAddr::from).or(six.map(IpAddr::from))?;
    let port = find(protocol, CTA_PROTO_SRC_PORT)?;
    Some(SocketAddr::new(address, u16::from_be_bytes(port.try_into().ok()?)))
}

/// An attribute, padded to four octets.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("some 100 octets");
    let mut octets = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    octets.extend(value);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

/// The value of the first attribute of a kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let head: &[u8; 4] = attributes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([head[2], head[3]]) & TYPE == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near() -> SocketAddr {
        "10.1.0.2:40000".parse().expect("an address")
    }

    fn far() -> SocketAddr {
        "10.2.0.2:873".parse().expect("an address")
    }

    /// An answer of the kernel about a connection that `from` opened.
    fn answer(from: SocketAddr, to: SocketAddr, flags: [u8; 2]) -> Vec<u8> {
        let tuple = request(1, from, to).split_off(HEADER + FAMILY_HEADER);
        let tcp = [
            attribute(TCP_WSCALE_ORIGINAL, &[7]),
            attribute(TCP_WSCALE_REPLY, &[9]),
            attribute(TCP_FLAGS_ORIGINAL, &[flags[0], 0]),
            attribute(TCP_FLAGS_REPLY, &[flags[1], 0]),
        ];
        let tcp = attribute(CTA_PROTOINFO_TCP | NESTED, &tcp.concat());
        let info = attribute(CTA_PROTOINFO | NESTED, &tcp);
        [vec![0; HEADER + FAMILY_HEADER], tuple, info].concat()
    }

    #[test]
    fn scales_are_those_of_the_ends_whoever_opened() {
        let known =
            |from, to, flags| answered(&answer(from, to, flags), near()).expect("it is whole");
        let scales = WindowScales { near: Some(7), far: Some(9) };
        assert_eq!(known(near(), far(), [1, 1]), Some(scales));
        let turned = WindowScales { near: Some(9), far: Some(7) };
        assert_eq!(known(far(), near(), [1, 1]), Some(turned));
        let one = WindowScales { near: Some(7), far: None };
        assert_eq!(known(near(), far(), [1, 0]), Some(one));
        // Without the SYNs nobody knows.
        assert_eq!(known(near(), far(), [9, 8]), None);
    }

    #[test]
    fn answers_that_are_cut_short_say_nothing() {
        let whole = answer(near(), far(), [1, 1]);
        for length in 0..whole.len() {
            assert!(!matches!(answered(&whole[..length], near()), Ok(Some(_))), "{length}");
        }
        let mut unknown = vec![0; HEADER + 4];
        unknown[4] = 2;
        unknown[HEADER..].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert!(matches!(answered(&unknown, near()), Ok(None)), "no such connection");
    }
}
