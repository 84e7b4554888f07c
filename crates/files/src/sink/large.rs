//! A large file that is arriving: its part, and the journal of its blocks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use transfer::digest::{Merge, block_cv};
use transfer::journal::{Header, Journal, MAX_HEADER_LEN, RECORD_LEN, Record};
use transfer::{BLOCK, Cv, Extent, Packing};
use wire::manifest;

use super::staging::{self, Staging, name_prefix};
use crate::Error;
use peer::Fingerprint;

/// A large file that is arriving.
pub(crate) struct Part {
    /// Its path as it will be, for messages.
    shown: PathBuf,
    file: File,
    journal: Mutex<OpenJournal>,
    place: Place,
    /// Its name in the staging folder, and its journal's.
    pub(crate) name: String,
    pub(crate) journal_name: String,
    /// Whether something was noted since it was last brought to the disk.
    dirty: AtomicBool,
}

struct OpenJournal {
    file: File,
    format: Journal,
}

/// Where the file's data lie in the layout.
#[derive(Clone)]
struct Place {
    packing: Arc<Packing>,
    extent: Extent,
}

/// A block that an earlier attempt left whole: its index within the object, and its hash.
pub(crate) type JournaledBlock = (u64, Cv);

/// The names of the part and of the journal of the file at `path`.
pub(crate) fn part_names(path: &[u8]) -> (String, String) {
    let prefix = name_prefix(path);
    (format!("{prefix}.part"), format!("{prefix}.journal"))
}

impl Part {
    /// Opens the part and the journal of the file at `path`, whose data is object number `object`,
    /// and says which blocks of an earlier attempt are whole: those that are journaled for the same
    /// source and hash right on disk. `alive` is called while that reads.
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
        flock(&journal_file, FlockOperation::NonBlockingLockExclusive)
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
        let format = match journal {
            Some(format) => format,
            None => begin(&journal_file, &file, &header, entry.size).map_err(failed("begin"))?,
        };
        let part = Part {
            shown,
            file,
            journal: Mutex::new(OpenJournal { file: journal_file, format }),
            place,
            name,
            journal_name,
            dirty: AtomicBool::new(false),
        };
        Ok((part, held))
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
            .hash(&self.file, extent, &mut Vec::new())
            .map_err(|source| self.failed("read back", source))
    }

    /// Notes a block, counted from the object's start, as whole. In the journal before anybody is
    /// told; on the disk when [`Part::sync`] says so.
    pub(crate) fn record_block(&self, block: u64, cv: Cv) -> Result<(), Error> {
        let mut journal = self.journal.lock().expect("no panic while held");
        let record = journal.format.record(Record { block, cv });
        self.dirty.store(true, Ordering::Relaxed);
        journal.file.write_all(&record).map_err(|source| self.failed("journal", source))
    }

    /// Brings data and journal to the disk, the data first.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.file.sync_data().map_err(|source| self.failed("sync", source))?;
        let journal = self.journal.lock().expect("no panic while held").file.try_clone();
        journal.and_then(|file| file.sync_data()).map_err(|source| self.failed("sync", source))
    }

    /// Gives the complete file its mode and times.
    pub(crate) fn finish(&self, entry: &manifest::File) -> Result<(), Error> {
        self.file.set_len(entry.size).map_err(|source| self.failed("set the length of", source))?;
        self.punch_holes(entry).map_err(|source| self.failed("make the holes of", source))?;
        staging::finish(&self.file, entry)
            .map_err(|source| self.failed("set mode and time of", source))
    }

    /// Makes holes of what holds no data: nobody hashes that, and something may have been written
    /// there since an earlier attempt.
    fn punch_holes(&self, entry: &manifest::File) -> io::Result<()> {
        let mut at = 0;
        for (offset, len) in entry.extents().chain([(entry.size, 0)]) {
            if offset > at {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match fallocate(&self.file, flags, at, offset - at) {
                    // A file system without holes.
                    Ok(()) | Err(Errno::OPNOTSUPP) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            at = offset + len;
        }
        Ok(())
    }

    /// Brings all of the file to the disk.
    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(|source| self.failed("sync", source))
    }

    /// Reads the whole file back from the disk and compares it with its hash.
    pub(crate) fn matches_root(&self, root: Cv) -> Result<bool, Error> {
        let _ = rustix::fs::fadvise(self.file.as_fd(), 0, None, rustix::fs::Advice::DontNeed);
        let whole = self.place.extent;
        let mut merge = Merge::new(whole.len);
        let mut buffer = Vec::new();
        for index in 0..whole.len.div_ceil(BLOCK) {
            let block = Extent::new(whole.start + index * BLOCK, BLOCK).intersection(whole);
            let cv = self.place.hash(&self.file, block, &mut buffer);
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
    /// Reads a block of the layout out of the file and hashes it.
    fn hash(&self, file: &File, block: Extent, buffer: &mut Vec<u8>) -> io::Result<Cv> {
        buffer.resize(usize::try_from(block.len).expect("a block fits in memory"), 0);
        for piece in self.packing.pieces(block) {
            let start =
                usize::try_from(piece.extent.start - block.start).expect("within the block");
            let length = usize::try_from(piece.extent.len).expect("within the block");
            file.read_exact_at(&mut buffer[start..start + length], piece.offset)?;
        }
        Ok(block_cv(self.extent.len, block.start - self.extent.start, buffer))
    }
}

/// Takes up an earlier attempt, if there is one at the same source.
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
    // Where the next piece begins, and where the last good record ends.
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
            if place.hash(file, block, &mut buffer).is_ok_and(|cv| cv == record.cv) {
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
    // A torn end is cut off, so that the next record follows a good one.
    journal.set_len(end)?;
    journal.seek(SeekFrom::Start(end))?;
    held.sort_by_key(|(block, _)| *block);
    held.dedup_by_key(|(block, _)| *block);
    Ok((Some(format), held))
}

/// Begins a journal and an empty part of full length.
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
