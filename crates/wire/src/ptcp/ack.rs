//! Acknowledgements: the latest range, and as many older ones as there are to name.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Deref;
use units::SubflowId;

use super::parse::NAME;
use crate::WireError;
use crate::reader::Reader;

/// Set beside the number of older ranges if counters of marks follow them.
const WITH_MARKS: u8 = 0x80;

/// Acknowledges packets of one path, and the in-order data of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The largest packet number that arrived.
    pub largest: u64,
    /// All data of [`Ack::stream`] before this offset has arrived.
    pub delivered: u64,
    /// Further ranges of packets that arrived.
    pub older: OlderRanges,
    /// The stream of the packet that caused this.
    pub stream: u32,
    /// The connection's flow control limit for all streams together, in KiB, lower 32 bits.
    pub limit: u32,
    /// The receiver's clock less the packet's stamp, for the packet `largest`, in microseconds;
    /// wraps. A difference of zero is given as one. `None` if the packet had no stamp.
    pub one_way: Option<NonZeroU32>,
    /// The number of packets up to `largest` that arrived without a gap; at least one.
    pub first: u16,
    /// The path of the acknowledged packets.
    pub path: SubflowId,
    /// What arrived marked Congestion Experienced; `None` for nothing.
    pub marks: Option<Marks>,
    /// How long the acknowledgement waited, in units of [`Ack::DELAY_UNIT`]; saturates.
    pub delay: u8,
}

impl Ack {
    /// Microseconds of one unit of [`Ack::delay`].
    pub const DELAY_UNIT: u64 = 128;
    /// Octets without older ranges and marks.
    const OCTETS: usize = 34;

    /// Octets of the body.
    pub(super) const fn body_len(&self) -> usize {
        let marks = if self.marks.is_some() { Marks::OCTETS } else { 0 };
        Ack::OCTETS + self.older.count() * PacketRange::OCTETS + marks
    }

    pub(super) fn emit(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.path.0.to_be_bytes());
        into.extend_from_slice(&self.largest.to_be_bytes());
        into.extend_from_slice(&self.first.to_be_bytes());
        into.extend_from_slice(&self.delivered.to_be_bytes());
        into.extend_from_slice(&self.stream.to_be_bytes());
        into.extend_from_slice(&self.limit.to_be_bytes());
        into.extend_from_slice(&self.one_way.map_or(0, NonZeroU32::get).to_be_bytes());
        let with_marks = if self.marks.is_some() { WITH_MARKS } else { 0 };
        into.extend_from_slice(&[self.older.octet() | with_marks, self.delay]);
        for range in &*self.older {
            into.extend_from_slice(&range.back.to_be_bytes());
            into.extend_from_slice(&range.len.to_be_bytes());
        }
        if let Some(Marks { packets, bytes }) = self.marks {
            into.extend_from_slice(&packets.to_be_bytes());
            into.extend_from_slice(&bytes.to_be_bytes());
        }
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Ack, WireError> {
        let (path, largest, first) = (SubflowId(reader.u16()?), reader.u64()?, reader.u16()?);
        let (delivered, stream, limit) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let one_way = NonZeroU32::new(reader.u32()?);
        let (follows, delay) = (reader.u8()?, reader.u8()?);
        if first == 0 || u64::from(first) > largest.saturating_add(1) {
            return Err(WireError::Field { frame: NAME, field: "range" });
        }
        let older = OlderRanges::parse(reader, follows & !WITH_MARKS, largest, first)?;
        let marks = if follows & WITH_MARKS == 0 {
            None
        } else {
            // Octets have one meaning: counters are there if they count something.
            let marks = Marks::new(reader.u16()?, reader.u32()?);
            Some(marks.ok_or(WireError::Field { frame: NAME, field: "counters" })?)
        };
        Ok(Ack { largest, delivered, older, stream, limit, one_way, first, path, marks, delay })
    }
}

/// Counters of the packets of a path that arrived marked Congestion Experienced (RFC 9768).
// Packed, to keep `Packet` at 56 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(Rust, packed(1))]
pub struct Marks {
    /// Their number; wraps.
    pub packets: u16,
    /// Their sizes as UDP payloads, together; wraps.
    pub bytes: u32,
}

impl Marks {
    const OCTETS: usize = 6;

    /// The counters; `None` if both are zero, and take no octets.
    #[must_use]
    pub const fn new(packets: u16, bytes: u32) -> Option<Marks> {
        if packets == 0 && bytes == 0 { None } else { Some(Marks { packets, bytes }) }
    }
}

/// A range of packet numbers, counted back from [`Ack::largest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketRange {
    /// The distance of its last number from the largest.
    pub back: u16,
    /// The number of packets.
    pub len: u16,
}

impl PacketRange {
    const OCTETS: usize = 4;
}

/// Ranges below the latest one, from the highest to the lowest, with at least one missing packet
/// between two. They are rare, so they lie behind a pointer: without them an acknowledgement takes
/// no memory of its own.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OlderRanges(Option<Box<List>>);

#[derive(Clone, PartialEq, Eq)]
struct List {
    len: u8,
    ranges: [PacketRange; OlderRanges::MOST],
}

impl OlderRanges {
    /// The most ranges of one acknowledgement, which then has less than 200 octets of datagram.
    pub const MOST: usize = 32;

    const fn count(&self) -> usize {
        self.octet() as usize
    }

    const fn octet(&self) -> u8 {
        match &self.0 {
            Some(list) => list.len,
            None => 0,
        }
    }

    /// A number that stands for them in digests; zero for none.
    pub(super) const fn fingerprint(&self) -> u64 {
        let Some(list) = &self.0 else { return 0 };
        let (mut hash, mut index) = (0u64, 0);
        while index < list.len as usize {
            let PacketRange { back, len } = list.ranges[index];
            hash = hash.rotate_left(5) ^ (back as u64) << 16 ^ len as u64;
            index += 1;
        }
        hash
    }

    /// Reads `count` ranges below the latest one. They are in order and do not touch, so that all
    /// together name each packet once.
    fn parse(
        reader: &mut Reader<'_>,
        count: u8,
        largest: u64,
        first: u16,
    ) -> Result<OlderRanges, WireError> {
        let count = usize::from(count);
        if count > OlderRanges::MOST {
            return Err(WireError::Field { frame: NAME, field: "number of ranges" });
        }
        let mut list = [PacketRange::default(); OlderRanges::MOST];
        // The distance of the missing packet below the range before.
        let mut gap = u32::from(first);
        for range in &mut list[..count] {
            let (back, len) = (reader.u16()?, reader.u16()?);
            let end = u32::from(back) + u32::from(len);
            // No range begins before the first packet.
            let is_below = u64::from(end) > largest.saturating_add(1);
            if len == 0 || u32::from(back) <= gap || is_below {
                return Err(WireError::Field { frame: NAME, field: "range" });
            }
            *range = PacketRange { back, len };
            gap = end;
        }
        Ok(list[..count].iter().copied().collect())
    }
}

/// The first [`OlderRanges::MOST`] of the ranges, which are in order.
impl FromIterator<PacketRange> for OlderRanges {
    fn from_iter<I: IntoIterator<Item = PacketRange>>(ranges: I) -> OlderRanges {
        let mut ranges = ranges.into_iter().take(OlderRanges::MOST);
        let Some(first) = ranges.next() else { return OlderRanges(None) };
        let mut list = List { len: 1, ranges: [PacketRange::default(); OlderRanges::MOST] };
        list.ranges[0] = first;
        for range in ranges {
            list.ranges[usize::from(list.len)] = range;
            list.len += 1;
        }
        OlderRanges(Some(Box::new(list)))
    }
}

impl Deref for OlderRanges {
    type Target = [PacketRange];

    #[inline]
    fn deref(&self) -> &[PacketRange] {
        match &self.0 {
            Some(list) => &list.ranges[..usize::from(list.len)],
            None => &[],
        }
    }
}

impl core::fmt::Debug for OlderRanges {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::ptcp::{Body, Packet};

    fn range(back: u16, len: u16) -> PacketRange {
        PacketRange { back, len }
    }

    /// An acknowledgement of 10,000 and the four before it, as bytes and parsed again.
    fn read(older: &[PacketRange], marks: Option<Marks>) -> Result<Ack, WireError> {
        let older = older.iter().copied().collect();
        let ack = Ack { largest: 10_000, first: 5, older, marks, ..Ack::default() };
        let packet = Packet { number: 7, body: Body::Ack(ack.clone()) };
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        assert_eq!(bytes.len(), 1 + packet.body_len());
        for cut in 0..bytes.len() {
            assert!(Packet::parse(7, &bytes[..cut]).is_err(), "{cut}");
        }
        let parsed = Packet::parse(7, &bytes)?;
        assert_eq!(parsed.packet, packet);
        Ok(ack)
    }

    #[test]
    fn as_many_ranges_as_there_are() {
        for count in 0..=OlderRanges::MOST {
            let ranges: Vec<_> = (1..).map(|n| range(100 * n, n)).take(count).collect();
            for marks in [None, Marks::new(3, 4_000)] {
                let ack = read(&ranges, marks).unwrap();
                assert_eq!(*ack.older, ranges);
            }
        }
        let many: OlderRanges = (1..=40).map(|n| range(10 * n, 1)).collect();
        assert_eq!(many.len(), OlderRanges::MOST);
    }

    #[test]
    fn ranges_are_below_each_other() {
        let wrong = Err(WireError::Field { frame: NAME, field: "range" });
        for ranges in [
            // Within the latest one, and next to it.
            vec![range(4, 1)],
            vec![range(5, 1)],
            vec![range(10, 0)],
            vec![range(10, 5), range(14, 1)],
            vec![range(10, 5), range(15, 1)],
            vec![range(20, 1), range(10, 1)],
            vec![range(10, 1), range(10, 1)],
            vec![range(10, u16::MAX), range(u16::MAX, 1)],
            vec![range(10_000, 2)],
        ] {
            assert_eq!(read(&ranges, None), wrong, "{ranges:?}");
        }
        read(&[range(6, 1), range(8, 1), range(10_000, 1)], None).unwrap();
    }

    #[test]
    fn too_many_ranges() {
        let ranges: Vec<_> = (1..=32).map(|n| range(10 * n, 1)).collect();
        let older = ranges.iter().copied().collect();
        let ack = Ack { largest: 1_000, first: 5, older, ..Ack::default() };
        let mut bytes = Vec::new();
        Packet { number: 7, body: Body::Ack(ack) }.emit(&mut bytes);
        assert_eq!(bytes[33], 32, "the number of ranges");
        bytes[33] = 33;
        bytes.extend([0x02, 0x00, 0x00, 0x01]);
        assert_eq!(
            Packet::parse(7, &bytes),
            Err(WireError::Field { frame: NAME, field: "number of ranges" })
        );
    }

    #[test]
    fn counters_of_nothing() {
        assert_eq!(
            read(&[], Some(Marks { packets: 0, bytes: 0 })),
            Err(WireError::Field { frame: NAME, field: "counters" })
        );
    }
}
