//! What travels between gateways: datagrams with messages, which may carry segments.

use std::io::{self, Write};
use std::net::Ipv4Addr;

use units::Time;
use wire::harp;
use wire::tcp::Segment;

use super::{
    IP_HEADER, Pcap, Ports, TCP, UDP, UDP_HEADER, checked_tcp_header, ip_header, udp_checksum,
    udp_header,
};

/// The port of both gateways of a pair.
const PORT: u16 = 4_277;

impl<W: Write> Pcap<W> {
    /// Writes a TCP segment in a UDP datagram between two gateways: `inner` are the addresses and
    /// ports of the segment. The inner packet has the same ECN field as the datagram (RFC 6040).
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_tunnelled(
        &mut self,
        at: Time,
        gateways: (Ipv4Addr, Ipv4Addr),
        message: &harp::Header,
        hosts: (Ipv4Addr, Ipv4Addr),
        ports: Ports,
        segment: &Segment,
    ) -> io::Result<()> {
        let mut payload = Vec::with_capacity(128);
        harp::emit(message, &mut payload);
        let header = checked_tcp_header(hosts, ports, segment);
        let length = header.len() + usize::from(segment.len);
        payload.extend(ip_header(hosts.0, hosts.1, TCP, self.ecn, IP_HEADER + length));
        payload.extend(header);
        self.write_between_gateways(at, gateways, &payload, usize::from(segment.len))
    }

    /// Writes a message between two gateways that carries no packet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_message(
        &mut self,
        at: Time,
        gateways: (Ipv4Addr, Ipv4Addr),
        message: &harp::Header,
    ) -> io::Result<()> {
        let mut payload = Vec::with_capacity(64);
        harp::emit(message, &mut payload);
        self.write_between_gateways(at, gateways, &payload, 0)
    }

    /// Writes a datagram of this payload and `zeros` more.
    fn write_between_gateways(
        &mut self,
        at: Time,
        (from, to): (Ipv4Addr, Ipv4Addr),
        payload: &[u8],
        zeros: usize,
    ) -> io::Result<()> {
        let ports = Ports { from: PORT, to: PORT };
        let length = UDP_HEADER + payload.len() + zeros;
        let mut datagram = udp_header(ports, length);
        datagram.extend(payload);
        let sum = udp_checksum(from, to, &datagram, length);
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        self.write(at, from, to, UDP, &datagram, length)
    }
}
