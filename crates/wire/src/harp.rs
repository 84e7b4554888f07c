//! Messages between two background gateways: what precedes a tunnelled packet, probes, reports.
//!
//! | kind | octets after it |
//! |---|---|
//! | 1 data | path 1, stamp 4, round trip 4, the packet |
//! | 2 return | the packet |
//! | 3 probe | path 1, stamp 4, round trip 4, flow 4 |
//! | 4 report | flow 4, open paths 1, paths with a queue 1, number of entries 1, lost position 4, |
//! | | lost length 4, entries |
//! | an entry | path 1, weight 2, echo 4, capacity 1 |
//!
//! In front of data the highest bit of the path says that the packet is the second of a pair.
//! Numbers are big-endian. Stamps are microseconds of the sender's clock and wrap after 71 minutes.

/// The paths between two gateways are numbered up to this; 0 is the direct one.
pub const MOST_PATHS: usize = 8;
/// The entries of a report. What does not fit goes with the next one.
pub const MOST_ENTRIES: usize = 4;
/// The octets in front of a data packet.
pub const DATA_HEADER: usize = 10;
/// The octets of a probe.
pub const PROBE: usize = DATA_HEADER + 4;
/// The octets in front of a packet that returns.
pub const RETURN_HEADER: usize = 1;
/// The octets of a report without entries, and of an entry.
const REPORT_HEADER: usize = 16;
const ENTRY: usize = 8;

/// In the octet with the path of data: the second of a pair.
const PAIRED: u8 = 0x80;

/// In the octet with the number of entries: nothing has arrived for long.
const DEAF: u8 = 0x80;

const KIND_DATA: u8 = 1;
const KIND_RETURN: u8 = 2;
const KIND_PROBE: u8 = 3;
const KIND_REPORT: u8 = 4;

/// What a packet took, and when it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the path.
    pub path: u8,
    /// The sender's clock when it left, microseconds.
    pub sent: u32,
    /// The sender's smoothed round-trip time of the path, microseconds; zero if it knows none.
    pub srtt: u32,
    /// Whether it left right behind the packet before, ahead of its pace: how far apart the two
    /// arrive tells what the path carries. Of data alone.
    pub is_paired: bool,
}

/// What a gateway saw arrive over one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathReport {
    /// The number of the path.
    pub path: u8,
    /// The weight of late packets since the last report, in sixteenths.
    pub weight: u16,
    /// The stamp of the latest packet plus the time for which it was here.
    pub echo: u32,
    /// What the path carries when nobody else uses it: the payload is `2^(capacity / 8)` kbit/s.
    /// Zero if it is not known.
    pub capacity: u8,
}

/// What a gateway that receives tells the one that sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// A bit for each path whose probe arrived in time.
    pub open: u8,
    /// A bit for each path with a packet that came through a queue, late or not.
    pub queued: u8,
    /// The number of valid entries.
    pub count: u8,
    /// Entries, one a path.
    pub entries: [PathReport; MOST_ENTRIES],
    /// The first missing position and the number of missing ones; none if that is zero.
    pub lost: (u32, u32),
    /// Nothing has arrived for so long that the one that sends counts as gone. It may be that this
    /// way alone carries.
    pub is_deaf: bool,
}

impl Report {
    /// The valid entries.
    #[must_use]
    pub fn entries(&self) -> &[PathReport] {
        &self.entries[..usize::from(self.count).min(MOST_ENTRIES)]
    }

    /// Whether it says nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.open == 0 && self.count == 0 && self.lost.1 == 0 && !self.is_deaf
    }

    /// Its octets on the wire.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        REPORT_HEADER + ENTRY * self.count as usize
    }
}

/// A message, the packet it may carry aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A packet with payload follows.
    Data(Stamp),
    /// A packet without payload follows.
    Return,
    /// Under the flow of this number; nothing follows.
    Probe(u32, Stamp),
    /// About the flow of this number; nothing follows.
    Report(u32, Report),
}

/// The input is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HarpError {
    /// It ends early.
    Truncated,
    /// There is no such kind of message.
    Kind(u8),
    /// There is no path of this number.
    Path(u8),
    /// A report has more entries than it may.
    Entries(u8),
}

impl core::fmt::Display for HarpError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HarpError::Truncated => f.write_str("the message ends early"),
            HarpError::Kind(kind) => write!(f, "message of unknown kind {kind}"),
            HarpError::Path(path) => write!(f, "path {path}, of at most {MOST_PATHS}"),
            HarpError::Entries(count) => write!(f, "{count} entries, of at most {MOST_ENTRIES}"),
        }
    }
}

impl core::error::Error for HarpError {}

/// The message at the begin of `input`, and the packet behind it.
///
/// # Errors
/// If there is none.
pub fn parse(input: &[u8]) -> Result<(Header, &[u8]), HarpError> {
    let (&kind, rest) = input.split_first().ok_or(HarpError::Truncated)?;
    match kind {
        KIND_DATA => stamp(rest).map(|(stamp, rest)| (Header::Data(stamp), rest)),
        KIND_RETURN => Ok((Header::Return, rest)),
        KIND_PROBE => {
            let (stamp, rest) = stamp(rest)?;
            let (flow, rest) = take(rest)?;
            Ok((Header::Probe(u32::from_be_bytes(*flow), stamp), rest))
        }
        KIND_REPORT => report(rest),
        _ => Err(HarpError::Kind(kind)),
    }
}

/// Appends the message to `out`; the packet follows.
pub fn emit(header: &Header, out: &mut alloc::vec::Vec<u8>) {
    match header {
        Header::Data(stamp) => emit_stamp(KIND_DATA, stamp, out),
        Header::Return => out.push(KIND_RETURN),
        Header::Probe(flow, stamp) => {
            emit_stamp(KIND_PROBE, stamp, out);
            out.extend(flow.to_be_bytes());
        }
        Header::Report(flow, report) => {
            out.push(KIND_REPORT);
            out.extend(flow.to_be_bytes());
            let entries = report.entries();
            let count = u8::try_from(entries.len()).unwrap_or(0);
            let deaf = if report.is_deaf { DEAF } else { 0 };
            out.extend([report.open, report.queued, count | deaf]);
            out.extend(report.lost.0.to_be_bytes());
            out.extend(report.lost.1.to_be_bytes());
            for entry in entries {
                out.push(entry.path);
                out.extend(entry.weight.to_be_bytes());
                out.extend(entry.echo.to_be_bytes());
                out.push(entry.capacity);
            }
        }
    }
}

fn emit_stamp(kind: u8, stamp: &Stamp, out: &mut alloc::vec::Vec<u8>) {
    let paired = if stamp.is_paired { PAIRED } else { 0 };
    out.extend([kind, stamp.path | paired]);
    out.extend(stamp.sent.to_be_bytes());
    out.extend(stamp.srtt.to_be_bytes());
}

fn stamp(input: &[u8]) -> Result<(Stamp, &[u8]), HarpError> {
    let (&[number], rest) = take(input)?;
    let (sent, rest) = take(rest)?;
    let (srtt, rest) = take(rest)?;
    let (path, is_paired) = (path(number & !PAIRED)?, number & PAIRED != 0);
    let (sent, srtt) = (u32::from_be_bytes(*sent), u32::from_be_bytes(*srtt));
    Ok((Stamp { path, sent, srtt, is_paired }, rest))
}

fn report(input: &[u8]) -> Result<(Header, &[u8]), HarpError> {
    let (flow, rest) = take(input)?;
    let (&[open, queued, count], rest) = take(rest)?;
    let (count, is_deaf) = (count & !DEAF, count & DEAF != 0);
    let (from, rest) = take(rest)?;
    let (len, mut rest) = take(rest)?;
    if usize::from(count) > MOST_ENTRIES {
        return Err(HarpError::Entries(count));
    }
    let mut report = Report { open, queued, count, is_deaf, ..Report::default() };
    report.lost = (u32::from_be_bytes(*from), u32::from_be_bytes(*len));
    for entry in report.entries.iter_mut().take(usize::from(count)) {
        let (&[number], after) = take(rest)?;
        let (weight, after) = take(after)?;
        let (echo, after) = take(after)?;
        let (&[capacity], after) = take(after)?;
        *entry = PathReport {
            path: path(number)?,
            weight: u16::from_be_bytes(*weight),
            echo: u32::from_be_bytes(*echo),
            capacity,
        };
        rest = after;
    }
    Ok((Header::Report(u32::from_be_bytes(*flow), report), rest))
}

fn path(number: u8) -> Result<u8, HarpError> {
    if usize::from(number) < MOST_PATHS { Ok(number) } else { Err(HarpError::Path(number)) }
}

fn take<const N: usize>(input: &[u8]) -> Result<(&[u8; N], &[u8]), HarpError> {
    input.split_first_chunk().ok_or(HarpError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn messages() -> [Header; 7] {
        let stamp = Stamp { path: 7, sent: 0xfedc_ba98, srtt: 50_000, is_paired: false };
        let entry = |path| PathReport { path, weight: 640, echo: 0x0102_0304, capacity: 133 };
        let mut report = Report { open: 0b101, queued: 0b10, count: 2, ..Report::default() };
        report.entries[..2].copy_from_slice(&[entry(0), entry(3)]);
        report.lost = (u32::MAX, 2_896);
        [
            Header::Data(stamp),
            Header::Data(Stamp { is_paired: true, ..stamp }),
            Header::Return,
            Header::Probe(0x0506_0708, stamp),
            Header::Report(9, report),
            Header::Report(0, Report::default()),
            Header::Report(3, Report { is_deaf: true, ..report }),
        ]
    }

    #[test]
    fn what_is_emitted_is_parsed() {
        for message in messages() {
            let mut octets = Vec::new();
            emit(&message, &mut octets);
            let len = match &message {
                Header::Data(_) => DATA_HEADER,
                Header::Probe(..) => PROBE,
                Header::Return => RETURN_HEADER,
                Header::Report(_, report) => report.wire_len(),
            };
            assert_eq!(octets.len(), len, "{message:?}");
            octets.extend(b"packet");
            assert_eq!(parse(&octets), Ok((message, &b"packet"[..])));
        }
    }

    #[test]
    fn what_ends_early_or_lies_is_refused() {
        for message in messages() {
            let mut octets = Vec::new();
            emit(&message, &mut octets);
            for len in 0..octets.len() {
                assert_eq!(parse(&octets[..len]), Err(HarpError::Truncated), "{message:?} {len}");
            }
        }
        assert_eq!(parse(&[9]), Err(HarpError::Kind(9)));
        assert_eq!(parse(&[KIND_DATA, 8, 0, 0, 0, 0, 0, 0, 0, 0]), Err(HarpError::Path(8)));
        let mut octets = Vec::new();
        emit(&Header::Report(0, Report::default()), &mut octets);
        octets[7] = 5;
        assert_eq!(parse(&octets), Err(HarpError::Entries(5)));
    }
}
