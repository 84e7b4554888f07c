//! Simulated packets as a capture that Wireshark and tcpdump open.
//!
//! A classic capture file with nanoseconds, of raw IPv4 packets: no link layer. Only headers are
//! written; the original length says how large the packet was, as a capture with a snapshot length
//! would. Checksums are right for a payload of zeros.

mod gateways;

use std::io::{self, Write};
use std::net::Ipv4Addr;

use units::Time;
use wire::tcp::{Flags, SackBlock, Segment};

use crate::packet::Ecn;

/// The magic number of captures with nanoseconds, in network byte order.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Packets begin with the IP header.
const LINKTYPE_RAW: u32 = 101;
/// More than two IPv4 headers of 20 bytes, a message's 18 with UDP's header, and a TCP header of at
/// most 60.
const SNAPLEN: u32 = 256;

const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The kind of the option with counters of marks (RFC 9768).
const ACC_ECN_1: u8 = 174;

/// The window scale that both ends of a simulated connection announce (RFC 7323): windows of up to
/// 1 GiB, in steps of 16 KiB.
pub const WINDOW_SHIFT: u8 = 14;

/// The maximum segment size that SYNs announce.
pub const MSS: u16 = 1460;

/// The ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The source port.
    pub from: u16,
    /// The destination port.
    pub to: u16,
}

/// A writer of a capture.
#[derive(Debug)]
pub struct Pcap<W> {
    writer: W,
    ecn: Ecn,
}

impl<W: Write> Pcap<W> {
    /// Begins a capture. The writer should be buffered.
    ///
    /// # Errors
    /// If the file's header cannot be written.
    pub fn new(mut writer: W) -> io::Result<Pcap<W>> {
        let mut header = Vec::with_capacity(24);
        header.extend(MAGIC.to_be_bytes());
        // Version 2.4; the zone and the accuracy of its clock, zero by custom.
        header.extend([0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        header.extend(SNAPLEN.to_be_bytes());
        header.extend(LINKTYPE_RAW.to_be_bytes());
        writer.write_all(&header)?;
        Ok(Pcap { writer, ecn: Ecn::Incapable })
    }

    /// Sets the ECN field of the packets from here on.
    pub fn mark(&mut self, ecn: Ecn) {
        self.ecn = ecn;
    }

    /// Writes a TCP segment at time `at`. Sequence numbers wrap at 32 bits.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_tcp(
        &mut self,
        at: Time,
        from: Ipv4Addr,
        to: Ipv4Addr,
        ports: Ports,
        segment: &Segment,
    ) -> io::Result<()> {
        let header = checked_tcp_header((from, to), ports, segment);
        let length = header.len() + usize::from(segment.len);
        self.write(at, from, to, TCP, &header, length)
    }

    /// Writes a UDP datagram with `payload` bytes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_udp(
        &mut self,
        at: Time,
        from: Ipv4Addr,
        to: Ipv4Addr,
        ports: Ports,
        payload: u16,
    ) -> io::Result<()> {
        let length = UDP_HEADER + usize::from(payload);
        let mut header = udp_header(ports, length);
        let sum = udp_checksum(from, to, &header, length);
        header[6..8].copy_from_slice(&sum.to_be_bytes());
        self.write(at, from, to, UDP, &header, length)
    }

    /// Flushes the writer and returns it.
    ///
    /// # Errors
    /// If its buffer cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }

    fn write(
        &mut self,
        at: Time,
        from: Ipv4Addr,
        to: Ipv4Addr,
        protocol: u8,
        transport: &[u8],
        length: usize,
    ) -> io::Result<()> {
        let ip = ip_header(from, to, protocol, self.ecn, IP_HEADER + length);
        let nanos = at.as_nanos();
        // 136 years fit; later times wrap.
        let seconds = u32::try_from(nanos / 1_000_000_000 % (1 << 32)).expect("taken modulo 2^32");
        let fraction = u32::try_from(nanos % 1_000_000_000).expect("less than a second");
        let captured = u32::try_from(ip.len() + transport.len()).expect("headers are short");
        let original = u32::from(total(IP_HEADER + length));
        let mut record = Vec::with_capacity(16 + IP_HEADER + transport.len());
        for word in [seconds, fraction, captured, original] {
            record.extend(word.to_be_bytes());
        }
        record.extend(ip);
        record.extend(transport);
        self.writer.write_all(&record)
    }
}

fn ip_header(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    ecn: Ecn,
    length: usize,
) -> [u8; IP_HEADER] {
    let mut header = [0; IP_HEADER];
    header[0] = 0x45;
    header[1] = match ecn {
        Ecn::Incapable => 0b00,
        Ecn::Capable => 0b10,
        Ecn::Scalable => 0b01,
        Ecn::Marked => 0b11,
    };
    header[2..4].copy_from_slice(&total(length).to_be_bytes());
    // Never fragmented, so that the identification may stay zero (RFC 6864).
    header[6] = 0x40;
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum = fold(add(0, &header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// The header of a datagram of `length` bytes, the checksum still zero.
fn udp_header(ports: Ports, length: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(UDP_HEADER);
    header.extend(ports.from.to_be_bytes());
    header.extend(ports.to.to_be_bytes());
    header.extend(total(length).to_be_bytes());
    header.extend([0, 0]);
    header
}

/// The checksum of a datagram that begins with `header`; zero would mean that there is none (RFC
/// 768).
fn udp_checksum(from: Ipv4Addr, to: Ipv4Addr, header: &[u8], length: usize) -> u16 {
    match transport_checksum(from, to, UDP, header, length) {
        0 => 0xffff,
        sum => sum,
    }
}

/// The header with its options and its checksum.
fn checked_tcp_header(
    (from, to): (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    segment: &Segment,
) -> Vec<u8> {
    let mut header = tcp_header(ports, segment);
    let length = header.len() + usize::from(segment.len);
    let sum = transport_checksum(from, to, TCP, &header, length);
    header[16..18].copy_from_slice(&sum.to_be_bytes());
    header
}

/// The header with its options, the checksum still zero.
fn tcp_header(ports: Ports, segment: &Segment) -> Vec<u8> {
    let syn = segment.flags.has(Flags::SYN);
    let ack = if segment.flags.has(Flags::ACK) { low(segment.ack) } else { 0 };
    let options = options(segment, syn);
    let words = u8::try_from((TCP_HEADER + options.len()) / 4).expect("at most 15 words");
    // Windows of SYNs are never scaled (RFC 7323, section 2.2). Others are rounded up, so that a
    // small window does not look like a closed one.
    let window = if syn { segment.window } else { segment.window.div_ceil(1 << WINDOW_SHIFT) };
    let mut header = Vec::with_capacity(TCP_HEADER + options.len());
    header.extend(ports.from.to_be_bytes());
    header.extend(ports.to.to_be_bytes());
    header.extend(low(segment.seq).to_be_bytes());
    header.extend(ack.to_be_bytes());
    // The highest bit of accurate ECN is in the octet before the other flags.
    let accurate = u8::from(segment.flags.has(Flags::AE));
    let flags = segment.flags.0 & !(Flags::COUNTERS.0 | Flags::AE.0);
    header.extend([words << 4 | accurate, flags]);
    header.extend(u16::try_from(window).unwrap_or(u16::MAX).to_be_bytes());
    // Checksum and urgent pointer.
    header.extend([0; 4]);
    header.extend(options);
    header
}

/// The options of a current sender: on SYNs MSS, SACK permitted and window scale; always
/// timestamps. At most 40 bytes, in whole words.
fn options(segment: &Segment, syn: bool) -> Vec<u8> {
    let mut options = Vec::with_capacity(40);
    if syn {
        // MSS, SACK permitted.
        options.extend([2, 4]);
        options.extend(MSS.to_be_bytes());
        options.extend([4, 2]);
    } else {
        options.extend([1, 1]);
    }
    options.extend([8, 10]);
    options.extend(segment.timestamp.to_be_bytes());
    options.extend(segment.timestamp_echo.to_be_bytes());
    if syn {
        options.extend([1, 3, 3, WINDOW_SHIFT]);
        return options;
    }
    if segment.flags.has(Flags::COUNTERS) {
        // Accurate ECN, order 1 (RFC 9768, section 3.2.3): no byte with ECT(1), whose counter
        // begins at one, and the bytes with CE.
        options.extend([ACC_ECN_1, 8, 0, 0, 1]);
        options.extend(&segment.ce().bytes.to_be_bytes()[1..]);
    }
    if segment.flags.has(Flags::ACK) && !segment.sacked().is_empty() {
        let blocks = segment.sacked();
        options.extend([
            1,
            1,
            5,
            u8::try_from(2 + 8 * blocks.len()).expect("three blocks at most"),
        ]);
        for SackBlock { from, len } in blocks {
            let first = low(segment.ack.wrapping_add_signed(i64::from(*from)));
            options.extend(first.to_be_bytes());
            options.extend(first.wrapping_add(*len).to_be_bytes());
        }
    }
    options
}

/// The lower 32 bits of a sequence number: the part in the header.
fn low(position: u64) -> u32 {
    u32::try_from(position & u64::from(u32::MAX)).expect("masked")
}

/// A length field. Larger packets are shown with the maximum of 65535 bytes.
fn total(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// The checksum of RFC 9293, section 3.1, and RFC 768: over a pseudo-header, the header and a
/// payload of zeros, which add nothing.
fn transport_checksum(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    header: &[u8],
    length: usize,
) -> u16 {
    // The length in the IP header: that is the one that readers of captures use.
    let length = total(IP_HEADER + length) - 20;
    let sum = add(add(add(0, &from.octets()), &to.octets()), header);
    fold(sum + u32::from(protocol) + u32::from(length))
}

fn add(sum: u32, bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .fold(sum, |sum, word| sum + word)
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).expect("folded")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use wire::tcp::CeCounters;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const PORTS: Ports = Ports { from: 40_000, to: 80 };

    fn record(write: impl FnOnce(&mut Pcap<Vec<u8>>)) -> Vec<u8> {
        let mut pcap = Pcap::new(Vec::new()).unwrap();
        write(&mut pcap);
        pcap.finish().unwrap().split_off(24)
    }

    /// The sum over data with a valid checksum is all ones (RFC 1071).
    fn right(sum: u32) -> bool {
        fold(sum) == 0
    }

    fn pseudo(packet: &[u8]) -> u32 {
        let length = u32::from(u16::from_be_bytes([packet[2], packet[3]])) - 20;
        add(add(0, &packet[12..20]), &packet[20..]) + u32::from(packet[9]) + length
    }

    #[test]
    fn the_file_header() {
        let header = Pcap::new(Vec::new()).unwrap().finish().unwrap();
        assert_eq!(header, b"\xa1\xb2\x3c\x4d\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\x65");
    }

    #[test]
    fn a_known_segment() {
        let segment = Segment {
            seq: (7 << 32) + 1,
            ack: (1 << 32) + 0x10,
            window: 3 << WINDOW_SHIFT,
            len: 1448,
            flags: Flags::ACK,
            sack_count: 2,
            sack: [
                SackBlock { from: 0x100, len: 0x20 },
                SackBlock { from: -0x11, len: 1 },
                SackBlock::default(),
            ],
            timestamp: 0x0102_0304,
            timestamp_echo: 5,
        };
        let record = record(|pcap| {
            pcap.write_tcp(Time::from_nanos(3_000_000_007), A, B, PORTS, &segment).unwrap();
        });
        let bytes = |hex: &str| -> Vec<u8> {
            let digits: Vec<u8> = hex
                .chars()
                .filter_map(|c| c.to_digit(16))
                .map(|digit| u8::try_from(digit).unwrap())
                .collect();
            digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
        };
        // Written out, with checksums computed by another program.
        let expected = [
            "00000003 00000007 00000048 000005f0",
            "45 00 05f0 0000 4000 40 06 2106 0a000001 0a000002",
            "9c40 0050 00000001 00000010 d0 10 0003 63fc 0000",
            "01 01 08 0a 01020304 00000005",
            "01 01 05 12 00000110 00000130 ffffffff 00000000",
        ];
        assert_eq!(record, bytes(&expected.concat()));
    }

    #[test]
    fn a_syn_announces_its_options() {
        let segment =
            Segment { window: 1 << 20, flags: Flags::SYN, timestamp: 9, ..Segment::default() };
        let record =
            record(|pcap| pcap.write_tcp(Time::from_nanos(0), A, B, PORTS, &segment).unwrap());
        let tcp = &record[16 + 20..];
        assert_eq!(
            tcp[12..16],
            [0xa0, 0x02, 0xff, 0xff],
            "ten words, SYN, the largest window that is not scaled"
        );
        assert_eq!(
            tcp[20..],
            *b"\x02\x04\x05\xb4\x04\x02\x08\x0a\0\0\0\x09\0\0\0\0\x01\x03\x03\x0e"
        );
    }

    #[test]
    fn counters_of_marks_leave_room_for_two_blocks() {
        let flags = Flags::ACK.with(Flags::ECE);
        let mut segment = Segment { ack: 1, flags, sack_count: 3, ..Segment::default() };
        segment.set_ce(CeCounters { packets: 3, bytes: 0x0102_0304 });
        let tcp = tcp_header(PORTS, &segment);
        assert_eq!((tcp.len(), tcp[12] >> 4, tcp[13]), (60, 15, 0x50), "the header's own flags");
        assert_eq!(tcp[32..40], *b"\xae\x08\0\0\x01\x02\x03\x04");
        assert_eq!(tcp[40..44], [1, 1, 5, 18]);
    }

    #[test]
    fn the_field_of_accurate_ecn_spans_two_octets() {
        let flags = Flags::ACK.with(Flags::AE).with(Flags::ECE);
        let tcp = tcp_header(PORTS, &Segment { flags, ..Segment::default() });
        assert_eq!(tcp[12..14], [0x81, 0x50]);
    }

    #[test]
    fn a_known_datagram() {
        let record = record(|pcap| {
            pcap.mark(Ecn::Marked);
            pcap.write_udp(Time::from_nanos(1), A, B, PORTS, 1000).unwrap();
        });
        assert_eq!(record[8..16], *b"\0\0\0\x1c\0\0\x04\x04", "28 bytes of 1028");
        assert_eq!(record[17], 3, "congestion experienced");
        assert_eq!(record[36..], *b"\x9c\x40\0\x50\x03\xf0\x47\x7b");
        assert!(right(add(0, &record[16..36])) && right(pseudo(&record[16..])));
    }

    #[test]
    fn small_windows_stay_open() {
        for (window, shown) in
            [(0, 0), (1, 1), (1 << 14, 1), ((1 << 14) + 1, 2), (u32::MAX, 0xffff)]
        {
            let header =
                tcp_header(PORTS, &Segment { window, flags: Flags::ACK, ..Segment::default() });
            assert_eq!(u16::from_be_bytes([header[14], header[15]]), shown, "{window}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(Pcap::new(full).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    fn any_segment() -> impl Strategy<Value = Segment> {
        let block = (any::<i32>(), any::<u32>()).prop_map(|(from, len)| SackBlock { from, len });
        let numbers =
            (any::<u64>(), any::<u64>(), any::<u32>(), any::<u16>(), any::<u8>(), any::<u8>());
        (numbers, [block.clone(), block.clone(), block], any::<u32>(), any::<u32>()).prop_map(
            |((seq, ack, window, len, flags, sack_count), sack, timestamp, timestamp_echo)| {
                let flags = Flags(flags);
                Segment {
                    seq,
                    ack,
                    window,
                    len,
                    flags,
                    sack_count,
                    sack,
                    timestamp,
                    timestamp_echo,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn any_segment_makes_a_valid_packet(
            segment in any_segment(),
            at in any::<u64>(),
            addresses in any::<(u32, u32)>(),
        ) {
            let (from, to) = (addresses.0.into(), addresses.1.into());
            let record = record(|pcap| {
                pcap.write_tcp(Time::from_nanos(at), from, to, PORTS, &segment).unwrap();
            });
            let packet = &record[16..];
            prop_assert_eq!(
                u32::from_be_bytes(record[8..12].try_into().unwrap()) as usize,
                packet.len()
            );
            prop_assert_eq!(
                record[14..16].to_vec(),
                packet[2..4].to_vec(),
                "the original length \
                is the packet's"
            );
            prop_assert!(u32::from_be_bytes(record[4..8].try_into().unwrap()) < 1_000_000_000);
            prop_assert!(right(add(0, &packet[..20])), "the header's checksum");
            prop_assert!(right(pseudo(packet)), "the segment's checksum");
            prop_assert_eq!(
                usize::from(packet[32] >> 4) * 4,
                packet.len() - 20,
                "the options fill \
                their words"
            );
            prop_assert_eq!(packet[24..28].to_vec(), segment.seq.to_be_bytes()[4..].to_vec());
        }
    }
}
