//! Frames: what every connection of a session carries.
//!
//! Every frame is one octet of kind, four of body length (big-endian, at most [`MAX_BODY`]), and
//! the body. All integers are big-endian. Here is the one list of kinds. What they mean stands with
//! those who speak them: [`session`](crate::session) begins and ends every connection, and a
//! service has kinds of its own, as [`files`](crate::files), [`measure`](crate::measure),
//! [`relay`](crate::relay), [`meet`](crate::meet), [`feed`](crate::feed) and
//! [`gateway`](crate::gateway).

use alloc::vec::Vec;

use crate::address::ADDRESS;
use crate::limits::{
    MAX_ADDRESSES, MAX_FEED, MAX_FILTER, MAX_HASHES, MAX_LABEL, MAX_NAME, MAX_NETWORKS,
    MAX_PAYLOAD, MAX_PLACE, MAX_RANGES, MAX_REASON, MAX_RECORDS_BODY, MAX_RELAY_REASON,
    MAX_REQUEST, MAX_SERVICE, MAX_TEXT, MAX_WISH_TARGET, MOST_FEED_PATHS, MOST_FEED_RELAYS,
    MOST_LABELS, MOST_PUNCHED, MOST_STANDINGS, MOST_TICKETS, PAKE, PROOF, PUNCH_SECRET, SECRET,
    TICKET,
};
use crate::manifest::{MAX_CHUNK, MAX_PATH};

/// Octets before a frame's body.
pub const HEADER: usize = 5;
/// The longest body of any frame.
pub const MAX_BODY: usize = MAX_PAYLOAD + 64;

/// Why bytes are no frame. The peer broke the protocol, or speaks another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A kind unknown to this version.
    #[error("frame kind {0} is unknown")]
    Kind(u8),
    /// A kind that the service of the connection does not speak.
    #[error("a {frame} frame is of another service")]
    Foreign {
        /// The frame's kind.
        frame: &'static str,
    },
    /// A body longer than the kind allows.
    #[error("a {frame} frame announces {length} bytes")]
    TooLong {
        /// The frame's kind.
        frame: &'static str,
        /// The announced length in bytes.
        length: usize,
    },
    /// The body ends before its fields do.
    #[error("a {frame} frame is cut short")]
    Truncated {
        /// The frame's kind.
        frame: &'static str,
    },
    /// The body continues behind its fields.
    #[error("a {frame} frame is too long by its own account")]
    Trailing {
        /// The frame's kind.
        frame: &'static str,
    },
    /// A field has an invalid value.
    #[error("a {frame} frame has a bad {field}")]
    Field {
        /// The frame's kind.
        frame: &'static str,
        /// The field.
        field: &'static str,
    },
}

/// A frame whose body is not parsed yet: `TryFrom` makes a frame of a service of it.
#[derive(Clone, Copy, Debug)]
pub struct RawFrame<'a> {
    pub(crate) kind: FrameKind,
    pub(crate) body: &'a [u8],
}

/// A frame of some service.
pub trait Emit {
    /// Its kind.
    #[doc(hidden)]
    fn kind(&self) -> FrameKind;

    /// Appends its body.
    #[doc(hidden)]
    fn emit_body(&self, out: &mut Vec<u8>);

    /// Appends the frame to `out`.
    ///
    /// # Panics
    /// If the caller exceeds a limit of the kind (payload, chunk, ranges, addresses, request).
    fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[self.kind() as u8, 0, 0, 0, 0]);
        self.emit_body(out);
        let length = out.len() - start - HEADER;
        let kind = self.kind();
        assert!(length <= kind.max_body(), "a {} frame of {length} bytes", kind.name());
        let length = u32::try_from(length).expect("below MAX_BODY");
        out[start + 1..start + HEADER].copy_from_slice(&length.to_be_bytes());
    }

    /// The name of its kind, for messages.
    fn name(&self) -> &'static str {
        self.kind().name()
    }
}

impl<'a> RawFrame<'a> {
    /// Reads one frame off the front of `input`: the frame and its length, or `None` if more bytes
    /// are needed. The announced length is checked before the body is awaited.
    ///
    /// # Errors
    /// [`WireError`] when the bytes can be no frame, whatever follows.
    pub fn parse(input: &'a [u8]) -> Result<Option<(RawFrame<'a>, usize)>, WireError> {
        let Some((kind, length)) = head(input)? else { return Ok(None) };
        let body = input.get(HEADER..length);
        Ok(body.map(|body| (RawFrame { kind, body }, length)))
    }

    /// The total length in bytes of the frame at the front of `input`, once its header is complete.
    ///
    /// # Errors
    /// As [`RawFrame::parse`].
    pub fn length(input: &[u8]) -> Result<Option<usize>, WireError> {
        Ok(head(input)?.map(|(_, length)| length))
    }

    /// The name of its kind, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// The error of a service that does not speak this kind.
    pub(crate) fn foreign(&self) -> WireError {
        WireError::Foreign { frame: self.name() }
    }
}

/// The kind and the whole length of the frame at the front of `input`.
fn head(input: &[u8]) -> Result<Option<(FrameKind, usize)>, WireError> {
    let Some(header) = input.first_chunk::<HEADER>() else {
        return match input.first() {
            Some(kind) => FrameKind::of(*kind).map(|_| None),
            None => Ok(None),
        };
    };
    let [kind, length @ ..] = *header;
    let kind = FrameKind::of(kind)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > kind.max_body() {
        return Err(WireError::TooLong { frame: kind.name(), length });
    }
    Ok(Some((kind, HEADER + length)))
}

/// The kinds of frames, by their octet.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Hello = 1,
    Join,
    Entries,
    ManifestEnd,
    Welcome,
    Want,
    Have,
    Ready,
    Joined,
    Data,
    Ack,
    Refused,
    ObjectDone,
    Done,
    Ping,
    Pong,
    Abort,
    Probe,
    Name,
    Filter,
    Ask,
    Request,
    Hashes,
    Held,
    Creates,
    Replaces,
    Keeps,
    Deletes,
    Grown,
    LeftOut,
    Mirror,
    Grant,
    Updates,
    Archived,
    Measure,
    Measured,
    Changed,
    Wish,
    Tickets,
    Denied,
    Failed,
    Parting,
    FeedOffer,
    FeedFrom,
    FeedRecords,
    FeedKept,
    FeedChannel,
    FeedOver,
    FeedWatch,
    FeedReport,
    Networks,
    Associate,
    Associated,
    Dissociated,
    Labels,
    Labelled,
    Retire,
    FeedState,
    Compressed,
    Register,
    Registered,
    Unregistered,
    Withdraw,
    Meet,
    Pake,
    Proof,
    Introduced,
    Await,
    Punches,
    Standings,
    Effort,
}

/// Each kind with its name and the longest body.
const KINDS: [(FrameKind, &str, usize); 71] = [
    (FrameKind::Hello, "Hello", 2 + 16 + 1 + 16 + 1 + MAX_SERVICE + MAX_REQUEST),
    (FrameKind::Join, "Join", 16),
    (FrameKind::Entries, "Entries", MAX_CHUNK),
    (FrameKind::ManifestEnd, "ManifestEnd", 4),
    (FrameKind::Welcome, "Welcome", 18 + MAX_ADDRESSES * ADDRESS),
    (FrameKind::Want, "Want", MAX_RANGES * 16),
    (FrameKind::Have, "Have", MAX_RANGES * 16),
    (FrameKind::Ready, "Ready", 0),
    (FrameKind::Joined, "Joined", 0),
    (FrameKind::Data, "Data", MAX_BODY),
    (FrameKind::Ack, "Ack", MAX_RANGES * 16),
    (FrameKind::Refused, "Refused", 16),
    (FrameKind::ObjectDone, "ObjectDone", 36),
    (FrameKind::Done, "Done", 8),
    (FrameKind::Ping, "Ping", 8),
    (FrameKind::Pong, "Pong", 8),
    (FrameKind::Abort, "Abort", 1 + MAX_TEXT),
    (FrameKind::Probe, "Probe", MAX_PAYLOAD),
    (FrameKind::Name, "Name", MAX_NAME),
    (FrameKind::Filter, "Filter", 1 + MAX_FILTER),
    (FrameKind::Ask, "Ask", 1),
    (FrameKind::Request, "Request", 16),
    (FrameKind::Hashes, "Hashes", 8 + MAX_HASHES * 32),
    (FrameKind::Held, "Held", 16),
    (FrameKind::Creates, "Creates", MAX_RANGES * 16),
    (FrameKind::Replaces, "Replaces", MAX_RANGES * 16),
    (FrameKind::Keeps, "Keeps", MAX_RANGES * 16),
    (FrameKind::Deletes, "Deletes", 9 + MAX_PATH),
    (FrameKind::Grown, "Grown", 9),
    (FrameKind::LeftOut, "LeftOut", 6 + MAX_PATH + MAX_REASON),
    (FrameKind::Mirror, "Mirror", MAX_PATH),
    (FrameKind::Grant, "Grant", 8),
    (FrameKind::Updates, "Updates", MAX_RANGES * 16),
    (FrameKind::Archived, "Archived", 20),
    (FrameKind::Measure, "Measure", 9),
    (FrameKind::Measured, "Measured", 24),
    (FrameKind::Changed, "Changed", 5 + MAX_REASON),
    (FrameKind::Wish, "Wish", 4 + 1 + MAX_WISH_TARGET),
    (FrameKind::Tickets, "Tickets", 4 + 2 + MOST_TICKETS * TICKET),
    (FrameKind::Denied, "Denied", 4 + 1 + MAX_RELAY_REASON),
    (FrameKind::Failed, "Failed", TICKET + 1 + MAX_RELAY_REASON),
    (FrameKind::Parting, "Parting", 2),
    (FrameKind::FeedOffer, "FeedOffer", 16 + 8 + 8 + 1 + 1 + MAX_FEED + MAX_LABEL),
    (FrameKind::FeedFrom, "FeedFrom", 8 + 16),
    (FrameKind::FeedRecords, "FeedRecords", 8 + MAX_RECORDS_BODY),
    (FrameKind::FeedKept, "FeedKept", 8 + 8),
    (FrameKind::FeedChannel, "FeedChannel", 2),
    (FrameKind::FeedOver, "FeedOver", MAX_TEXT),
    (FrameKind::FeedWatch, "FeedWatch", 4 + 4 + 4),
    (FrameKind::FeedReport, "FeedReport", 8 + 2 + MOST_FEED_PATHS * 12 + MOST_FEED_RELAYS * 8),
    (FrameKind::Networks, "Networks", 16 + MAX_NETWORKS * 18),
    (FrameKind::Associate, "Associate", 4 + MAX_WISH_TARGET),
    (FrameKind::Associated, "Associated", 4 + 8 + SECRET),
    (FrameKind::Dissociated, "Dissociated", 4 + 1 + MAX_RELAY_REASON),
    (FrameKind::Labels, "Labels", 4 + MOST_LABELS * 16),
    (FrameKind::Labelled, "Labelled", 4 + 4),
    (FrameKind::Retire, "Retire", 4 + MOST_LABELS * 8),
    (FrameKind::FeedState, "FeedState", 8 + 1 + 4 + 8 + 4 + 8),
    (FrameKind::Compressed, "Compressed", MAX_BODY),
    (FrameKind::Register, "Register", 4 + MAX_PLACE),
    (FrameKind::Registered, "Registered", 4),
    (FrameKind::Unregistered, "Unregistered", 4 + 1 + MAX_RELAY_REASON),
    (FrameKind::Withdraw, "Withdraw", 4),
    (FrameKind::Meet, "Meet", 4 + TICKET),
    (FrameKind::Pake, "Pake", PAKE),
    (FrameKind::Proof, "Proof", PROOF),
    (FrameKind::Introduced, "Introduced", PROOF + 16 + 32),
    (FrameKind::Await, "Await", 4),
    (FrameKind::Punches, "Punches", 8 + PUNCH_SECRET + MOST_PUNCHED * ADDRESS),
    (FrameKind::Standings, "Standings", MOST_STANDINGS * 11),
    (FrameKind::Effort, "Effort", 1),
];

impl FrameKind {
    pub(crate) fn of(octet: u8) -> Result<FrameKind, WireError> {
        KINDS
            .get(usize::from(octet).wrapping_sub(1))
            .map(|(kind, ..)| *kind)
            .ok_or(WireError::Kind(octet))
    }

    pub(crate) fn name(self) -> &'static str {
        KINDS[self as usize - 1].1
    }

    pub(crate) fn max_body(self) -> usize {
        KINDS[self as usize - 1].2
    }
}
