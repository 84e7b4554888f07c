//! Packet headers: the fields that the emulator reads, and the few bytes that it changes.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use wire::ip::update_checksum;

/// A TCP segment or UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) transport: Transport,
    /// The offset of the transport header.
    header: usize,
    /// The offset of its checksum.
    checksum: usize,
    pub(crate) payload: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp { syn: bool },
    Udp,
}

impl View {
    /// Reads a packet; `None` if it is neither TCP nor UDP.
    pub(crate) fn of(packet: &[u8]) -> Option<View> {
        let sliced = SlicedPacket::from_ip(packet).ok()?;
        let (source, destination): (IpAddr, IpAddr) = match &sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            Some(NetSlice::Ipv6(ip)) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            _ => return None,
        };
        let (transport, ports, slice, payload, checksum) = match &sliced.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                let ports = (tcp.source_port(), tcp.destination_port());
                (Transport::Tcp { syn: tcp.syn() }, ports, tcp.slice(), tcp.payload(), 16)
            }
            Some(TransportSlice::Udp(udp)) => {
                let ports = (udp.source_port(), udp.destination_port());
                (Transport::Udp, ports, udp.slice(), udp.payload(), 6)
            }
            _ => return None,
        };
        // Both are parts of `packet`.
        let header = slice.as_ptr().addr() - packet.as_ptr().addr();
        let begin = payload.as_ptr().addr() - packet.as_ptr().addr();
        Some(View {
            source: SocketAddr::new(source, ports.0),
            destination: SocketAddr::new(destination, ports.1),
            transport,
            header,
            checksum: header + checksum,
            payload: begin..begin + payload.len(),
        })
    }

    /// A number for its flow: addresses, ports and protocol, hashed by FNV-1a, so that a run
    /// repeats.
    pub(crate) fn flow(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut mix =
            |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        for address in [self.source, self.destination] {
            match address.ip() {
                IpAddr::V4(ip) => ip.octets().into_iter().for_each(&mut mix),
                IpAddr::V6(ip) => ip.octets().into_iter().for_each(&mut mix),
            }
            address.port().to_be_bytes().into_iter().for_each(&mut mix);
        }
        mix(u8::from(self.transport == Transport::Udp));
        hash
    }

    pub(crate) fn has_payload(&self) -> bool {
        !self.payload.is_empty()
    }

    /// Whether an application caused it: it opens a connection or carries payload.
    pub(crate) fn is_traffic(&self) -> bool {
        self.has_payload() || self.transport == Transport::Tcp { syn: true }
    }
}

/// Flips a bit in the middle of the payload and repairs the checksum, as a broken middlebox would.
/// A packet without payload stays as it is. Returns whether it changed anything.
pub(crate) fn corrupt(packet: &mut [u8]) -> bool {
    let Some(view) = View::of(packet).filter(View::has_payload) else { return false };
    let at = view.payload.start + view.payload.len() / 2;
    let old = packet[at];
    packet[at] ^= 0x10;
    let sum = u16::from_be_bytes([packet[view.checksum], packet[view.checksum + 1]]);
    // UDP over IPv4 may go without a checksum: zero.
    if sum != 0 {
        let is_high = (at - view.header).is_multiple_of(2);
        let word = |byte: u8| if is_high { u16::from(byte) << 8 } else { u16::from(byte) };
        let sum = update_checksum(sum, word(old), word(packet[at]));
        packet[view.checksum..view.checksum + 2].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

#[cfg(test)]
pub(crate) mod tests {
    use etherparse::PacketBuilder;

    use wire::ip::{is_ecn_capable, is_scalable, mark};

    use super::*;

    pub(crate) const NEAR: [u8; 4] = [10, 77, 1, 1];
    pub(crate) const FAR: [u8; 4] = [10, 77, 1, 2];

    pub(crate) fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4(from.0, to.0, 64).udp(from.1, to.1);
        builder.write(&mut packet, payload).expect("a vector takes anything");
        packet
    }

    pub(crate) fn tcp(
        from: ([u8; 4], u16),
        to: ([u8; 4], u16),
        syn: bool,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4(from.0, to.0, 64).tcp(from.1, to.1, 1, 1_000);
        let builder = if syn { builder.syn() } else { builder.ack(1) };
        builder.write(&mut packet, payload).expect("a vector takes anything");
        packet
    }

    pub(crate) fn checksum_is_right(packet: &[u8]) -> bool {
        let sliced = SlicedPacket::from_ip(packet).expect("an IP packet");
        let Some(NetSlice::Ipv4(ip)) = &sliced.net else { panic!("IPv4") };
        let (source, destination) = (ip.header().source(), ip.header().destination());
        match &sliced.transport {
            Some(TransportSlice::Udp(udp)) => {
                let sum =
                    udp.to_header().calc_checksum_ipv4_raw(source, destination, udp.payload());
                sum.expect("short enough") == udp.checksum()
            }
            Some(TransportSlice::Tcp(tcp)) => {
                let sum =
                    tcp.to_header().calc_checksum_ipv4_raw(source, destination, tcp.payload());
                sum.expect("short enough") == tcp.checksum()
            }
            _ => panic!("TCP or UDP"),
        }
    }

    #[test]
    fn reads_tcp_and_udp() {
        let packet = tcp((NEAR, 5_000), (FAR, 80), true, b"");
        let view = View::of(&packet).expect("TCP");
        assert_eq!(view.transport, Transport::Tcp { syn: true });
        assert_eq!(view.source, SocketAddr::from((NEAR, 5_000)));
        assert!(view.is_traffic() && !view.has_payload());
        let packet = udp((NEAR, 5_000), (FAR, 53), b"hello");
        let view = View::of(&packet).expect("UDP");
        assert_eq!(&packet[view.payload.clone()], b"hello");
        assert!(!View::of(&tcp((NEAR, 1), (FAR, 2), false, b"")).expect("TCP").is_traffic());
    }

    #[test]
    fn corruption_changes_one_byte_and_the_checksum_stays_right() {
        for len in 1..40u8 {
            let payload: Vec<u8> = (0..len).collect();
            for clean in
                [udp((NEAR, 1), (FAR, 2), &payload), tcp((NEAR, 1), (FAR, 2), false, &payload)]
            {
                let mut packet = clean.clone();
                assert!(corrupt(&mut packet));
                let view = View::of(&packet).expect("still one");
                let differ = packet[view.payload.clone()]
                    .iter()
                    .zip(&payload)
                    .filter(|(a, b)| a != b)
                    .count();
                assert_eq!(differ, 1);
                assert!(checksum_is_right(&packet), "{len} bytes");
            }
        }
    }

    #[test]
    fn marks_are_ce_and_the_header_checksum_stays_right() {
        for ecn in [
            etherparse::IpEcn::ZERO,
            etherparse::IpEcn::ONE,
            etherparse::IpEcn::TWO,
            etherparse::IpEcn::THREE,
        ] {
            let header = etherparse::Ipv4Header {
                ecn,
                dscp: etherparse::IpDscp::try_new(0x2e).expect("6 bits"),
                ..etherparse::Ipv4Header::new(8, 64, etherparse::IpNumber::UDP, NEAR, FAR)
                    .expect("short")
            };
            let mut packet = Vec::new();
            PacketBuilder::ip(etherparse::IpHeaders::Ipv4(
                header,
                etherparse::Ipv4Extensions::default(),
            ))
            .udp(1, 2)
            .write(&mut packet, b"data")
            .expect("a vector takes anything");
            assert_eq!(is_ecn_capable(&packet), ecn != etherparse::IpEcn::ZERO);
            let is_odd = [etherparse::IpEcn::ONE, etherparse::IpEcn::THREE].contains(&ecn);
            assert_eq!(is_scalable(&packet), is_odd);
            mark(&mut packet);
            let sliced = SlicedPacket::from_ip(&packet).expect("an IP packet");
            let Some(NetSlice::Ipv4(ip)) = sliced.net else { panic!("IPv4") };
            let marked = ip.header().to_header();
            assert_eq!((marked.ecn, marked.dscp.value()), (etherparse::IpEcn::THREE, 0x2e));
            assert_eq!(marked.header_checksum, marked.calc_header_checksum());
        }
        let mut six = [0u8; 40];
        six[0] = 0x60;
        assert!(!is_ecn_capable(&six));
        six[1] = 0x20;
        assert!(is_ecn_capable(&six));
        mark(&mut six);
        assert_eq!(six[..2], [0x60, 0x30]);
        mark(&mut []);
    }

    #[test]
    fn flows_differ_by_port_and_protocol() {
        let flow = |packet: &[u8]| View::of(packet).expect("TCP or UDP").flow();
        let one = flow(&udp((NEAR, 1), (FAR, 2), b"x"));
        assert_eq!(one, flow(&udp((NEAR, 1), (FAR, 2), b"another")));
        assert_ne!(one, flow(&udp((NEAR, 3), (FAR, 2), b"x")));
        assert_ne!(one, flow(&tcp((NEAR, 1), (FAR, 2), false, b"x")));
    }

    #[test]
    fn a_packet_without_payload_is_not_corrupted() {
        let mut packet = tcp((NEAR, 1), (FAR, 2), true, b"");
        assert!(!corrupt(&mut packet));
    }
}
