//! Segments of a packet that the kernel has not divided, as it would have done it itself
//! (`tcp_gso_segment` and `inet_gso_segment` of Linux).

use wire::ip::update_checksum;
use wire::tcp::Flags;

use super::sum::Sum;
use super::{DeviceHeader, HAS_CWR, NEEDS_CHECKSUM, TCP_CHECKSUM, TCP_OVER_IPV4, TCP_OVER_IPV6};
use crate::frame::Frame;
use crate::packet::Headers;

/// PSH, which gateways have no other use for.
const PSH: u8 = 0x08;

/// The segments of a packet, first to last.
pub(crate) struct Segments<'a> {
    packet: &'a [u8],
    headers: Headers,
    /// The octets of payload in each.
    segment: usize,
    /// The octets of payload that were handed out; `None` once all were.
    done: Option<usize>,
    /// Whether checksums are to be computed.
    needs_checksum: bool,
}

impl<'a> Segments<'a> {
    /// Those of a packet with these headers that the device has handed over; `None` if its header
    /// says what it cannot of a segment of TCP.
    pub(crate) fn new(
        header: DeviceHeader,
        packet: &'a [u8],
        headers: Headers,
    ) -> Option<Segments<'a>> {
        let payload = packet.len() - headers.end();
        let needs_checksum = header.flags & NEEDS_CHECKSUM != 0;
        let is_of_tcp =
            (usize::from(header.sum_from), header.sum_at) == (headers.tcp(), TCP_CHECKSUM);
        let kind = if headers.is_ipv4() { TCP_OVER_IPV4 } else { TCP_OVER_IPV6 };
        let segment = match header.kind & !HAS_CWR {
            0 => payload,
            // What is divided has checksums of its own.
            own if own == kind && needs_checksum && header.segment > 0 => {
                usize::from(header.segment)
            }
            _ => return None,
        };
        if needs_checksum && !is_of_tcp {
            return None;
        }
        Some(Segments { packet, headers, segment, done: Some(0), needs_checksum })
    }
}

impl Iterator for Segments<'_> {
    type Item = (Frame, Headers);

    /// A segment, and its headers.
    fn next(&mut self) -> Option<(Frame, Headers)> {
        let Segments { packet, headers, segment, .. } = *self;
        let done = self.done?;
        let (tcp, end) = (headers.tcp(), headers.end());
        let rest = &packet[end + done..];
        let payload = &rest[..rest.len().min(segment)];
        let (is_first, is_last) = (done == 0, payload.len() == rest.len());
        self.done = (!is_last).then_some(done + payload.len());
        let mut frame = Frame::with_capacity(end + payload.len());
        frame.extend(&packet[..end]);
        frame.extend(payload);
        if !(is_first && is_last) {
            // What is divided has segments of an octet at least.
            set_length(&mut frame, done / segment);
            let seq = word32(packet, tcp + 4).wrapping_add(low32(done));
            frame[tcp + 4..tcp + 8].copy_from_slice(&seq.to_be_bytes());
            if !is_last {
                frame[tcp + 13] &= !(PSH | Flags::FIN.0);
            }
            if !is_first {
                frame[tcp + 13] &= !Flags::CWR.0;
            }
        }
        if self.needs_checksum {
            let at = tcp + usize::from(TCP_CHECKSUM);
            frame[at..at + 2].fill(0);
            let sum = Sum::of_pseudo_header(&frame, frame.len() - tcp).with(&frame[tcp..]);
            let sum = sum.checksum();
            frame[at..at + 2].copy_from_slice(&sum);
        }
        let headers = headers.of_segment(low32(done), payload.len(), Flags(frame[tcp + 13]));
        Some((frame, headers))
    }
}

/// Writes the length of a packet into its header of IP; one of IPv4 has an identification that
/// counts from that of the first, too.
fn set_length(packet: &mut [u8], number: usize) {
    let length = packet.len();
    if packet[0] >> 4 == 4 {
        let id = word16(packet, 4).wrapping_add(low16(number));
        replace_word(packet, 2, low16(length));
        replace_word(packet, 4, id);
    } else {
        packet[4..6].copy_from_slice(&low16(length - 40).to_be_bytes());
    }
}

/// Replaces a word in a header of IPv4.
pub(super) fn replace_word(packet: &mut [u8], at: usize, word: u16) {
    let sum = update_checksum(word16(packet, 10), word16(packet, at), word);
    packet[at..at + 2].copy_from_slice(&word.to_be_bytes());
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

pub(super) fn word16(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

pub(super) fn word32(packet: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
}

/// Of a length, which fits: a packet has less than 64 KiB.
#[expect(clippy::cast_possible_truncation, reason = "as it says")]
pub(super) fn low16(length: usize) -> u16 {
    length as u16
}

#[expect(clippy::cast_possible_truncation, reason = "as above")]
fn low32(length: usize) -> u32 {
    length as u32
}

#[cfg(test)]
pub(super) mod tests {
    use etherparse::{PacketBuilder, TcpHeader, TcpOptionElement};

    use super::*;
    use crate::packet::tests::{ends, is_whole, segment};

    /// A header of what is divided, over these headers.
    pub(in crate::offload) fn divided(headers: &Headers, segment: u16) -> DeviceHeader {
        DeviceHeader {
            flags: NEEDS_CHECKSUM,
            kind: if headers.is_ipv4() { TCP_OVER_IPV4 } else { TCP_OVER_IPV6 },
            headers: low16(headers.end()),
            segment,
            sum_from: low16(headers.tcp()),
            sum_at: TCP_CHECKSUM,
        }
    }

    fn split(header: &DeviceHeader, packet: &[u8]) -> Option<Vec<Vec<u8>>> {
        let headers = Headers::parse(packet).expect("it is TCP");
        let all = Segments::new(*header, packet, headers)?;
        let checked = |(frame, headers): (Frame, Headers)| {
            assert_eq!(Headers::parse(&frame), Some(headers));
            frame.to_vec()
        };
        Some(all.map(checked).collect())
    }

    fn change(header: &mut TcpHeader) {
        (header.sequence_number, header.acknowledgment_number) = (u32::MAX - 2_000, 77);
        (header.psh, header.fin, header.cwr, header.ece) = (true, true, true, true);
        header.set_options(&[TcpOptionElement::Timestamp(7, 9)]).expect("they fit");
    }

    #[test]
    fn segments_are_those_that_the_host_would_have_sent() {
        let payload: Vec<u8> =
            (0..4_000_u32).map(|at| ((at * 7_919) >> 4).to_be_bytes()[3]).collect();
        for is_v6 in [false, true] {
            let (near, far) = ends(is_v6);
            let whole = segment(near, far, &payload, change);
            let headers = Headers::parse(&whole).expect("it is TCP");
            let segments = split(&divided(&headers, 1_348), &whole).expect("it can be divided");
            let wanted: Vec<Vec<u8>> = payload
                .chunks(1_348)
                .enumerate()
                .map(|(number, piece)| {
                    let mut one = segment(near, far, piece, |header| {
                        change(header);
                        let before = 1_348 * u32::try_from(number).expect("few");
                        header.sequence_number = header.sequence_number.wrapping_add(before);
                        (header.psh, header.fin) = (number == 2, number == 2);
                        header.cwr = number == 0;
                    });
                    if !is_v6 {
                        let id = word16(&one, 4) + u16::try_from(number).expect("few");
                        replace_word(&mut one, 4, id);
                    }
                    one
                })
                .collect();
            assert!(segments == wanted, "{segments:?}\n{wanted:?}");
            assert!(segments.iter().all(|one| is_whole(one)));
        }
    }

    #[test]
    fn a_checksum_that_is_not_complete_is_completed() {
        for is_v6 in [false, true] {
            let (near, far) = ends(is_v6);
            for payload in [&b""[..], b"odd"] {
                let whole = segment(near, far, payload, |_| {});
                let headers = Headers::parse(&whole).expect("it is TCP");
                let at = headers.tcp() + 16;
                let mut partial = whole.clone();
                let sum = Sum::of_pseudo_header(&whole, whole.len() - headers.tcp()).folded();
                partial[at..at + 2].copy_from_slice(&sum);
                let header = DeviceHeader { kind: 0, segment: 0, ..divided(&headers, 1) };
                assert_eq!(split(&header, &partial), Some(vec![whole.clone()]));
                // One that is complete stays as it is, right or wrong.
                let plain = DeviceHeader::PLAIN;
                assert_eq!(split(&plain, &partial), Some(vec![partial.clone()]));
            }
        }
    }

    #[test]
    fn headers_that_are_none_of_tcp_divide_nothing() {
        let (near, far) = ends(false);
        let whole = segment(near, far, &[7; 3_000], |_| {});
        let headers = Headers::parse(&whole).expect("it is TCP");
        let right = divided(&headers, 1_000);
        assert_eq!(split(&right, &whole).map(|all| all.len()), Some(3));
        for wrong in [
            DeviceHeader { segment: 0, ..right },
            DeviceHeader { kind: TCP_OVER_IPV6, ..right },
            DeviceHeader { kind: 3, ..right },
            DeviceHeader { flags: 0, ..right },
            DeviceHeader { sum_from: 0, ..right },
            DeviceHeader { sum_at: 6, ..right },
            DeviceHeader { kind: 0, sum_at: 6, ..right },
        ] {
            assert_eq!(split(&wrong, &whole), None, "{wrong:?}");
        }
        // A datagram is no segment at all.
        let mut udp = Vec::new();
        let builder = PacketBuilder::ipv4([10, 1, 0, 2], [10, 2, 0, 2], 60).udp(1, 2);
        builder.write(&mut udp, b"datagram").expect("it fits");
        assert_eq!(Headers::parse(&udp), None);
    }
}
