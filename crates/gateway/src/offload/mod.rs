//! Offload at the device: the kernel hands over several segments of a connection as one packet of
//! up to 64 KiB, with what it takes to divide it in a header before it, and takes such packets.
//!
//! The header is that of virtio's network devices (virtio 1.2, section 5.1.6) in the form that
//! Linux calls legacy: ten octets in the byte order of the machine.

mod join;
mod split;
mod sum;

pub(crate) use join::{Joined, Joiner};
pub(crate) use split::Segments;

use crate::frame::{Frame, ROOM};
use crate::packet::Headers;

/// The octets of the header, for which a frame has room.
pub(crate) const HEADER: usize = ROOM;

/// The checksum of the packet is that of its pseudo header so far (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CHECKSUM: u8 = 1;
/// It is to be divided: TCP over IPv4, and over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV4`, `_TCPV6`).
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
/// Its first segment may have CWR (`VIRTIO_NET_HDR_GSO_ECN`).
const HAS_CWR: u8 = 0x80;
/// Where the checksum is in a header of TCP.
const TCP_CHECKSUM: u16 = 16;

/// What stands before a packet of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceHeader {
    flags: u8,
    kind: u8,
    /// The octets of all headers of the packet. The kernel takes it for a hint, and so it is here.
    headers: u16,
    /// The octets of payload in each segment.
    segment: u16,
    /// Where what the checksum covers begins, and where in that it is.
    sum_from: u16,
    sum_at: u16,
}

impl DeviceHeader {
    /// That of a packet as on the wire.
    pub(crate) const PLAIN: DeviceHeader =
        DeviceHeader { flags: 0, kind: 0, headers: 0, segment: 0, sum_from: 0, sum_at: 0 };

    /// The header of what the device hands over, and the packet behind it; `None` if it ends
    /// early.
    pub(crate) fn parse(read: &[u8]) -> Option<(DeviceHeader, &[u8])> {
        let (&[flags, kind, ref words @ ..], packet) = read.split_first_chunk::<HEADER>()?;
        let word = |at: usize| u16::from_ne_bytes([words[2 * at], words[2 * at + 1]]);
        let (headers, segment, sum_from, sum_at) = (word(0), word(1), word(2), word(3));
        Some((DeviceHeader { flags, kind, headers, segment, sum_from, sum_at }, packet))
    }

    /// Its octets.
    pub(crate) fn octets(&self) -> [u8; HEADER] {
        let DeviceHeader { flags, kind, headers, segment, sum_from, sum_at } = *self;
        let mut octets = [0; HEADER];
        octets[..2].copy_from_slice(&[flags, kind]);
        for (at, word) in [headers, segment, sum_from, sum_at].into_iter().enumerate() {
            octets[2 + 2 * at..4 + 2 * at].copy_from_slice(&word.to_ne_bytes());
        }
        octets
    }
}

/// A packet for the kernel.
#[derive(Debug)]
pub(crate) struct ToKernel {
    header: DeviceHeader,
    frame: Frame,
    /// The headers of one that is a segment as on the wire.
    headers: Option<Headers>,
}

impl ToKernel {
    /// What the device has handed over goes back as it came.
    pub(crate) fn back(header: DeviceHeader, packet: &[u8]) -> ToKernel {
        ToKernel { header, frame: Frame::of(packet), headers: None }
    }

    /// A segment with these headers.
    pub(crate) fn segment((frame, headers): (Frame, Headers)) -> ToKernel {
        ToKernel { header: DeviceHeader::PLAIN, frame, headers: Some(headers) }
    }

    /// Its octets.
    #[cfg(test)]
    pub(crate) fn octets(&self) -> Vec<u8> {
        self.frame.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_parsed_as_they_are_written() {
        let header = DeviceHeader {
            flags: NEEDS_CHECKSUM,
            kind: TCP_OVER_IPV4,
            headers: 52,
            segment: 1_380,
            sum_from: 20,
            sum_at: TCP_CHECKSUM,
        };
        let written = [&header.octets()[..], b"packet"].concat();
        assert_eq!(DeviceHeader::parse(&written), Some((header, &b"packet"[..])));
        assert_eq!(DeviceHeader::parse(&written[..HEADER - 1]), None);
        // As linux/virtio_net.h has it.
        assert_eq!(written[..4], [&[1, 1][..], &52_u16.to_ne_bytes()].concat());
    }
}
