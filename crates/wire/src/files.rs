//! The frames of files: a sender's to a host that receives, and a client's to one that serves.
//!
//! Positions are offsets in the transfer's linear layout.
//!
//! A sender opens the session with the [manifest](crate::manifest) in chunks and
//! [`FileFrame::ManifestEnd`]; a [`LeftOut`] before the end tells what is missing in it, and for
//! [`Wishes::delete`] there are a [`FileFrame::Mirror`] for each folder and a [`FileFrame::Filter`]
//! for each pattern. With [`Wishes::archive`] the entries have
//! [attributes](crate::manifest::Attributes), and [`FileFrame::Archived`] tells what became of
//! them. The receiver answers any number of [`FileFrame::Want`] and of [`FileFrame::Have`], and
//! [`FileFrame::Ready`]. Both sides compute the same layout of the wanted files, and positions
//! count in that layout. A receiver that passes its one file on in order [grants](FileFrame::Grant)
//! positions as it goes on. A connection that joins may carry data right behind its `Join`. Data is
//! acknowledged on the path on which it arrived. The size of a stream
//! ([`UNKNOWN_SIZE`](crate::manifest::UNKNOWN_SIZE)) comes in [`FileFrame::Grown`], on each path
//! ahead of the data that it makes room for. A file that [changes](Changed) meanwhile is left out,
//! or arrives as far as both sides agreed on it. The receiver ends the session with
//! [`FileFrame::Done`], and the sender answers it with another: then neither waits for a path that
//! has died. In a dry run ([`Wishes::dry_run`]) the receiver
//! also answers what it would do ([`FileFrame::Creates`] and the like), and no session opens.
//!
//! If the connecting side receives (`anabranch get`), its hello says with which [`Effort`] it wants
//! to be sent files, and it opens the session with a
//! [`FileFrame::Name`] for each wanted path, a [`FileFrame::Filter`] for each pattern, and
//! [`FileFrame::Ask`]. The server answers the manifest in chunks, a [`LeftOut`] for each entry that
//! it could not read, and [`FileFrame::ManifestEnd`]; the client names the wanted entries with
//! [`FileFrame::Want`] and [`FileFrame::Ready`]. If it asked for them, the hashes of all blocks of
//! the layout follow ([`FileFrame::Hashes`], [`FileFrame::Ready`]). Every [`FileFrame::Request`] is
//! answered, in order and on its path, by the one [`Data`] frame of that range. A
//! [`FileFrame::Held`] between the answers tells what holds the server's kernel back. A
//! [`FileFrame::Done`] ends the session.

use alloc::vec::Vec;

use crate::effort::Effort;
use crate::frame::{Emit, FrameKind};
pub use crate::limits::{MAX_FILTER, MAX_HASHES, MAX_NAME, MAX_PAYLOAD, MAX_RANGES, MAX_REASON};
use crate::session::SessionFrame;

mod emit;
mod parse;

pub use emit::DataHeader;

/// The name of the service that takes files; its request are [`Wishes`].
pub const RECEIVE: &str = "receive";
/// The name of the service that offers files; its request is an [`Effort`], in one octet, or
/// nothing.
pub const SERVE: &str = "serve";

/// The request of a client of [`SERVE`] that wants to be sent files with this effort.
#[must_use]
pub fn request_of(effort: Effort) -> Vec<u8> {
    effort.number().into_iter().collect()
}

/// The effort that a client of [`SERVE`] wants, by its request. What comes behind it is of later
/// versions.
#[must_use]
pub fn effort_of(request: &[u8]) -> Effort {
    request.first().map_or(Effort::Usual, |number| Effort::of_number((*number).into()))
}

/// The number of [`Wishes`].
const WISHES: usize = 9;

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
    /// Delete what the source does not have, in the folders that a [`FileFrame::Mirror`] names.
    pub delete: bool,
    /// Delete any number of files.
    pub force_delete: bool,
    /// Keep owners, all bits of modes, and extended attributes, which the manifest has.
    pub archive: bool,
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

/// A piece of the transfer's data, compressed by itself (RFC 8878).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressed<'a> {
    /// As in [`Data`], of the data as they are.
    pub position: u64,
    /// The same.
    pub block_hash: Option<[u8; 32]>,
    /// The length of the data as they are: at most 262,144 (`limits::MAX_PAYLOAD`), and
    /// more than that of what is sent.
    pub len: u32,
    /// The compressed bytes.
    pub payload: &'a [u8],
}

/// A range of the layout; in [`FileFrame::Want`], [`FileFrame::Creates`], [`FileFrame::Replaces`],
/// [`FileFrame::Keeps`] and [`FileFrame::Updates`], of the manifest's entries.
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
    /// Data may be compressed where that is faster.
    pub compress: bool,
    /// All data are compressed that become shorter by it.
    pub compress_all: bool,
}

/// An entry below what is sent that could not be read, and is not in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut<'a> {
    /// Its path as the side with the source shows it; at most
    /// [`MAX_PATH`](crate::manifest::MAX_PATH) bytes of it are sent.
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

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFrame<'a> {
    /// One that every session has.
    Session(SessionFrame<'a>),
    /// A chunk of the manifest, for [`entries`](crate::manifest::entries).
    Entries(&'a [u8]),
    /// The end of the manifest: its number of entries.
    ManifestEnd(u32),
    /// Ranges of entries whose files the receiver wants; entries of other kinds may be among them.
    Want(Vec<Range>),
    /// Verified ranges of the layout that the receiver has from an earlier attempt.
    Have(Vec<Range>),
    /// The negotiation is complete; data may follow.
    Ready,
    /// Data.
    Data(Data<'a>),
    /// The same, compressed. Acknowledgements and requests are about data as they are.
    Compressed(Compressed<'a>),
    /// Ranges received and written.
    Ack(Vec<Range>),
    /// A block that did not match its hash: it is wanted again.
    Refused(Range),
    /// An object of the layout is complete, and its files have their final names: its index and its
    /// BLAKE3 root.
    ObjectDone(u32, [u8; 32]),
    /// Everything is complete, synced and renamed: the duration of syncing in microseconds. From
    /// the side that does not write the files, which knows of it and leaves, zero.
    Done(u64),
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
    /// The path of a folder of which the manifest has everything that its
    /// [filters](FileFrame::Filter) let through: what is there besides may be deleted. Empty for
    /// the receiving folder itself.
    Mirror(&'a [u8]),
    /// Positions before this one may be sent: the receiver writes its one file in order, and takes
    /// no more. Without such a frame before [`FileFrame::Ready`], all of them may.
    Grant(u64),
    /// In a dry run: entries that the receiver has, but for owner, mode or attributes.
    Updates(Vec<Range>),
    /// Before [`FileFrame::Done`], unless all numbers are zero.
    Archived(Archived),
    /// A file that changed while it was sent. It comes on each path, ahead of data that were read
    /// after the change. Of a file that is an object of its own and is left out, nothing more is
    /// sent; in a pack, octets of any value stand in its place.
    Changed(Changed<'a>),
}

impl Emit for FileFrame<'_> {
    fn kind(&self) -> FrameKind {
        match self {
            FileFrame::Session(frame) => frame.kind(),
            FileFrame::Entries(_) => FrameKind::Entries,
            FileFrame::ManifestEnd(_) => FrameKind::ManifestEnd,
            FileFrame::Want(_) => FrameKind::Want,
            FileFrame::Have(_) => FrameKind::Have,
            FileFrame::Ready => FrameKind::Ready,
            FileFrame::Data(_) => FrameKind::Data,
            FileFrame::Compressed(_) => FrameKind::Compressed,
            FileFrame::Ack(_) => FrameKind::Ack,
            FileFrame::Refused(_) => FrameKind::Refused,
            FileFrame::ObjectDone(..) => FrameKind::ObjectDone,
            FileFrame::Done(_) => FrameKind::Done,
            FileFrame::Name(_) => FrameKind::Name,
            FileFrame::Filter(..) => FrameKind::Filter,
            FileFrame::Ask(_) => FrameKind::Ask,
            FileFrame::Request(_) => FrameKind::Request,
            FileFrame::Hashes(_) => FrameKind::Hashes,
            FileFrame::Held(_) => FrameKind::Held,
            FileFrame::Creates(_) => FrameKind::Creates,
            FileFrame::Replaces(_) => FrameKind::Replaces,
            FileFrame::Keeps(_) => FrameKind::Keeps,
            FileFrame::Deletes(_) => FrameKind::Deletes,
            FileFrame::Grown(_) => FrameKind::Grown,
            FileFrame::LeftOut(_) => FrameKind::LeftOut,
            FileFrame::Mirror(_) => FrameKind::Mirror,
            FileFrame::Grant(_) => FrameKind::Grant,
            FileFrame::Updates(_) => FrameKind::Updates,
            FileFrame::Archived(_) => FrameKind::Archived,
            FileFrame::Changed(_) => FrameKind::Changed,
        }
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        self.emit_fields(out);
    }
}

impl<'a> From<SessionFrame<'a>> for FileFrame<'a> {
    fn from(frame: SessionFrame<'a>) -> FileFrame<'a> {
        FileFrame::Session(frame)
    }
}
