//! The part of a large file, and the journal of its blocks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate};
use rustix::io::Errno;
use transfer::digest::{Merge, block_cv};
use transfer::journal::{Header, Journal, MAX_HEADER_LEN, RECORD_LEN, Record};
use transfer::{BLOCK, Cv, Extent, Packing};
use wire::manifest;

use super::lacking::{self, if_possible, lacks, lock};
use super::staging::{self, Staging, name_prefix};
use crate::Error;
use crate::beneath::Inode;
use peer::Fingerprint;

/// A large file that is being received.
pub(crate) struct Part {
    /// Its final path, for messages.
    shown: PathBuf,
    file: File,
    pub(crate) inode: Inode,
    journal: Mutex<OpenJournal>,
    place: Place,
    /// The size of a stream, once it has ended.
    end: OnceLock<u64>,
    /// Names of the part and of the journal in the staging folder.
    pub(crate) name: String,
    pub(crate) journal_name: String,
    /// Whether a block was journaled since the last sync.
    dirty: AtomicBool,
}

struct OpenJournal {
    file: File,
    format: Journal,
}

/// The position of the file's data in the layout.
#[derive(Clone)]
struct Place {
    packing: Arc<Packing>,
    extent: Extent,
}

/// A valid block of an earlier attempt: its index within the object, and its hash.
pub(crate) type JournaledBlock = (u64, Cv);

/// The names in the staging folder of the part and of the journal of the file at `path`.
pub(crate) fn part_names(path: &[u8]) -> (String, String) {
    let prefix = name_prefix(path);
    (format!("{prefix}.part"), format!("{prefix}.journal"))
}

impl Part {
    /// Opens the part and the journal of the file at `path`, whose data is object number `object`.
    /// Returns the valid blocks of an earlier attempt: those that are journaled for the same source
    /// and whose data on disk match their hash.
    #[expect(clippy::too_many_arguments, reason = "whose file, which, and of which session")]
    pub(crate) fn open(
        staging: &Staging,
        packing: &Arc<Packing>,
        object: usize,
        path: &[u8],
        entry: &manifest::File,
        sender: Fingerprint,
        session: [u8; 16],
        restart: bool,
    ) -> Result<(Part, Vec<JournaledBlock>), Error> {
        let (name, journal_name) = part_names(path);
        let shown = staging.shown(path);
        let failed = |action| {
            let path = &shown;
            move |source: io::Error| Error::Disk { action, path: path.clone(), source }
        };
        let journal_file = staging.open_durable(&journal_name).map_err(failed("begin"))?;
        lock(&journal_file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| {
                io::Error::new(io::ErrorKind::ResourceBusy, "another transfer is writing it")
            })
            .map_err(failed("write"))?;
        let file = staging.open_durable(&name).map_err(failed("begin"))?;
        let extent = packing.layout().object_extent(object).expect("an object of the layout");
        let place = Place { packing: Arc::clone(packing), extent };
        let header = Header {
            size: extent.len,
            mtime_nanos: entry.mtime,
            name: path.to_vec(),
            sender: *sender.as_bytes(),
            session,
        };
        let (journal, held) = if restart {
            (None, Vec::new())
        } else {
            reopen(&journal_file, &file, &header, &place).map_err(failed("read the journal of"))?
        };
        let format = if let Some(format) = journal {
            format
        } else {
            let size = if entry.is_stream() { 0 } else { entry.size };
            begin(&journal_file, &file, &header, size).map_err(failed("begin"))?
        };
        let inode = staging::inode_of(&file).map_err(failed("begin"))?;
        let part = Part {
            shown,
            file,
            inode,
            journal: Mutex::new(OpenJournal { file: journal_file, format }),
            place,
            end: OnceLock::new(),
            name,
            journal_name,
            dirty: AtomicBool::new(false),
        };
        Ok((part, held))
    }

    /// The file is a stream that has ended with `size` bytes.
    pub(crate) fn note_end(&self, size: u64) {
        let _ = self.end.set(size);
    }

    /// The bytes of the object, as far as they matter for the hash of a block: a stream that has
    /// not ended has more than one block.
    pub(crate) fn data_len(&self) -> u64 {
        self.end.get().copied().unwrap_or(self.place.extent.len)
    }

    /// The file.
    pub(super) fn data(&self) -> &File {
        &self.file
    }

    /// Frees the disk's space of a range of the file, which nobody reads any more. It does not
    /// matter if the file system cannot do that.
    pub(super) fn free(&self, from: u64, to: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&self.file, flags, from, to - from);
    }

    /// Writes bytes of the layout at `position`.
    pub(crate) fn write(&self, position: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut rest = bytes;
        for piece in self.place.packing.pieces(Extent::new(position, bytes.len() as u64)) {
            let (part, after) =
                rest.split_at(usize::try_from(piece.extent.len).expect("within the bytes"));
            self.file
                .write_all_at(part, piece.offset)
                .map_err(|source| self.failed("write", source))?;
            rest = after;
        }
        Ok(())
    }

    /// Reads a block of the layout back and hashes it.
    pub(crate) fn hash_block(&self, extent: Extent) -> Result<Cv, Error> {
        self.place
            .hash(&self.file, self.data_len(), extent, &mut Vec::new())
            .map_err(|source| self.failed("read back", source))
    }

    /// Journals a block, counted from the object's start, as verified. [`Part::sync`] makes the
    /// record durable.
    pub(crate) fn record_block(&self, block: u64, cv: Cv) -> Result<(), Error> {
        let mut journal = self.journal.lock().expect("no panic while held");
        let record = journal.format.record(Record { block, cv });
        self.dirty.store(true, Ordering::Relaxed);
        journal.file.write_all(&record).map_err(|source| self.failed("journal", source))
    }

    /// Syncs data and journal, the data first.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        lacking::sync_data(&self.file).map_err(|source| self.failed("sync", source))?;
        let journal = self.journal.lock().expect("no panic while held").file.try_clone();
        journal
            .and_then(|file| lacking::sync_data(&file))
            .map_err(|source| self.failed("sync", source))
    }

    /// Sets length, holes, mode and time of the complete file. Returns whether the file system has
    /// mode and time.
    pub(crate) fn finish(&self, entry: &manifest::File) -> Result<bool, Error> {
        let size = self.end.get().copied().unwrap_or(entry.size);
        self.file.set_len(size).map_err(|source| self.failed("set the length of", source))?;
        if entry.is_stream() {
            // Its time is that of its last byte here.
            return staging::set_mode(&self.file, entry)
                .map_err(|source| self.failed("set the mode of", source));
        }
        self.punch_holes(entry).map_err(|source| self.failed("make the holes of", source))?;
        staging::finish(&self.file, entry)
            .map_err(|source| self.failed("set mode and time of", source))
    }

    /// Punches the holes of the file: no hash covers them, and another process may have written
    /// there since an earlier attempt.
    fn punch_holes(&self, entry: &manifest::File) -> io::Result<()> {
        let mut at = 0;
        for (offset, len) in entry.extents().chain([(entry.size, 0)]) {
            if offset > at && !is_hole(&self.file, at, offset)? {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                if !if_possible(fallocate(&self.file, flags, at, offset - at))? {
                    clear(&self.file, at, offset)?;
                }
            }
            at = offset + len;
        }
        Ok(())
    }

    /// Syncs the file's data and metadata.
    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        lacking::sync_file(&self.file).map_err(|source| self.failed("sync", source))
    }

    /// Reads the whole file back from the disk and compares it with its hash.
    pub(crate) fn matches_root(&self, root: Cv) -> Result<bool, Error> {
        let _ = rustix::fs::fadvise(self.file.as_fd(), 0, None, rustix::fs::Advice::DontNeed);
        let whole = Extent::new(self.place.extent.start, self.data_len());
        let mut merge = Merge::new(whole.len);
        let mut buffer = Vec::new();
        for index in 0..whole.len.div_ceil(BLOCK) {
            let block = Extent::new(whole.start + index * BLOCK, BLOCK).intersection(whole);
            let cv = self.place.hash(&self.file, whole.len, block, &mut buffer);
            merge
                .insert(index, cv.map_err(|source| self.failed("read back", source))?)
                .expect("each block once");
        }
        Ok(merge.root() == Some(root))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Disk { action, path: self.shown.clone(), source }
    }
}

impl Place {
    /// Reads a block of the layout out of the file, whose object has `len` bytes, and hashes it.
    fn hash(&self, file: &File, len: u64, block: Extent, buffer: &mut Vec<u8>) -> io::Result<Cv> {
        buffer.resize(usize::try_from(block.len).expect("a block fits in memory"), 0);
        for piece in self.packing.pieces(block) {
            let start =
                usize::try_from(piece.extent.start - block.start).expect("within the block");
            let length = usize::try_from(piece.extent.len).expect("within the block");
            file.read_exact_at(&mut buffer[start..start + length], piece.offset)?;
        }
        Ok(block_cv(len, block.start - self.extent.start, buffer))
    }
}

/// Whether a file has no data from `start` to `end`. To look costs less than to punch.
fn is_hole(file: &File, start: u64, end: u64) -> io::Result<bool> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(start)) {
        Ok(data) => Ok(data >= end),
        // No data up to the end of the file.
        Err(Errno::NXIO) => Ok(true),
        // A file system without holes.
        Err(errno) if lacks(errno) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes everything from `start` to `end` zero, where no hole can be made.
fn clear(file: &File, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1_024];
    let mut at = start;
    while at < end {
        let length = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        let piece = &mut buffer[..length];
        file.read_exact_at(piece, at)?;
        if piece.iter().any(|byte| *byte != 0) {
            piece.fill(0);
            file.write_all_at(piece, at)?;
        }
        at += length as u64;
    }
    Ok(())
}

/// Reads the journal of an earlier attempt, if it is of the same source.
fn reopen(
    mut journal: &File,
    file: &File,
    wanted: &Header,
    place: &Place,
) -> io::Result<(Option<Journal>, Vec<JournaledBlock>)> {
    let mut bytes = vec![0; MAX_HEADER_LEN];
    let length = read_up_to(journal, &mut bytes)?;
    let Ok((header, format, used)) = Journal::open(&bytes[..length]) else {
        return Ok((None, Vec::new()));
    };
    let same = header.size == wanted.size
        && header.mtime_nanos == wanted.mtime_nanos
        && header.name == wanted.name
        && header.sender == wanted.sender;
    if !same {
        return Ok((None, Vec::new()));
    }
    // The start of the next chunk, and the end of the last valid record.
    let (mut position, mut end) = (used as u64, used as u64);
    let mut held = Vec::new();
    let mut buffer = Vec::new();
    let mut chunk = vec![0; RECORD_LEN * 1_024];
    journal.seek(SeekFrom::Start(position))?;
    loop {
        let length = read_up_to(journal, &mut chunk)?;
        let mut records = format.records(&chunk[..length]);
        for record in records.by_ref() {
            let start = place.extent.start + record.block * BLOCK;
            let block = Extent::new(start, BLOCK).intersection(place.extent);
            if place
                .hash(file, place.extent.len, block, &mut buffer)
                .is_ok_and(|cv| cv == record.cv)
            {
                held.push((record.block, record.cv));
            }
        }
        if records.used() > 0 {
            end = position + records.used() as u64;
        }
        if length < chunk.len() {
            break;
        }
        position += length as u64;
    }
    // A torn record at the end is cut off, so that the next record follows a valid one.
    journal.set_len(end)?;
    journal.seek(SeekFrom::Start(end))?;
    held.sort_by_key(|(block, _)| *block);
    held.dedup_by_key(|(block, _)| *block);
    Ok((Some(format), held))
}

/// Creates a journal and an empty part of full length.
fn begin(mut journal: &File, file: &File, header: &Header, size: u64) -> io::Result<Journal> {
    file.set_len(0)?;
    file.set_len(size)?;
    journal.set_len(0)?;
    journal.seek(SeekFrom::Start(0))?;
    let (format, bytes) = Journal::create(header);
    journal.write_all(&bytes)?;
    Ok(format)
}

fn read_up_to(mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}
