//! The frames of the transfer protocol, version 6.
//!
//! Every frame is one octet of kind, four of body length (big-endian, at most [`MAX_BODY`]), and
//! the body. All integers are big-endian. Positions are offsets in the transfer's linear layout.
//!
//! A connection begins with [`Hello`], which is answered by [`Welcome`] at once, or with
//! [`Frame::Join`]. After its `Hello` it may wait, with a [`Frame::Ping`] now and then; it leaves
//! the wait with a `Join`, or by opening the session that its `Welcome` names. The frames that open
//! the session need not wait for the `Welcome`.
//!
//! A sender opens the session with the [manifest](crate::manifest) in chunks and
//! [`Frame::ManifestEnd`]; a [`LeftOut`] before the end tells what is missing in it, and for
//! [`Wishes::delete`] there are a [`Frame::Mirror`] for each folder and a [`Frame::Filter`] for
//! each pattern. With [`Wishes::archive`] the entries have
//! [attributes](crate::manifest::Attributes), and [`Frame::Archived`] tells what became of them.
//! The receiver answers any number of [`Frame::Want`] and of [`Frame::Have`], and [`Frame::Ready`].
//! Both sides compute the same layout of the wanted files, and positions count in that layout. A
//! receiver that passes its one file on in order [grants](Frame::Grant) positions as it goes on. A
//! connection that joins may carry data right behind its `Join`. Data is acknowledged on the path
//! on which it arrived. The size of a stream ([`UNKNOWN_SIZE`](crate::manifest::UNKNOWN_SIZE))
//! comes in [`Frame::Grown`], on each path ahead of the data that it makes room for. A file that
//! [changes](Changed) meanwhile is left out, or arrives as far as both sides agreed on it. In a dry
//! run ([`Wishes::dry_run`]) the receiver also answers what it would do ([`Frame::Creates`] and the
//! like), and no session opens.
//!
//! Behind the `Hello` to a host that measures there is a [`Measure`], and no session opens either.
//!
//! If the connecting side receives (`anabranch get`), it opens the session with a [`Frame::Name`]
//! for each wanted path, a [`Frame::Filter`] for each pattern, and [`Frame::Ask`]. The server
//! answers the manifest in chunks, a [`LeftOut`] for each entry that it could not read, and
//! [`Frame::ManifestEnd`]; the client names the wanted entries with [`Frame::Want`] and
//! [`Frame::Ready`]. If it asked for them, the hashes of all blocks of the layout follow
//! ([`Frame::Hashes`], [`Frame::Ready`]). Every [`Frame::Request`] is answered, in order and on its
//! path, by the one [`Data`] frame of that range. A [`Frame::Held`] between the answers tells what
//! holds the server's kernel back. A [`Frame::Done`] ends the session.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::manifest::{MAX_CHUNK, MAX_PATH};

mod emit;
mod parse;

pub use emit::DataHeader;

/// The protocol version that this code speaks.
pub const VERSION: u16 = 6;
/// Octets before a frame's body.
pub const HEADER: usize = 5;
/// The most data that one [`Data`] frame carries: one block.
pub const MAX_PAYLOAD: usize = 256 * 1024;
/// The longest body of any frame.
pub const MAX_BODY: usize = MAX_PAYLOAD + 64;
/// The longest text in an [`Frame::Abort`], in bytes; a longer one loses its middle.
pub const MAX_TEXT: usize = 1024;
/// The most ranges in one [`Frame::Ack`], [`Frame::Want`], [`Frame::Have`], [`Frame::Creates`] and
/// the like.
pub const MAX_RANGES: usize = 4096;
/// The most addresses in a [`Welcome`].
pub const MAX_ADDRESSES: usize = 64;
/// The longest [`Frame::Name`]: a path, and a slash at its end.
pub const MAX_NAME: usize = MAX_PATH + 1;
/// The longest reason in a [`LeftOut`].
pub const MAX_REASON: usize = 256;
/// The longest [`Frame::Filter`].
pub const MAX_FILTER: usize = 1024;
/// The most hashes in one [`Frame::Hashes`].
pub const MAX_HASHES: usize = 4096;

/// The number of [`Wishes`].
const WISHES: usize = 9;

/// A session's name, drawn by the receiver.
pub type SessionId = [u8; 16];
/// The name of one run of a dialing program, drawn by it: a later session of the same run takes the
/// place of an earlier one.
pub type RunId = [u8; 16];

/// Why bytes are no frame. The peer broke the protocol, or speaks another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A kind unknown to this version.
    #[error("frame kind {0} is unknown")]
    Kind(u8),
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

/// The first frame of a connection that does not join a session at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u16,
    /// The token's secret, if there is one.
    pub secret: Option<[u8; 16]>,
    /// The options asked of the receiver.
    pub wishes: Wishes,
    /// The run of the program that dials.
    pub run: RunId,
}

impl Hello {
    /// The greeting of a program that speaks this version.
    #[must_use]
    pub fn new(secret: Option<[u8; 16]>, wishes: Wishes, run: RunId) -> Hello {
        Hello { version: VERSION, secret, wishes, run }
    }
}

/// Options that a sender asks of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, one bit each on the wire")]
pub struct Wishes {
    /// Forget earlier attempts.
    pub restart: bool,
    /// Replace existing targets.
    pub overwrite: bool,
    /// Read each file back from disk before it is renamed.
    pub verify: bool,
    /// Report what would happen, and write nothing.
    pub dry_run: bool,
    /// Leave existing targets as they are.
    pub keep_existing: bool,
    /// Replace existing targets that are older than the source, and no others.
    pub update: bool,
    /// Delete what the source does not have, in the folders that a [`Frame::Mirror`] names.
    pub delete: bool,
    /// Delete any number of files.
    pub force_delete: bool,
    /// Keep owners, all bits of modes, and extended attributes, which the manifest has.
    pub archive: bool,
}

/// The answer to [`Hello`], sent as soon as its peer is authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// [`VERSION`].
    pub version: u16,
    /// The name of the session that the connection opens, if it opens one, for the other paths to
    /// join.
    pub session: SessionId,
    /// Addresses of this host, most useful first.
    pub addresses: Vec<SocketAddr>,
}

/// A piece of the transfer's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The payload's position in the layout.
    pub position: u64,
    /// The chaining value of the block that begins at `position`, if one begins there.
    pub block_hash: Option<[u8; 32]>,
    /// The bytes.
    pub payload: &'a [u8],
}

/// A range of the layout; in [`Frame::Want`], [`Frame::Creates`], [`Frame::Replaces`],
/// [`Frame::Keeps`] and [`Frame::Updates`], of the manifest's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first position, or entry.
    pub start: u64,
    /// The length in bytes, or the number of entries.
    pub len: u64,
}

/// How a client wants the manifest that it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, one bit each on the wire")]
pub struct Ask {
    /// Every file's entry has its hash.
    pub checksum: bool,
    /// The hashes of all blocks precede the data, and files have no holes, so that other servers
    /// lay out the same blocks.
    pub hashes: bool,
    /// The first entry that cannot be read is an error, instead of being left out.
    pub strict: bool,
    /// Entries have owners and extended attributes.
    pub archive: bool,
}

/// An entry below what is sent that could not be read, and is not in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut<'a> {
    /// Its path as the side with the source shows it; at most [`MAX_PATH`] bytes of it are sent.
    pub path: &'a [u8],
    /// The reason, in words; at most [`MAX_REASON`] bytes of it are sent.
    pub reason: &'a str,
    /// The number of further entries that are left out and not named.
    pub more: u32,
}

/// A file that changed at its source after both sides agreed on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<'a> {
    /// Its entry in the manifest.
    pub entry: u32,
    /// Whether it is left out: no name, whatever came of it. Otherwise it only grew, and what was
    /// agreed on is its beginning.
    pub is_left_out: bool,
    /// Why it is left out, in words; at most [`MAX_REASON`] bytes of it are sent.
    pub reason: &'a str,
}

/// The hashes of consecutive blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// The first block's index in the layout.
    pub first: u64,
    /// The blocks' chaining values.
    pub hashes: Vec<[u8; 32]>,
}

/// The bytes of a stream, as far as its sender knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The stream has at least this many bytes.
    pub size: u64,
    /// It has no more: its end was seen.
    pub is_end: bool,
}

/// The time for which a connection had data to send, and congestion control would have let it, but
/// a buffer was full: since the connection began, as the sending kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// In the sending host's buffer there was no room, in microseconds.
    pub by_send_buffer: u64,
    /// In the receiving host's window there was no room, in microseconds.
    pub by_receiver: u64,
}

/// A file or folder that a receiver would delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletes<'a> {
    /// Its path below the receiving folder.
    pub path: &'a [u8],
    /// Its size in bytes; zero for a folder.
    pub size: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// What the receiver could not set or make, and what else became of owners and extended attributes
/// there, in numbers of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Archived {
    /// Those whose contents were there, and whose owner, mode or attributes were set.
    pub updated: u32,
    /// Those whose owner, or set-user-id bit, could not be set.
    pub lost_owners: u32,
    /// Those of which an extended attribute could not be set.
    pub lost_attributes: u32,
    /// Those whose mode or time could not be set, and copies in the place of hard links.
    pub lost_modes: u32,
    /// Those that the file system there cannot have.
    pub lost_entries: u32,
}

/// A measurement of a connection, asked for by the side that dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Its length in microseconds.
    pub micros: u64,
    /// Whether the other side sends [`Frame::Probe`] for so long.
    pub sends: bool,
}

/// What the other side counted during a [`Measure`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes of probes that arrived.
    pub received: u64,
    /// Packets of probes that it sent again, on this connection or the one that carries it.
    pub sent_again: u64,
    /// The time that its program had a processor, in microseconds.
    pub cpu_micros: u64,
}

/// The reason for an abort; it decides the other side's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortCode {
    /// Not authenticated or not allowed.
    Refused,
    /// The target exists.
    Exists,
    /// The disk is too small.
    NoSpace,
    /// The disk failed.
    Disk,
    /// Hashes do not match, or the source changed.
    Integrity,
    /// The peer broke the protocol.
    Protocol,
    /// A person or a signal stopped it; the data received is kept.
    Stopped,
    /// The session named in a Join is unknown here.
    NoSession,
    /// The requested path does not exist or is not readable.
    Source,
    /// A file changed while it was being sent; the text is its path.
    Changed,
    /// The session named in a Join has as many connections as it may; it goes on without this one.
    Crowded,
    /// Other transfers take up what this host has for them; a later attempt may get in.
    Busy,
}

const ABORT_CODES: [AbortCode; 12] = [
    AbortCode::Refused,
    AbortCode::Exists,
    AbortCode::NoSpace,
    AbortCode::Disk,
    AbortCode::Integrity,
    AbortCode::Protocol,
    AbortCode::Stopped,
    AbortCode::NoSession,
    AbortCode::Source,
    AbortCode::Changed,
    AbortCode::Crowded,
    AbortCode::Busy,
];

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// First on a connection that does not join a session at once.
    Hello(Hello),
    /// The session that the connection joins: the first frame, or the first after [`Welcome`].
    Join(SessionId),
    /// A chunk of the manifest, for [`entries`](crate::manifest::entries).
    Entries(&'a [u8]),
    /// The end of the manifest: its number of entries.
    ManifestEnd(u32),
    /// The answer to [`Hello`].
    Welcome(Welcome),
    /// Ranges of entries whose files the receiver wants; entries of other kinds may be among them.
    Want(Vec<Range>),
    /// Verified ranges of the layout that the receiver has from an earlier attempt.
    Have(Vec<Range>),
    /// The negotiation is complete; data may follow.
    Ready,
    /// The receiver's answer to `Join`.
    Joined,
    /// Data.
    Data(Data<'a>),
    /// Ranges received and written.
    Ack(Vec<Range>),
    /// A block that did not match its hash: it is wanted again.
    Refused(Range),
    /// An object of the layout is complete, and its files have their final names: its index and its
    /// BLAKE3 root.
    ObjectDone(u32, [u8; 32]),
    /// Everything is complete, synced and renamed: the duration of syncing in microseconds.
    Done(u64),
    /// A request for a [`Frame::Pong`] with the same number.
    Ping(u64),
    /// The answer to [`Frame::Ping`].
    /// Unasked, with the number 0: the sender of the frame lives, and its disk holds it up.
    Pong(u64),
    /// The sending side gives up: the reason, and a text.
    Abort(AbortCode, String),
    /// Bytes that measure a path, in a dry run or a [`Measure`] only; answered by [`Frame::Pong`]
    /// with the bytes received so far.
    Probe(&'a [u8]),
    /// A wanted path below the offered folder: `folder/` for the contents of a folder, empty for
    /// everything.
    Name(&'a [u8]),
    /// A pattern as in `.gitignore`, and whether it includes: matching paths are left out, or, if
    /// true, only they are taken.
    Filter(bool, &'a str),
    /// The end of the request.
    Ask(Ask),
    /// Data of this range is wanted on this path. The range lies within one block.
    Request(Range),
    /// The hashes of blocks.
    Hashes(Hashes),
    /// What keeps the sending kernel of this connection from sending more.
    Held(Held),
    /// In a dry run: entries that the receiver does not have.
    Creates(Vec<Range>),
    /// In a dry run: entries in the place of which the receiver has something else.
    Replaces(Vec<Range>),
    /// In a dry run: entries in the place of which the receiver has something else, which stays.
    Keeps(Vec<Range>),
    /// In a dry run: what the receiver would delete.
    Deletes(Deletes<'a>),
    /// A stream has grown, or has ended.
    Grown(Grown),
    /// An entry that is not in the manifest because it could not be read.
    LeftOut(LeftOut<'a>),
    /// The path of a folder of which the manifest has everything that its [filters](Frame::Filter)
    /// let through: what is there besides may be deleted. Empty for the receiving folder itself.
    Mirror(&'a [u8]),
    /// Positions before this one may be sent: the receiver writes its one file in order, and takes
    /// no more. Without such a frame before [`Frame::Ready`], all of them may.
    Grant(u64),
    /// In a dry run: entries that the receiver has, but for owner, mode or attributes.
    Updates(Vec<Range>),
    /// Before [`Frame::Done`], unless all numbers are zero.
    Archived(Archived),
    /// The first frame behind a [`Hello`] to a host that measures: both sides may send probes.
    Measure(Measure),
    /// The answer at the end of the time.
    Measured(Measured),
    /// A file that changed while it was sent. It comes on each path, ahead of data that were read
    /// after the change. Of a file that is an object of its own and is left out, nothing more is
    /// sent; in a pack, octets of any value stand in its place.
    Changed(Changed<'a>),
}

impl<'a> Frame<'a> {
    /// Reads one frame off the front of `input`: the frame and its length, or `None` if more bytes
    /// are needed. The announced length is checked before the body is awaited.
    ///
    /// # Errors
    /// [`WireError`] when the bytes can be no frame, whatever follows.
    pub fn parse(input: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, WireError> {
        let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
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
        match rest.get(..length) {
            Some(body) => Ok(Some((parse::body(kind, body)?, HEADER + length))),
            None => Ok(None),
        }
    }

    /// The total length in bytes of the frame at the front of `input`, once its header is complete.
    ///
    /// # Errors
    /// As [`Frame::parse`].
    pub fn length(input: &[u8]) -> Result<Option<usize>, WireError> {
        let Some(header) = input.first_chunk::<HEADER>() else { return Ok(None) };
        let [kind, length @ ..] = *header;
        let kind = FrameKind::of(kind)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > kind.max_body() {
            return Err(WireError::TooLong { frame: kind.name(), length });
        }
        Ok(Some(HEADER + length))
    }

    fn kind(&self) -> FrameKind {
        match self {
            Frame::Hello(_) => FrameKind::Hello,
            Frame::Join(_) => FrameKind::Join,
            Frame::Entries(_) => FrameKind::Entries,
            Frame::ManifestEnd(_) => FrameKind::ManifestEnd,
            Frame::Welcome(_) => FrameKind::Welcome,
            Frame::Want(_) => FrameKind::Want,
            Frame::Have(_) => FrameKind::Have,
            Frame::Ready => FrameKind::Ready,
            Frame::Joined => FrameKind::Joined,
            Frame::Data(_) => FrameKind::Data,
            Frame::Ack(_) => FrameKind::Ack,
            Frame::Refused(_) => FrameKind::Refused,
            Frame::ObjectDone(..) => FrameKind::ObjectDone,
            Frame::Done(_) => FrameKind::Done,
            Frame::Ping(_) => FrameKind::Ping,
            Frame::Pong(_) => FrameKind::Pong,
            Frame::Abort(..) => FrameKind::Abort,
            Frame::Probe(_) => FrameKind::Probe,
            Frame::Name(_) => FrameKind::Name,
            Frame::Filter(..) => FrameKind::Filter,
            Frame::Ask(_) => FrameKind::Ask,
            Frame::Request(_) => FrameKind::Request,
            Frame::Hashes(_) => FrameKind::Hashes,
            Frame::Held(_) => FrameKind::Held,
            Frame::Creates(_) => FrameKind::Creates,
            Frame::Replaces(_) => FrameKind::Replaces,
            Frame::Keeps(_) => FrameKind::Keeps,
            Frame::Deletes(_) => FrameKind::Deletes,
            Frame::Grown(_) => FrameKind::Grown,
            Frame::LeftOut(_) => FrameKind::LeftOut,
            Frame::Mirror(_) => FrameKind::Mirror,
            Frame::Grant(_) => FrameKind::Grant,
            Frame::Updates(_) => FrameKind::Updates,
            Frame::Archived(_) => FrameKind::Archived,
            Frame::Measure(_) => FrameKind::Measure,
            Frame::Measured(_) => FrameKind::Measured,
            Frame::Changed(_) => FrameKind::Changed,
        }
    }
}

#[derive(Clone, Copy)]
enum FrameKind {
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
}

const KINDS: [(FrameKind, &str, usize); 37] = [
    (FrameKind::Hello, "Hello", 64),
    (FrameKind::Join, "Join", 16),
    (FrameKind::Entries, "Entries", MAX_CHUNK),
    (FrameKind::ManifestEnd, "ManifestEnd", 4),
    (FrameKind::Welcome, "Welcome", 18 + MAX_ADDRESSES * 18),
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
];

impl FrameKind {
    fn of(octet: u8) -> Result<FrameKind, WireError> {
        KINDS
            .get(usize::from(octet).wrapping_sub(1))
            .map(|(kind, ..)| *kind)
            .ok_or(WireError::Kind(octet))
    }

    fn name(self) -> &'static str {
        KINDS[self as usize - 1].1
    }

    fn max_body(self) -> usize {
        KINDS[self as usize - 1].2
    }
}

impl core::fmt::Display for AbortCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            AbortCode::Refused => "refused",
            AbortCode::Exists => "the target exists",
            AbortCode::NoSpace => "no space",
            AbortCode::Disk => "disk error",
            AbortCode::Integrity => "integrity",
            AbortCode::Protocol => "protocol",
            AbortCode::Stopped => "stopped",
            AbortCode::NoSession => "unknown session",
            AbortCode::Source => "not readable",
            AbortCode::Changed => "the source changed",
            AbortCode::Crowded => "too many connections",
            AbortCode::Busy => "busy",
        })
    }
}

impl From<&Frame<'_>> for String {
    /// The frame's kind, for messages.
    fn from(frame: &Frame<'_>) -> String {
        frame.kind().name().to_string()
    }
}
