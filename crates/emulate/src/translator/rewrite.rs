//! What a translator reads of packets and changes in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use super::{FlowKind, Refusal};
use wire::ip::update_checksum;

/// A packet.
#[derive(Debug)]
pub(super) enum Content {
    /// Of a flow.
    Flow(Ends),
    /// An ICMP error about a packet of a flow.
    Error(ErrorMessage),
}

/// The ends of a flow, in the direction of the packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) kind: FlowKind,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) flags: Flags,
    pub(super) is_echo_request: bool,
    /// The offset of the transport header.
    header: usize,
}

/// The flags of TCP that change a connection's stage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) rst: bool,
}

/// An ICMP error.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorMessage {
    /// The offset of the ICMP header.
    header: usize,
    /// The packet that it is about, and its offset.
    pub(super) quoted: Ends,
    quote: usize,
}

/// The length of the header of ICMP before what is quoted.
const ICMP_HEADER: usize = 8;
/// Offsets in an IPv4 header.
const CHECKSUM: usize = 10;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;

/// Reads a packet.
pub(super) fn read(data: &[u8]) -> Result<Content, Refusal> {
    let sliced = SlicedPacket::from_ip(data).map_err(|_| Refusal::NotTranslated)?;
    if sliced.is_ip_payload_fragmented() {
        return Err(Refusal::Fragment);
    }
    let (source, destination): (IpAddr, IpAddr) = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        Some(NetSlice::Ipv6(ip)) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        _ => return Err(Refusal::NotTranslated),
    };
    // All of these are parts of `data`.
    let offset = |slice: &[u8]| slice.as_ptr().addr() - data.as_ptr().addr();
    let flow = |kind, header, source_port, destination_port| Ends {
        kind,
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
        flags: Flags::default(),
        is_echo_request: false,
        header,
    };
    match &sliced.transport {
        Some(TransportSlice::Udp(udp)) => {
            let header = offset(udp.slice());
            let ends = flow(FlowKind::Udp, header, udp.source_port(), udp.destination_port());
            Ok(Content::Flow(ends))
        }
        Some(TransportSlice::Tcp(tcp)) => {
            let header = offset(tcp.slice());
            let ends = flow(FlowKind::Tcp, header, tcp.source_port(), tcp.destination_port());
            let flags = Flags { syn: tcp.syn(), fin: tcp.fin(), rst: tcp.rst() };
            Ok(Content::Flow(Ends { flags, ..ends }))
        }
        Some(TransportSlice::Icmpv4(icmp)) => icmp_content(data, offset(icmp.slice()), flow),
        Some(TransportSlice::Icmpv6(icmp)) => icmp_content(data, offset(icmp.slice()), flow),
        _ => Err(Refusal::NotTranslated),
    }
}

/// Reads an ICMP message at the offset `header`.
fn icmp_content(
    data: &[u8],
    header: usize,
    flow: impl Fn(FlowKind, usize, u16, u16) -> Ends,
) -> Result<Content, Refusal> {
    let message = &data[header..];
    let is_v6 = data[0] >> 4 == 6;
    let identifier = word(message, 4).ok_or(Refusal::NotTranslated)?;
    match (is_v6, message[0]) {
        (false, 8) | (true, 128) => {
            let ends = flow(FlowKind::Echo, header, identifier, 0);
            Ok(Content::Flow(Ends { is_echo_request: true, ..ends }))
        }
        (false, 0) | (true, 129) => Ok(Content::Flow(flow(FlowKind::Echo, header, 0, identifier))),
        // Unreachable, quench, time exceeded, parameter problem; of IPv6 all errors.
        (false, 3 | 4 | 11 | 12) | (true, 0..=127) => {
            let quote = header + ICMP_HEADER;
            let quoted = quoted(data, quote).ok_or(Refusal::NotTranslated)?;
            Ok(Content::Error(ErrorMessage { header, quoted, quote }))
        }
        _ => Err(Refusal::NotTranslated),
    }
}

/// Reads the beginning of a packet: its header and at least 64 bits (RFC 792).
fn quoted(data: &[u8], quote: usize) -> Option<Ends> {
    let inner = data.get(quote..)?;
    let (protocol, length, source, destination): (u8, usize, IpAddr, IpAddr) =
        match inner.first()? >> 4 {
            4 => (
                *inner.get(9)?,
                usize::from(inner[0] & 0xf) * 4,
                Ipv4Addr::from(*inner.get(SOURCE..)?.first_chunk::<4>()?).into(),
                Ipv4Addr::from(*inner.get(DESTINATION..)?.first_chunk::<4>()?).into(),
            ),
            6 => (
                *inner.get(6)?,
                40,
                Ipv6Addr::from(*inner.get(8..)?.first_chunk::<16>()?).into(),
                Ipv6Addr::from(*inner.get(24..)?.first_chunk::<16>()?).into(),
            ),
            _ => return None,
        };
    let transport = inner.get(length..).filter(|_| length >= 20)?;
    let first = *transport.first()?;
    let (kind, source_port, destination_port) = match protocol {
        6 => (FlowKind::Tcp, word(transport, 0)?, word(transport, 2)?),
        17 => (FlowKind::Udp, word(transport, 0)?, word(transport, 2)?),
        1 if first == 8 => (FlowKind::Echo, word(transport, 4)?, 0),
        1 if first == 0 => (FlowKind::Echo, 0, word(transport, 4)?),
        58 if first == 128 => (FlowKind::Echo, word(transport, 4)?, 0),
        58 if first == 129 => (FlowKind::Echo, 0, word(transport, 4)?),
        _ => return None,
    };
    Some(Ends {
        kind,
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
        flags: Flags::default(),
        is_echo_request: false,
        header: quote + length,
    })
}

/// Gives a packet another source. Its checksums stay right.
pub(super) fn set_source(data: &mut [u8], ends: &Ends, source: SocketAddr) {
    set_end(data, ends, source, SOURCE, 0);
}

/// Gives a packet another destination.
pub(super) fn set_destination(data: &mut [u8], ends: &Ends, destination: SocketAddr) {
    set_end(data, ends, destination, DESTINATION, 2);
}

fn set_end(data: &mut [u8], ends: &Ends, to: SocketAddr, address_at: usize, port_at: usize) {
    // Of IPv6 nothing changes.
    let IpAddr::V4(address) = to.ip() else { return };
    let new = address.octets();
    let mut changes = set_address(data, 0, address_at, new);
    let (port_at, checksum) = match ends.kind {
        FlowKind::Udp => (ends.header + port_at, ends.header + 6),
        FlowKind::Tcp => (ends.header + port_at, ends.header + 16),
        FlowKind::Echo => {
            // Its checksum is of the message alone.
            changes.clear();
            (ends.header + 4, ends.header + 2)
        }
    };
    changes.push((set_word(data, port_at, to.port()), to.port()));
    let old = word(data, checksum).expect("the header is whole");
    if ends.kind == FlowKind::Udp && old == 0 {
        // UDP over IPv4 may go without a checksum.
        return;
    }
    let sum = changes.into_iter().fold(old, |sum, (old, new)| update_checksum(sum, old, new));
    let sum = if ends.kind == FlowKind::Udp && sum == 0 { u16::MAX } else { sum };
    set_word(data, checksum, sum);
}

/// An error from inside about a packet that came in: both the error and the quoted packet get the
/// translator's end.
pub(super) fn set_outbound_error(data: &mut [u8], error: &ErrorMessage, external: SocketAddr) {
    let IpAddr::V4(address) = external.ip() else { return };
    set_address(data, 0, SOURCE, address.octets());
    set_quoted(data, error, external, DESTINATION, 2);
}

/// An error from outside about a packet that went out: it goes to the host inside, and quotes what
/// that one sent.
pub(super) fn set_inbound_error(data: &mut [u8], error: &ErrorMessage, internal: SocketAddr) {
    let IpAddr::V4(address) = internal.ip() else { return };
    set_address(data, 0, DESTINATION, address.octets());
    set_quoted(data, error, internal, SOURCE, 0);
}

fn set_quoted(data: &mut [u8], error: &ErrorMessage, end: SocketAddr, at: usize, port_at: usize) {
    let IpAddr::V4(address) = end.ip() else { return };
    set_address(data, error.quote, at, address.octets());
    let port_at = if error.quoted.kind == FlowKind::Echo { 4 } else { port_at };
    set_word(data, error.quoted.header + port_at, end.port());
    set_word(data, error.header + 2, 0);
    let sum = Sum16BitWords::new().add_slice(&data[error.header..]).ones_complement();
    data[error.header + 2..error.header + 4].copy_from_slice(&sum.to_be().to_be_bytes());
}

/// Changes an address of the IPv4 header at `header`, whose checksum stays right; returns the words
/// that changed, old and new.
fn set_address(data: &mut [u8], header: usize, at: usize, new: [u8; 4]) -> Vec<(u16, u16)> {
    let halves = [(0, [new[0], new[1]]), (2, [new[2], new[3]])];
    let changes: Vec<(u16, u16)> = halves
        .into_iter()
        .map(|(half, new)| {
            let new = u16::from_be_bytes(new);
            (set_word(data, header + at + half, new), new)
        })
        .collect();
    let old = word(data, header + CHECKSUM).expect("the header is whole");
    let sum = changes.iter().fold(old, |sum, (old, new)| update_checksum(sum, *old, *new));
    set_word(data, header + CHECKSUM, sum);
    changes
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Writes a word; returns the old one.
fn set_word(data: &mut [u8], at: usize, new: u16) -> u16 {
    let old = word(data, at).expect("it is within what was read");
    data[at..at + 2].copy_from_slice(&new.to_be_bytes());
    old
}
