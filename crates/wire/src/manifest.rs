//! The manifest: the entries of a transfer, in chunks of bounded length.
//!
//! ```text
//! entry      u8 kind and flags   u16 octets of the path shared with the entry before
//!            u16 further octets of the path   those octets
//! file       u64 size, all ones if unknown   i64 mtime (ns)   u16 mode   [32] BLAKE3 if flagged
//!            u16 number of data extents, if flagged sparse; u64 offset and u64 length of each
//! extents    u16 number of further data extents of the file before; u64 offset, u64 length of each
//! owner      of the entry before: u16 mode   u32 user   u32 group
//! attribute  of the entry before: u8 length   name   u32 length   value
//! directory  i64 mtime (ns)   u16 mode
//! symlink    i64 mtime (ns)   u16 length   target
//! hard link  u32 index of the entry that it is another name of
//! ```
//!
//! Integers are big-endian. The first entry of a chunk shares no path with the one before, so that
//! each chunk can be read on its own. Each entry is checked on its own as it is read
//! ([`Entry::check`]); the relations between entries are for the caller to check. A file with many
//! holes is told in parts, and so are [`Attributes`]; an [`Assembly`] puts them together.

mod assembly;
mod attributes;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::WireError;
use crate::reader::Reader;

pub use assembly::Assembly;
pub use attributes::{
    ACCESS_LIST, Attributes, AttributesOf, CAPABILITY, Extended, MAX_ATTRIBUTE_NAME,
    MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES, MAX_ATTRIBUTES_BYTES, PRIVATE_FILE, PRIVATE_FOLDER,
    is_kept,
};

/// The longest chunk, in bytes: an extended attribute of any length fits into one.
pub const MAX_CHUNK: usize = 65 * 1024;
/// The longest path, in bytes: the kernel opens no longer one, its NUL included.
pub const MAX_PATH: usize = 4095;
/// The most components of a path.
pub const MAX_DEPTH: usize = 1_000;
/// The longest component of a path, in bytes: the limit of common file systems.
pub const MAX_COMPONENT: usize = 255;
/// The longest target of a symbolic link, in bytes.
pub const MAX_TARGET: usize = 4095;
/// The most extents of data that a sparse file may have.
pub const MAX_EXTENTS: usize = 1 << 20;
/// The most extents in one part of a manifest: the part fits into a chunk beside a path.
const MAX_EXTENTS_IN_PART: usize = 2_048;
/// The name of the folder in which a receiver keeps incomplete files.
pub const RESERVED: &[u8] = b".anabranch-partial";
/// The size of a stream in the manifest: nobody knows it before the stream ends.
pub const UNKNOWN_SIZE: u64 = u64::MAX;
/// The most bytes that a stream may have: 64 PiB.
pub const MOST_STREAMED: u64 = 1 << 56;
/// The permitted bits of a mode.
pub const MODE_BITS: u16 = 0o7777;

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the receiving folder: components joined by `/`, of any bytes but NUL.
    pub path: Vec<u8>,
    /// Its kind, with the kind's fields.
    pub kind: Kind,
}

/// The kind of an entry. Devices, sockets and pipes have none, so that no peer can have them
/// created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File(File),
    /// A directory.
    Directory {
        /// Time of last modification, nanoseconds since 1970.
        mtime: i64,
        /// Permission bits.
        mode: u16,
    },
    /// A symbolic link.
    Symlink {
        /// Time of last modification, nanoseconds since 1970.
        mtime: i64,
        /// Its target, of any bytes but NUL. Nothing in Anabranch follows it.
        target: Vec<u8>,
    },
    /// Another name of an earlier file.
    HardLink {
        /// Index of the file's entry.
        to: u32,
    },
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its size in bytes, or [`UNKNOWN_SIZE`].
    pub size: u64,
    /// Time of last modification, nanoseconds since 1970.
    pub mtime: i64,
    /// Permission bits.
    pub mode: u16,
    /// BLAKE3 of its contents, if the sender compares by contents.
    pub hash: Option<[u8; 32]>,
    /// The data extents of a sparse file: offset and length, ascending, none empty, none adjacent.
    /// `None` for a file without holes.
    pub data: Option<Vec<(u64, u64)>>,
}

impl File {
    /// Whether it is a stream, whose size its sender does not know yet.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.size == UNKNOWN_SIZE
    }

    /// The data extents, in order: offset and length. A stream has room for [`MOST_STREAMED`].
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let size = if self.is_stream() { MOST_STREAMED } else { self.size };
        let all = if self.data.is_none() && size > 0 { Some((0, size)) } else { None };
        all.into_iter().chain(self.data.iter().flatten().copied())
    }

    /// The bytes of data, holes excluded.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        self.extents().map(|(_, len)| len).sum()
    }
}

/// Whether a component of a path is [`RESERVED`], in whatever case: some file systems ignore it. No
/// entry has such a component, at any depth, since one receiver's folder may lie in another's.
#[must_use]
pub fn is_reserved(component: &[u8]) -> bool {
    component.eq_ignore_ascii_case(RESERVED)
}

/// Whether a path has more than [`MAX_DEPTH`] components or [`MAX_PATH`] bytes.
#[must_use]
pub fn is_too_long(path: &[u8]) -> bool {
    path.len() > MAX_PATH || path.split(|&byte| byte == b'/').count() > MAX_DEPTH
}

/// Whether a path is relative and plain: components that are neither empty nor `.` nor `..` nor too
/// long nor [reserved](is_reserved), without a NUL, and [not too many](is_too_long). Such a path
/// cannot leave the receiving folder.
#[must_use]
pub fn is_plain(path: &[u8]) -> bool {
    let mut depth = 0;
    path.len() <= MAX_PATH
        && !path.contains(&0)
        && path.split(|&byte| byte == b'/').all(|part| {
            depth += 1;
            !part.is_empty()
                && part.len() <= MAX_COMPONENT
                && part != b"."
                && part != b".."
                && !is_reserved(part)
        })
        && depth <= MAX_DEPTH
}

impl Entry {
    /// Checks the entry on its own.
    ///
    /// # Errors
    /// The name of the invalid field.
    pub fn check(&self) -> Result<(), &'static str> {
        if !is_plain(&self.path) {
            return Err(if is_too_long(&self.path) { "path length" } else { "path" });
        }
        match &self.kind {
            Kind::File(file) if file.mode > MODE_BITS => Err("mode"),
            Kind::File(file) if file.is_stream() => {
                if file.data.is_some() || file.hash.is_some() {
                    Err("size")
                } else {
                    Ok(())
                }
            }
            Kind::File(file) => match &file.data {
                Some(data) if !is_sparse(data, file.size) => Err("list of data extents"),
                _ => Ok(()),
            },
            Kind::Directory { mode, .. } if *mode > MODE_BITS => Err("mode"),
            Kind::Symlink { target, .. }
                if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) =>
            {
                Err("target")
            }
            Kind::Directory { .. } | Kind::Symlink { .. } | Kind::HardLink { .. } => Ok(()),
        }
    }
}

/// Whether these are valid data extents of a file of `size` bytes.
fn is_sparse(data: &[(u64, u64)], size: u64) -> bool {
    data.len() <= MAX_EXTENTS && ascend(data, None, size)
}

/// Whether extents lie in a file of `size` bytes, each behind a hole after the one before; `end` is
/// the end of the extent before them.
fn ascend(data: &[(u64, u64)], mut end: Option<u64>, size: u64) -> bool {
    data.iter().all(|&(offset, len)| {
        let is_apart = end.is_none_or(|end| offset > end);
        end = offset.checked_add(len);
        is_apart && len > 0 && end.is_some_and(|end| end <= size)
    })
}

const FILE: u8 = 0;
const DIRECTORY: u8 = 1;
const SYMLINK: u8 = 2;
const HARD_LINK: u8 = 3;
const EXTENTS: u8 = 4;
const OWNER: u8 = 5;
const ATTRIBUTE: u8 = 6;
const SPARSE: u8 = 0x10;
const HASHED: u8 = 0x20;

/// Cuts a manifest into chunks. Each holds as many entries as fit into [`MAX_CHUNK`].
pub struct Chunks<'a> {
    rest: &'a [Entry],
    /// The index of the first of them.
    index: usize,
    attributes: &'a AttributesOf,
    /// The number of parts of the first of them that earlier chunks have told.
    told: usize,
}

/// The chunks of these entries, without attributes.
#[must_use]
pub fn chunks(entries: &[Entry]) -> Chunks<'_> {
    static NONE: AttributesOf = BTreeMap::new();
    chunks_with(entries, &NONE)
}

/// The chunks of these entries, with their attributes.
#[must_use]
pub fn chunks_with<'a>(entries: &'a [Entry], attributes: &'a AttributesOf) -> Chunks<'a> {
    Chunks { rest: entries, index: 0, attributes, told: 0 }
}

impl Iterator for Chunks<'_> {
    type Item = Vec<u8>;

    /// # Panics
    /// If an entry does not pass [`Entry::check`], or its attributes [`Attributes::check`].
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut chunk = Vec::new();
        let mut before: &[u8] = &[];
        while let Some((entry, rest)) = self.rest.split_first() {
            let start = chunk.len();
            let attributes = self.attributes.get(&self.index);
            let (extents, of_extents) = extents_of(entry);
            match self.told.checked_sub(of_extents) {
                None => {
                    let first = self.told * MAX_EXTENTS_IN_PART;
                    let last = extents.len().min(first + MAX_EXTENTS_IN_PART);
                    if self.told == 0 {
                        emit(entry, &extents[..last], before, &mut chunk);
                        before = &entry.path;
                    } else {
                        chunk.push(EXTENTS);
                        emit_extents(&extents[first..last], &mut chunk);
                    }
                }
                Some(told) => emit_attributes(
                    attributes.expect("they are among the parts of the entry"),
                    told,
                    &mut chunk,
                ),
            }
            if chunk.len() > MAX_CHUNK {
                assert!(start > 0, "a part that passes its check fits into a chunk");
                chunk.truncate(start);
                break;
            }
            self.told += 1;
            if self.told == of_extents + attributes.map_or(0, |all| 1 + all.extended.len()) {
                (self.rest, self.index, self.told) = (rest, self.index + 1, 0);
            }
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

/// The data extents of an entry, and the number of parts that tell the entry and these.
fn extents_of(entry: &Entry) -> (&[(u64, u64)], usize) {
    let extents = match &entry.kind {
        Kind::File(File { data: Some(data), .. }) => &data[..],
        _ => &[],
    };
    (extents, extents.len().div_ceil(MAX_EXTENTS_IN_PART).max(1))
}

/// Writes the owner, or, if `told` is not zero, the extended attribute of that number.
fn emit_attributes(attributes: &Attributes, told: usize, out: &mut Vec<u8>) {
    let Some(index) = told.checked_sub(1) else {
        out.push(OWNER);
        out.extend_from_slice(&attributes.mode.to_be_bytes());
        out.extend_from_slice(&attributes.uid.to_be_bytes());
        return out.extend_from_slice(&attributes.gid.to_be_bytes());
    };
    let Extended { name, value } = &attributes.extended[index];
    let checked = "attributes that pass their check are short";
    out.push(ATTRIBUTE);
    out.push(u8::try_from(name.len()).expect(checked));
    out.extend_from_slice(name);
    out.extend_from_slice(&u32::try_from(value.len()).expect(checked).to_be_bytes());
    out.extend_from_slice(value);
}

/// Writes an entry, of whose data extents these are the first.
fn emit(entry: &Entry, extents: &[(u64, u64)], before: &[u8], out: &mut Vec<u8>) {
    let shared = entry.path.iter().zip(before).take_while(|(a, b)| a == b).count();
    let kind = match &entry.kind {
        Kind::File(file) => {
            FILE | if file.data.is_some() { SPARSE } else { 0 }
                | if file.hash.is_some() { HASHED } else { 0 }
        }
        Kind::Directory { .. } => DIRECTORY,
        Kind::Symlink { .. } => SYMLINK,
        Kind::HardLink { .. } => HARD_LINK,
    };
    out.push(kind);
    emit_length(shared, out);
    emit_length(entry.path.len() - shared, out);
    out.extend_from_slice(&entry.path[shared..]);
    match &entry.kind {
        Kind::File(file) => {
            out.extend_from_slice(&file.size.to_be_bytes());
            out.extend_from_slice(&file.mtime.to_be_bytes());
            out.extend_from_slice(&file.mode.to_be_bytes());
            out.extend_from_slice(file.hash.as_ref().map_or(&[], |hash| hash));
            if file.data.is_some() {
                emit_extents(extents, out);
            }
        }
        Kind::Directory { mtime, mode } => {
            out.extend_from_slice(&mtime.to_be_bytes());
            out.extend_from_slice(&mode.to_be_bytes());
        }
        Kind::Symlink { mtime, target } => {
            out.extend_from_slice(&mtime.to_be_bytes());
            emit_length(target.len(), out);
            out.extend_from_slice(target);
        }
        Kind::HardLink { to } => out.extend_from_slice(&to.to_be_bytes()),
    }
}

fn emit_extents(extents: &[(u64, u64)], out: &mut Vec<u8>) {
    emit_length(extents.len(), out);
    for (offset, len) in extents {
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
    }
}

fn emit_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(
        &u16::try_from(length)
            .expect("an entry that passes its check has short parts")
            .to_be_bytes(),
    );
}

/// A part of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// An entry; of a sparse file, the first data extents may be all that is told yet.
    Entry(Entry),
    /// Further data extents of the file before.
    Extents(Vec<(u64, u64)>),
    /// Mode and owner of the entry before, without extended attributes.
    Owner(Attributes),
    /// A further extended attribute of the entry before.
    Attribute(Extended),
}

/// Reads a chunk, part by part. The iterator ends after an error.
pub struct Entries<'a> {
    reader: Option<Reader<'a>>,
    before: Vec<u8>,
}

/// The parts of a chunk. Nothing is allocated beyond one part at a time; the caller bounds what it
/// keeps.
#[must_use]
pub fn entries(chunk: &[u8]) -> Entries<'_> {
    Entries { reader: Some(Reader::new(NAME, chunk)), before: Vec::new() }
}

const NAME: &str = "Entries";

impl Iterator for Entries<'_> {
    type Item = Result<Part, WireError>;

    fn next(&mut self) -> Option<Result<Part, WireError>> {
        let reader = self.reader.as_mut().filter(|reader| !reader.is_empty())?;
        let read = part(reader, &self.before);
        match &read {
            Ok(Part::Entry(entry)) => self.before.clone_from(&entry.path),
            Ok(Part::Extents(_) | Part::Owner(_) | Part::Attribute(_)) => {}
            Err(_) => self.reader = None,
        }
        Some(read)
    }
}

fn part(reader: &mut Reader<'_>, before: &[u8]) -> Result<Part, WireError> {
    let bad = |field| WireError::Field { frame: NAME, field };
    let kind = reader.u8()?;
    match kind {
        EXTENTS => return extents(reader).map(Part::Extents),
        OWNER => return owner(reader).map(Part::Owner),
        ATTRIBUTE => return attribute(reader).map(Part::Attribute),
        _ => {}
    }
    let (shared, further) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
    let shared = before.get(..shared).ok_or(bad("shared path"))?;
    let path = [shared, reader.bytes(further)?].concat();
    let kind = match (kind & 0x0f, kind & 0xf0) {
        (FILE, flags) if flags & !(SPARSE | HASHED) == 0 => {
            let (size, mtime, mode) = (reader.u64()?, reader.i64()?, reader.u16()?);
            let hash = if flags & HASHED == 0 { None } else { Some(reader.array()?) };
            let data = if flags & SPARSE == 0 { None } else { Some(extents(reader)?) };
            Kind::File(File { size, mtime, mode, hash, data })
        }
        (DIRECTORY, 0) => Kind::Directory { mtime: reader.i64()?, mode: reader.u16()? },
        (SYMLINK, 0) => {
            let (mtime, length) = (reader.i64()?, reader.u16()?);
            Kind::Symlink { mtime, target: reader.bytes(usize::from(length))?.to_vec() }
        }
        (HARD_LINK, 0) => Kind::HardLink { to: reader.u32()? },
        _ => return Err(bad("kind")),
    };
    let entry = Entry { path, kind };
    entry.check().map_err(bad)?;
    Ok(Part::Entry(entry))
}

fn extents(reader: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, WireError> {
    let mut all = Vec::new();
    for _ in 0..reader.u16()? {
        all.push((reader.u64()?, reader.u64()?));
    }
    Ok(all)
}

fn owner(reader: &mut Reader<'_>) -> Result<Attributes, WireError> {
    let (mode, uid, gid) = (reader.u16()?, reader.u32()?, reader.u32()?);
    let attributes = Attributes { mode, uid, gid, extended: Vec::new() };
    attributes.check_owner().map_err(|field| WireError::Field { frame: NAME, field })?;
    Ok(attributes)
}

fn attribute(reader: &mut Reader<'_>) -> Result<Extended, WireError> {
    let length = usize::from(reader.u8()?);
    let name = reader.bytes(length)?.to_vec();
    let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
    let extended = Extended { name, value: reader.bytes(length)?.to_vec() };
    extended.check().map_err(|field| WireError::Field { frame: NAME, field })?;
    Ok(extended)
}
