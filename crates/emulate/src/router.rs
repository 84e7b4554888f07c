//! What a router does to packets, and what it says to their senders.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::icmpv4::{DestUnreachableHeader, TimeExceededCode};
use etherparse::icmpv6::{DestUnreachableCode, TimeExceededCode as TimeExceededCodeV6};
use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

use wire::ip::update_checksum;

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// There is no such host.
    Unreachable,
    /// Its hops are used up.
    Expired,
    /// The next link does not carry its size.
    TooLarge { mtu: u32 },
}

/// The address from which routers without one complain (RFC 7600).
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// The hop limit of packets of routers.
const HOPS: u8 = 64;

/// The destination of a packet.
pub(crate) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?).into()),
        6 => Some(Ipv6Addr::from(*packet.get(24..)?.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// Takes one from the hops that a packet has left. `Some(false)` if it was the last one; `None` if
/// it is no IP packet.
pub(crate) fn use_hop(packet: &mut [u8]) -> Option<bool> {
    let at = match packet.first()? >> 4 {
        4 if packet.len() >= 20 => 8,
        6 if packet.len() >= 40 => 7,
        _ => return None,
    };
    if packet[at] <= 1 {
        return Some(false);
    }
    set_hops(packet, at, packet[at] - 1);
    Some(true)
}

fn set_hops(packet: &mut [u8], at: usize, hops: u8) {
    if at == 8 {
        // It shares a word of the checksum with the protocol.
        let new = u16::from_be_bytes([hops, packet[9]]);
        let old = u16::from_be_bytes([packet[8], packet[9]]);
        let sum = update_checksum(u16::from_be_bytes([packet[10], packet[11]]), old, new);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet[at] = hops;
}

/// The ICMP error about a packet, from the router at `from`. `None` if there is to be none: about
/// errors, about other than the first fragment, or about what may be fragmented (RFC 1122, section
/// 3.2.2; RFC 1191, section 4).
pub(crate) fn complaint(
    packet: &[u8],
    from: Option<IpAddr>,
    complaint: Complaint,
) -> Option<Vec<u8>> {
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let is_error = match &sliced.transport {
        Some(TransportSlice::Icmpv4(icmp)) => !matches!(icmp.slice().first(), Some(0 | 8)),
        Some(TransportSlice::Icmpv6(icmp)) => matches!(icmp.slice().first(), Some(0..=127)),
        _ => false,
    };
    if is_error {
        return None;
    }
    let mut answer = Vec::new();
    match sliced.net? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let is_large = matches!(complaint, Complaint::TooLarge { .. });
            if header.fragments_offset().value() > 0 || (is_large && !header.dont_fragment()) {
                return None;
            }
            // RFC 792: the header and the first 64 bits of the data.
            let quoted = &packet[..packet.len().min(header.slice().len() + 8)];
            let message = match complaint {
                Complaint::Unreachable => {
                    Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Host)
                }
                Complaint::Expired => {
                    Icmpv4Type::TimeExceeded(TimeExceededCode::TtlExceededInTransit)
                }
                Complaint::TooLarge { mtu } => {
                    let next_hop_mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                    let needed = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu };
                    Icmpv4Type::DestinationUnreachable(needed)
                }
            };
            let from =
                from.and_then(|from| if let IpAddr::V4(v4) = from { Some(v4) } else { None });
            PacketBuilder::ipv4(from.unwrap_or(DUMMY).octets(), header.source(), HOPS)
                .icmpv4(message)
                .write(&mut answer, quoted)
                .ok()?;
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            // RFC 4443, section 3.1: as much as fits into the minimum MTU.
            let quoted = &packet[..packet.len().min(1_280 - 48)];
            let message = match complaint {
                Complaint::Unreachable => {
                    Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Address)
                }
                Complaint::Expired => {
                    Icmpv6Type::TimeExceeded(TimeExceededCodeV6::HopLimitExceeded)
                }
                Complaint::TooLarge { mtu } => Icmpv6Type::PacketTooBig { mtu },
            };
            let IpAddr::V6(from) = from? else { return None };
            PacketBuilder::ipv6(from.octets(), header.source(), HOPS)
                .icmpv6(message)
                .write(&mut answer, quoted)
                .ok()?;
        }
        NetSlice::Arp(_) => return None,
    }
    Some(answer)
}

/// The ICMP "host unreachable" that a router before the destination answers the packet with.
pub(crate) fn host_unreachable(packet: &[u8]) -> Option<Vec<u8>> {
    let from = match destination(packet)? {
        IpAddr::V4(to) => IpAddr::from(neighbour(to.octets())),
        IpAddr::V6(to) => IpAddr::from(neighbour(to.octets())),
    };
    complaint(packet, Some(from), Complaint::Unreachable)
}

/// The source of the answer: an unused address in the destination's subnet.
fn neighbour<const N: usize>(mut destination: [u8; N]) -> [u8; N] {
    destination[N - 1] = 254;
    destination
}

/// Whether a packet asks for an echo.
pub(crate) fn is_echo_request(packet: &[u8]) -> bool {
    echo_header(packet).is_some()
}

/// The answer to a packet that asks for an echo.
pub(crate) fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    let header = echo_header(packet)?;
    let mut answer = packet.to_vec();
    let (source, length, hops, reply) =
        if packet[0] >> 4 == 4 { (12, 4, 8, 0) } else { (8, 16, 7, 129) };
    // The order of the addresses does not matter to checksums.
    answer[source..source + length].copy_from_slice(&packet[source + length..][..length]);
    answer[source + length..][..length].copy_from_slice(&packet[source..source + length]);
    set_hops(&mut answer, hops, HOPS);
    let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    answer[header] = reply;
    let sum =
        update_checksum(word(packet, header + 2), word(packet, header), word(&answer, header));
    answer[header + 2..header + 4].copy_from_slice(&sum.to_be_bytes());
    Some(answer)
}

/// The offset of the header of an echo request.
fn echo_header(packet: &[u8]) -> Option<usize> {
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let (slice, request) = match &sliced.transport {
        Some(TransportSlice::Icmpv4(icmp)) => (icmp.slice(), 8),
        Some(TransportSlice::Icmpv6(icmp)) => (icmp.slice(), 128),
        _ => return None,
    };
    // It is a part of `packet`.
    (slice[0] == request).then(|| slice.as_ptr().addr() - packet.as_ptr().addr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{FAR, NEAR, tcp, udp};

    const ROUTER: [u8; 4] = [10, 77, 1, 254];

    fn sum_of(data: &[u8]) -> u16 {
        etherparse::checksum::Sum16BitWords::new().add_slice(data).ones_complement()
    }

    #[test]
    fn a_hop_is_taken_and_the_checksum_stays_right() {
        let mut packet = udp((NEAR, 1), (FAR, 2), b"x");
        for hops in (1..64).rev() {
            assert_eq!(use_hop(&mut packet), Some(true));
            assert_eq!((packet[8], sum_of(&packet[..20])), (hops, 0));
        }
        assert_eq!(use_hop(&mut packet), Some(false));
        assert_eq!(use_hop(&mut [0x45]), None);
    }

    #[test]
    fn complaints_go_to_the_source_and_never_about_complaints() {
        let from = Some(IpAddr::from(ROUTER));
        let packet = tcp((NEAR, 1), (FAR, 2), true, b"");
        for (what, kind, code) in [(Complaint::Unreachable, 3, 1), (Complaint::Expired, 11, 0)] {
            let answer = complaint(&packet, from, what).expect("IPv4");
            assert_eq!(answer[12..20], [ROUTER, NEAR].concat());
            assert_eq!((answer[20], answer[21]), (kind, code));
            assert_eq!(answer[28..], packet[..28]);
            assert_eq!(complaint(&answer, from, what), None);
        }
        let large = Complaint::TooLarge { mtu: 1_280 };
        let mut packet = packet;
        packet[6] = 0;
        assert_eq!(complaint(&packet, from, large), None, "it may be fragmented");
        packet[6] = 0x40;
        let answer = complaint(&packet, None, large).expect("it may not");
        assert_eq!(answer[12..16], DUMMY.octets());
        assert_eq!((answer[20], answer[21], &answer[26..28]), (3, 4, &1_280u16.to_be_bytes()[..]));
    }

    #[test]
    fn echo_comes_back() {
        let header = etherparse::IcmpEchoHeader { id: 7, seq: 9 };
        let mut request = Vec::new();
        PacketBuilder::ipv4(NEAR, FAR, 3)
            .icmpv4(Icmpv4Type::EchoRequest(header))
            .write(&mut request, b"ping")
            .expect("a vector takes anything");
        let mut reply = Vec::new();
        PacketBuilder::ipv4(FAR, NEAR, HOPS)
            .icmpv4(Icmpv4Type::EchoReply(header))
            .write(&mut reply, b"ping")
            .expect("a vector takes anything");
        assert_eq!(echo_reply(&request), Some(reply.clone()));
        assert_eq!(echo_reply(&reply), None);
        let (near, far) = ([1; 16], [2; 16]);
        let mut request = Vec::new();
        PacketBuilder::ipv6(near, far, 3)
            .icmpv6(Icmpv6Type::EchoRequest(header))
            .write(&mut request, b"ping")
            .expect("a vector takes anything");
        let mut reply = Vec::new();
        PacketBuilder::ipv6(far, near, HOPS)
            .icmpv6(Icmpv6Type::EchoReply(header))
            .write(&mut reply, b"ping")
            .expect("a vector takes anything");
        assert_eq!(echo_reply(&request), Some(reply));
    }

    #[test]
    fn unreachable_goes_back_to_the_source() {
        let answer = host_unreachable(&tcp((NEAR, 1), (FAR, 2), true, b"")).expect("IPv4");
        let sliced = SlicedPacket::from_ip(&answer).expect("an IP packet");
        let Some(NetSlice::Ipv4(ip)) = sliced.net else { panic!("IPv4") };
        assert_eq!(ip.header().destination(), NEAR);
        assert_eq!(ip.header().source(), [10, 77, 1, 254]);
        assert!(matches!(sliced.transport, Some(TransportSlice::Icmpv4(_))));
    }
}
