//! Where files arrive: a directory that nothing escapes, partial files and their journals, and the final rename.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps, fchmod, flock, fsync,
    futimens, openat2, renameat, renameat_with, statat, unlinkat,
};
use transfer::digest::{Merge, block_cv};
use transfer::journal::{Header, Journal, MAX_HEADER_LEN, RECORD_LEN, Record};
use transfer::{BLOCK, Cv, FileEntry};
use units::Bytes;

use crate::{Error, Fingerprint};

/// The directory that receives. Names are resolved below it and never through a symbolic link.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

/// A file that is arriving.
pub(crate) struct Target {
    path: PathBuf,
    name: Vec<u8>,
    partial_name: Vec<u8>,
    journal_name: Vec<u8>,
    entry: FileEntry,
    file: File,
    journal: Mutex<OpenJournal>,
}

struct OpenJournal {
    file: File,
    format: Journal,
}

/// A block that an earlier attempt left whole: its index within the file, and its hash.
pub(crate) type Held = (u64, Cv);

impl Directory {
    /// Opens `path`, making it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Directory, Error> {
        let failed = |source| Error::Disk { action: "open the directory", path: path.to_path_buf(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        let fd = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|errno| failed(errno.into()))?;
        Ok(Directory { path: path.to_path_buf(), fd })
    }

    /// Bytes that the file system has left for us.
    pub(crate) fn free(&self) -> Result<Bytes, Error> {
        let stat =
            rustix::fs::fstatvfs(&self.fd).map_err(|errno| self.failed("ask for free space in", b"", errno.into()))?;
        Ok(Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    /// The directory's path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `name` is taken, by whatever.
    pub(crate) fn exists(&self, name: &[u8]) -> Result<bool, Error> {
        match statat(&self.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("look at", name, errno.into())),
        }
    }

    /// Bytes on disk of an earlier attempt at `name`.
    pub(crate) fn held_bytes(&self, name: &[u8]) -> Bytes {
        let stat = statat(&self.fd, OsStr::from_bytes(&partial_name(name)), AtFlags::SYMLINK_NOFOLLOW);
        Bytes(stat.map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)))
    }

    /// Opens the partial file and the journal for `entry`, and says which blocks of an earlier attempt are whole: those that are
    /// journaled for the same source and hash right on disk. `alive` is called while that reads.
    pub(crate) fn target(
        &self,
        entry: &FileEntry,
        sender: Fingerprint,
        session: [u8; 16],
        restart: bool,
        alive: &mut dyn FnMut(),
    ) -> Result<(Target, Vec<Held>), Error> {
        let name = entry.name.clone();
        let (partial_name, journal_name) = (partial_name(&name), journal_name(&name));
        let journal_file = self.open_own(&journal_name)?;
        flock(&journal_file, FlockOperation::NonBlockingLockExclusive).map_err(|_| Error::Disk {
            action: "write",
            path: self.path.join(OsStr::from_bytes(&name)),
            source: io::Error::new(io::ErrorKind::ResourceBusy, "another transfer is writing it"),
        })?;
        let file = self.open_own(&partial_name)?;
        let header = Header {
            size: entry.size.0,
            mtime_nanos: entry.mtime_nanos,
            name: name.clone(),
            sender: *sender.as_bytes(),
            session,
        };
        let failed = |source| self.failed("read the journal of", &name, source);
        let (journal, held) =
            if restart { (None, Vec::new()) } else { reopen(&journal_file, &file, &header, alive).map_err(failed)? };
        let format = match journal {
            Some(format) => format,
            None => begin(&journal_file, &file, &header).map_err(|source| self.failed("begin", &name, source))?,
        };
        let target = Target {
            path: self.path.join(OsStr::from_bytes(&name)),
            name,
            partial_name,
            journal_name,
            entry: entry.clone(),
            file,
            journal: Mutex::new(OpenJournal { file: journal_file, format }),
        };
        Ok((target, held))
    }

    /// Opens a file of ours for reading and writing, makes it if need be, and follows no link on the way.
    fn open_own(&self, name: &[u8]) -> Result<File, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = openat2(&self.fd, OsStr::from_bytes(name), flags, mode, resolve);
        let file = File::from(opened.map_err(|errno| self.failed("open", name, errno.into()))?);
        let metadata = file.metadata().map_err(|source| self.failed("look at", name, source))?;
        if metadata.is_file() {
            Ok(file)
        } else {
            Err(self.failed("open", name, io::Error::other("it is in the way and no regular file")))
        }
    }

    fn failed(&self, action: &'static str, name: &[u8], source: io::Error) -> Error {
        Error::Disk { action, path: self.path.join(OsStr::from_bytes(name)), source }
    }
}

impl Target {
    /// The final path, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes bytes of the file.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, offset).map_err(|source| self.failed("write", source))
    }

    /// Reads the block at `offset` back and hashes it.
    pub(crate) fn hash_block(&self, offset: u64) -> Result<Cv, Error> {
        let mut buffer = vec![0; block_len(self.entry.size.0, offset)];
        self.file.read_exact_at(&mut buffer, offset).map_err(|source| self.failed("read back", source))?;
        Ok(block_cv(self.entry.size.0, offset, &buffer))
    }

    /// Notes a block as whole. In the journal before anybody is told; on the disk when [`Target::sync`] says so.
    pub(crate) fn note(&self, block: u64, cv: Cv) -> Result<(), Error> {
        let mut journal = self.journal.lock().expect("no panic while held");
        let record = journal.format.record(Record { block, cv });
        journal.file.write_all(&record).map_err(|source| self.failed("journal", source))
    }

    /// Brings data and journal to the disk, the data first.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|source| self.failed("sync", source))?;
        let journal = self.journal.lock().expect("no panic while held").file.try_clone();
        journal.and_then(|file| file.sync_data()).map_err(|source| self.failed("sync", source))
    }

    /// Gives the complete file its times, its mode and its name. With `verify`, reads it back from the disk first.
    pub(crate) fn finish(&self, directory: &Directory, root: Cv, verify: bool, overwrite: bool) -> Result<(), Error> {
        self.file.set_len(self.entry.size.0).map_err(|source| self.failed("set the length of", source))?;
        let stamp = self.entry.mtime_nanos;
        let time = Timespec { tv_sec: stamp.div_euclid(1_000_000_000), tv_nsec: stamp.rem_euclid(1_000_000_000) as _ };
        futimens(&self.file, &Timestamps { last_access: time, last_modification: time })
            .map_err(|errno| self.failed("set the time of", errno.into()))?;
        // Only the nine permission bits: nobody receives set-user-id files by surprise.
        fchmod(&self.file, Mode::from_raw_mode(self.entry.mode & 0o777))
            .map_err(|errno| self.failed("set the mode of", errno.into()))?;
        self.file.sync_all().map_err(|source| self.failed("sync", source))?;
        if verify {
            self.verify(root)?;
        }
        let (from, to) = (OsStr::from_bytes(&self.partial_name), OsStr::from_bytes(&self.name));
        let renamed = if overwrite {
            renameat(&directory.fd, from, &directory.fd, to)
        } else {
            renameat_with(&directory.fd, from, &directory.fd, to, RenameFlags::NOREPLACE)
        };
        match renamed {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Err(Error::Exists { path: self.path.clone() }),
            Err(errno) => return Err(self.failed("rename", errno.into())),
        }
        fsync(&directory.fd).map_err(|errno| self.failed("sync the directory of", errno.into()))?;
        // Last: a crash before this leaves a journal without a partial file, which the next attempt begins anew.
        let _ = unlinkat(&directory.fd, OsStr::from_bytes(&self.journal_name), AtFlags::empty());
        Ok(())
    }

    fn verify(&self, root: Cv) -> Result<(), Error> {
        let _ = rustix::fs::fadvise(self.file.as_fd(), 0, None, rustix::fs::Advice::DontNeed);
        let size = self.entry.size.0;
        let mut merge = Merge::new(size);
        let mut offset = 0;
        while offset < size {
            merge.insert(offset / BLOCK, self.hash_block(offset)?).expect("each block once");
            offset += BLOCK;
        }
        match merge.root() {
            Some(found) if found == root => Ok(()),
            _ => Err(Error::Integrity {
                what: self.path.display().to_string(),
                detail: "what the disk gives back differs from what was written to it".into(),
            }),
        }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Disk { action, path: self.path.clone(), source }
    }
}

/// Takes up an earlier attempt, if there is one at the same source.
fn reopen(
    mut journal: &File,
    file: &File,
    wanted: &Header,
    alive: &mut dyn FnMut(),
) -> io::Result<(Option<Journal>, Vec<Held>)> {
    let mut bytes = vec![0; MAX_HEADER_LEN];
    let length = read_up_to(journal, &mut bytes)?;
    let Ok((header, format, used)) = Journal::open(&bytes[..length]) else { return Ok((None, Vec::new())) };
    let same = header.size == wanted.size && header.mtime_nanos == wanted.mtime_nanos && header.name == wanted.name;
    if !same {
        return Ok((None, Vec::new()));
    }
    let mut position = used as u64;
    let mut held = Vec::new();
    let mut block = vec![0; usize::try_from(BLOCK).expect("a block fits in memory")];
    let mut chunk = vec![0; RECORD_LEN * 1_024];
    journal.seek(SeekFrom::Start(position))?;
    loop {
        let length = read_up_to(journal, &mut chunk)?;
        let mut records = format.records(&chunk[..length]);
        for record in records.by_ref() {
            let offset = record.block * BLOCK;
            let piece = &mut block[..block_len(wanted.size, offset)];
            if file.read_exact_at(piece, offset).is_ok() && block_cv(wanted.size, offset, piece) == record.cv {
                held.push((record.block, record.cv));
            }
            alive();
        }
        position += records.used() as u64;
        if records.used() < chunk.len() {
            break;
        }
    }
    // A torn end is cut off, so that the next record follows a good one.
    journal.set_len(position)?;
    journal.seek(SeekFrom::Start(position))?;
    held.sort_by_key(|(block, _)| *block);
    held.dedup_by_key(|(block, _)| *block);
    Ok((Some(format), held))
}

/// Begins a journal and an empty partial file of full length.
fn begin(mut journal: &File, file: &File, header: &Header) -> io::Result<Journal> {
    file.set_len(0)?;
    file.set_len(header.size)?;
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

fn block_len(size: u64, offset: u64) -> usize {
    usize::try_from(BLOCK.min(size - offset)).expect("a block fits in memory")
}

fn partial_name(name: &[u8]) -> Vec<u8> {
    beside(name, b".anabranch-part")
}

fn journal_name(name: &[u8]) -> Vec<u8> {
    beside(name, b".anabranch-journal")
}

/// A hidden name beside `name`; a name too long for that is replaced by its hash.
fn beside(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    const LONGEST: usize = 255;
    if 1 + name.len() + suffix.len() <= LONGEST {
        [b".", name, suffix].concat()
    } else {
        let hash = block_cv(name.len() as u64, 0, name).to_string();
        [b".", hash.as_bytes(), suffix].concat()
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
