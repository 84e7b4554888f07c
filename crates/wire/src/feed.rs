//! The frames between a source of records and a collector.
//!
//! A connection carries *streams* of records, which are numbered from 0 in each. It begins with a
//! [hello](crate::session::Hello) for the service [`SERVICE`], behind which the source sends an
//! [`Offer`]. The collector answers with [`FeedFrame::From`], the number of the record to go on
//! with: it has all earlier ones on its disk. The source then sends [`FeedFrame::Records`], and the
//! collector tells by [`FeedFrame::Kept`] up to which record they are safe, and have arrived. A
//! connection that ends is followed by another one with the same stream, over which nothing is
//! repeated that is safe.
//!
//! Each stream of a connection has a *channel*: frames are about that of number 0, until
//! [`FeedFrame::Channel`] names another one, in each direction. [`FeedFrame::Over`] ends the
//! channel's stream, on both sides; the source may offer it there once more.
//!
//! Several connections may carry one stream at the same time, over a path each. The records of each
//! connection may leave out what others carry: the collector puts them in order, and holds at most
//! [`FEED_WINDOW`] of what came before its turn.
//!
//! A source that controls the rates of its paths says by [`FeedFrame::Watch`] which of them a
//! connection is, and over which one it wants an [`ArrivalReport`] in each control interval: what
//! has arrived over each, and what relays were seen to carry.
//!
//! Over one of its connections a source tells by [`FeedFrame::State`] how it does, for whoever
//! watches the collector.

use alloc::string::String;
use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};

use crate::frame::{Emit, FrameKind, RawFrame, WireError};
pub use crate::limits::{
    FEED_WINDOW, MAX_FEED, MAX_LABEL, MAX_RECORD, MAX_RECORDS_BODY, MOST_FEED_PATHS,
    MOST_FEED_RELAYS,
};
use crate::reader::Reader;
use crate::session::{RunId, SessionFrame, emit_text, read_text};

/// The name of the service; it has no request.
pub const SERVICE: &str = "feed";

/// The name of a stream, drawn by its source: the same one after a restart of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub [u8; 16]);

/// How a collector tells records in a file apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A newline ends each, and none has one in it.
    #[default]
    Lines,
    /// A NUL ends each, and none has one in it.
    Nul,
    /// The length in decimal digits and a space are before each (RFC 6587, 3.4.1): a record may
    /// have any octets in it.
    Counted,
}

impl Form {
    /// Whether a record can have this form.
    #[must_use]
    pub fn has(self, record: &[u8]) -> bool {
        match self {
            Form::Lines => !record.contains(&b'\n'),
            Form::Nul => !record.contains(&0),
            Form::Counted => true,
        }
    }

    fn octet(self) -> u8 {
        match self {
            Form::Lines => 0,
            Form::Nul => 1,
            Form::Counted => 2,
        }
    }

    fn of_octet(octet: u8) -> Option<Form> {
        [Form::Lines, Form::Nul, Form::Counted].into_iter().find(|form| form.octet() == octet)
    }
}

/// What a source offers.
///
/// | octets | field |
/// |---|---|
/// | 16 | stream |
/// | 8 | the first record that the source still has |
/// | 8 | the first record that is not safe at another collector |
/// | 1 | form |
/// | 1, … | length and name of the feed |
/// | … | label of the stream |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The stream.
    pub stream: StreamId,
    /// The number of the first record that the source still has.
    pub first: u64,
    /// Records before this one are safe at another collector of the source: 0, if it has one alone.
    pub elsewhere: u64,
    /// How records are told apart.
    pub form: Form,
    /// The name of the feed: [`is_feed_name`].
    pub feed: String,
    /// Where the records come from, for people: a path, for example.
    pub label: String,
}

/// Whether a text may be the name of a feed, which becomes that of a folder: letters, digits, dots,
/// hyphens and underscores, at most [`MAX_FEED`], not a dot at its begin.
#[must_use]
pub fn is_feed_name(text: &str) -> bool {
    let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
    (1..=MAX_FEED).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_plain)
}

impl Offer {
    /// Appends it. A label that is too long loses its begin.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stream.0);
        out.extend_from_slice(&self.first.to_be_bytes());
        out.extend_from_slice(&self.elsewhere.to_be_bytes());
        out.push(self.form.octet());
        out.push(u8::try_from(self.feed.len()).expect("a name of a feed"));
        out.extend_from_slice(self.feed.as_bytes());
        let too_long = self.label.len().saturating_sub(MAX_LABEL);
        let start = (too_long..=self.label.len()).find(|at| self.label.is_char_boundary(*at));
        out.extend_from_slice(&self.label.as_bytes()[start.expect("its end is one")..]);
    }

    /// Control characters in the label become spaces.
    fn read(body: &[u8]) -> Result<Offer, WireError> {
        let frame = FrameKind::FeedOffer.name();
        let bad = |field| WireError::Field { frame, field };
        let mut reader = Reader::new(frame, body);
        let (stream, first) = (StreamId(reader.array()?), reader.u64()?);
        let elsewhere = reader.u64()?;
        let form = Form::of_octet(reader.u8()?).ok_or_else(|| bad("form"))?;
        let length = usize::from(reader.u8()?);
        let feed = core::str::from_utf8(reader.bytes(length)?).ok().filter(|n| is_feed_name(n));
        let feed = feed.ok_or_else(|| bad("name of a feed"))?.into();
        let label = core::str::from_utf8(reader.rest()).ok().filter(|l| l.len() <= MAX_LABEL);
        // A peer's text reaches a terminal and a file.
        let label = label
            .ok_or_else(|| bad("label"))?
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Ok(Offer { stream, first, elsewhere, form, feed, label })
    }
}

/// Records of a stream that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    /// The number of the first one.
    pub first: u64,
    /// Each with its length before it: [`Records::iter`].
    body: &'a [u8],
    count: u64,
}

impl<'a> Records<'a> {
    /// The records that were encoded by [`push_record`].
    ///
    /// # Errors
    /// [`WireError`], if they do not add up, or one is longer than [`MAX_RECORD`].
    pub fn of(first: u64, body: &'a [u8]) -> Result<Records<'a>, WireError> {
        let frame = FrameKind::FeedRecords.name();
        let (mut rest, mut count) = (Reader::new(frame, body), 0);
        while !rest.is_empty() {
            let length = usize::try_from(rest.u32()?).unwrap_or(usize::MAX);
            if length > MAX_RECORD {
                return Err(WireError::Field { frame, field: "length of a record" });
            }
            rest.bytes(length)?;
            count += 1;
        }
        if count == 0 || first.checked_add(count).is_none() {
            return Err(WireError::Field { frame, field: "number of records" });
        }
        Ok(Records { first, body, count })
    }

    /// The number of the record behind the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.count
    }

    /// The records, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.body;
        core::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (record, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some(record)
        })
    }

    /// The records as they are sent.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// Appends a record to the body of [`Records`].
///
/// # Panics
/// If it is longer than [`MAX_RECORD`].
pub fn push_record(out: &mut Vec<u8>, record: &[u8]) {
    assert!(record.len() <= MAX_RECORD, "a record of {} octets", record.len());
    let length = u32::try_from(record.len()).expect("a short one");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(record);
}

/// What a source says of a connection, so that the collector counts what arrives over it.
///
/// | octets | field |
/// |---|---|
/// | 4 | path |
/// | 4 | milliseconds between reports over this connection; 0: none |
/// | 4 | relay |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The number of the path, which no other connection of the source has.
    pub path: u32,
    /// The time between reports over this connection, in milliseconds; `None`: there are none.
    pub interval: Option<NonZeroU32>,
    /// The relay over which it leads, as all sources call it: the first octets of its key's
    /// fingerprint; `None` for a direct path.
    pub relay: Option<NonZeroU32>,
}

/// What a collector has received from a source.
///
/// | octets | field |
/// |---|---|
/// | 8 | the collector's time in nanoseconds |
/// | 2 | number of paths |
/// | 12 each | path, octets of records that have arrived over it since it began |
/// | 8 each | relay, the largest rate over it in the last five minutes, in kbit/s |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrivalReport {
    /// The collector's time, in nanoseconds; only differences count.
    pub stamp: u64,
    /// Octets of records that have arrived over each of the source's paths, with their lengths and
    /// those included that were there already; at most [`MOST_FEED_PATHS`].
    pub paths: Vec<(u32, u64)>,
    /// The largest rate over relays in the last five minutes, of all sources together, in kbit/s;
    /// at most [`MOST_FEED_RELAYS`].
    pub relays: Vec<(u32, u32)>,
}

/// How a source does, for people: nothing depends on it.
///
/// | octets | field |
/// |---|---|
/// | 8 | demand in bit/s; 0: none |
/// | 1 | whether it is met: 0 no, 1 yes, 2 not known yet |
/// | 4 | seconds for which that has been so |
/// | 8 | octets that wait at the source |
/// | 4 | seconds for which the oldest of them has waited |
/// | 8 | records that were dropped |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// What has to arrive in a second, in bits, if the source has a demand.
    pub demand: Option<NonZeroU64>,
    /// Whether its paths carry that, once it was looked at.
    pub is_met: Option<bool>,
    /// For how many seconds that has been so.
    pub since: u32,
    /// Octets that are not at the collector.
    pub waiting: u64,
    /// For how many seconds the oldest of them has waited.
    pub oldest: u32,
    /// Records that were dropped before they were sent, since the source began.
    pub dropped: u64,
}

impl SourceState {
    fn read(reader: &mut Reader<'_>) -> Result<SourceState, WireError> {
        let demand = NonZeroU64::new(reader.u64()?);
        let is_met = match reader.u8()? {
            0 => Some(false),
            1 => Some(true),
            2 => None,
            _ => {
                let frame = FrameKind::FeedState.name();
                return Err(WireError::Field { frame, field: "whether a demand is met" });
            }
        };
        let (since, waiting) = (reader.u32()?, reader.u64()?);
        let (oldest, dropped) = (reader.u32()?, reader.u64()?);
        Ok(SourceState { demand, is_met, since, waiting, oldest, dropped })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.demand.map_or(0, NonZeroU64::get).to_be_bytes());
        out.push(self.is_met.map_or(2, u8::from));
        out.extend_from_slice(&self.since.to_be_bytes());
        out.extend_from_slice(&self.waiting.to_be_bytes());
        out.extend_from_slice(&self.oldest.to_be_bytes());
        out.extend_from_slice(&self.dropped.to_be_bytes());
    }
}

impl Watch {
    fn read(reader: &mut Reader<'_>) -> Result<Watch, WireError> {
        let path = reader.u32()?;
        let (interval, relay) = (reader.u32()?, reader.u32()?);
        Ok(Watch { path, interval: NonZeroU32::new(interval), relay: NonZeroU32::new(relay) })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let number = |field: Option<NonZeroU32>| field.map_or(0, NonZeroU32::get).to_be_bytes();
        out.extend_from_slice(&self.path.to_be_bytes());
        out.extend_from_slice(&number(self.interval));
        out.extend_from_slice(&number(self.relay));
    }
}

impl ArrivalReport {
    fn read(reader: &mut Reader<'_>) -> Result<ArrivalReport, WireError> {
        let stamp = reader.u64()?;
        let frame = FrameKind::FeedReport.name();
        let count = usize::from(reader.u16()?);
        if count > MOST_FEED_PATHS {
            return Err(WireError::Field { frame, field: "number of paths" });
        }
        let mut report =
            ArrivalReport { stamp, paths: Vec::with_capacity(count), relays: Vec::new() };
        for _ in 0..count {
            report.paths.push((reader.u32()?, reader.u64()?));
        }
        while !reader.is_empty() {
            report.relays.push((reader.u32()?, reader.u32()?));
        }
        if report.relays.len() > MOST_FEED_RELAYS {
            return Err(WireError::Field { frame, field: "number of relays" });
        }
        Ok(report)
    }

    /// Appends it. What is too much is left out.
    fn write(&self, out: &mut Vec<u8>) {
        let paths = &self.paths[..self.paths.len().min(MOST_FEED_PATHS)];
        out.extend_from_slice(&self.stamp.to_be_bytes());
        out.extend_from_slice(&u16::try_from(paths.len()).expect("a few").to_be_bytes());
        for (path, received) in paths {
            out.extend_from_slice(&path.to_be_bytes());
            out.extend_from_slice(&received.to_be_bytes());
        }
        for (relay, rate) in self.relays.iter().take(MOST_FEED_RELAYS) {
            out.extend_from_slice(&relay.to_be_bytes());
            out.extend_from_slice(&rate.to_be_bytes());
        }
    }
}

/// A frame of a connection that carries a stream of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedFrame<'a> {
    /// One that every session has.
    Session(SessionFrame<'a>),
    /// The stream, from the source: the first frame behind its hello.
    Offer(Offer),
    /// From the collector, as the answer to an offer: what to go on with.
    From {
        /// The number of the next record: all earlier ones are on its disk.
        next: u64,
        /// The collector's run. As long as it is the same one, nothing is lost that it has called
        /// safe: a lower number than before is only an older one.
        run: RunId,
    },
    /// Records, from the source.
    Records(Records<'a>),
    /// From the collector: how far the stream is.
    Kept {
        /// All records before this one are on its disk.
        kept: u64,
        /// All records before this one have arrived.
        arrived: u64,
    },
    /// The frames that follow are about the stream of this channel.
    Channel(u16),
    /// The channel's stream is over here, with the collector's reason.
    Over(String),
    /// From the source: what the connection is to its rate control.
    Watch(Watch),
    /// From the collector: what has arrived.
    Report(ArrivalReport),
    /// From the source: how it does.
    State(SourceState),
}

impl Emit for FeedFrame<'_> {
    fn kind(&self) -> FrameKind {
        match self {
            FeedFrame::Session(frame) => frame.kind(),
            FeedFrame::Offer(_) => FrameKind::FeedOffer,
            FeedFrame::From { .. } => FrameKind::FeedFrom,
            FeedFrame::Records(_) => FrameKind::FeedRecords,
            FeedFrame::Kept { .. } => FrameKind::FeedKept,
            FeedFrame::Channel(_) => FrameKind::FeedChannel,
            FeedFrame::Over(_) => FrameKind::FeedOver,
            FeedFrame::Watch(_) => FrameKind::FeedWatch,
            FeedFrame::Report(_) => FrameKind::FeedReport,
            FeedFrame::State(_) => FrameKind::FeedState,
        }
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            FeedFrame::Session(frame) => frame.emit_body(out),
            FeedFrame::Offer(offer) => offer.write(out),
            FeedFrame::From { next, run } => {
                out.extend_from_slice(&next.to_be_bytes());
                out.extend_from_slice(run);
            }
            FeedFrame::Kept { kept, arrived } => {
                out.extend_from_slice(&kept.to_be_bytes());
                out.extend_from_slice(&arrived.to_be_bytes());
            }
            FeedFrame::Channel(number) => out.extend_from_slice(&number.to_be_bytes()),
            FeedFrame::Over(why) => emit_text(why, out),
            FeedFrame::Watch(watch) => watch.write(out),
            FeedFrame::Report(report) => report.write(out),
            FeedFrame::State(state) => state.write(out),
            FeedFrame::Records(records) => {
                out.extend_from_slice(&records.first.to_be_bytes());
                out.extend_from_slice(records.body);
            }
        }
    }
}

impl<'a> TryFrom<RawFrame<'a>> for FeedFrame<'a> {
    type Error = WireError;

    fn try_from(raw: RawFrame<'a>) -> Result<FeedFrame<'a>, WireError> {
        let mut reader = Reader::new(raw.kind.name(), raw.body);
        let parsed = match raw.kind {
            FrameKind::FeedOffer => FeedFrame::Offer(Offer::read(reader.rest())?),
            FrameKind::FeedFrom => FeedFrame::From { next: reader.u64()?, run: reader.array()? },
            FrameKind::FeedKept => FeedFrame::Kept { kept: reader.u64()?, arrived: reader.u64()? },
            FrameKind::FeedChannel => FeedFrame::Channel(reader.u16()?),
            FrameKind::FeedOver => FeedFrame::Over(read_text(&mut reader)),
            FrameKind::FeedWatch => FeedFrame::Watch(Watch::read(&mut reader)?),
            FrameKind::FeedReport => FeedFrame::Report(ArrivalReport::read(&mut reader)?),
            FrameKind::FeedState => FeedFrame::State(SourceState::read(&mut reader)?),
            FrameKind::FeedRecords => {
                let first = reader.u64()?;
                FeedFrame::Records(Records::of(first, reader.rest())?)
            }
            _ => return SessionFrame::try_from(raw).map(FeedFrame::Session),
        };
        reader.finish(parsed)
    }
}
