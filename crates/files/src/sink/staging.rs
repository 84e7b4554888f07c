//! Where files wait for their names: a hidden folder in the directory that receives.
//!
//! A small file is written here in one go, once it is verified, under a name that says which path
//! it is for and what its data hash to. So the folder is its own journal: whatever a crash leaves
//! is taken up again if it is what its name says, and nothing else is. A large file has a part and
//! a journal of its blocks here ([`super::large`]).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, ResolveFlags, SeekFrom, fchmod, flock, fstat,
    futimens, mkdirat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use transfer::BLOCK;
use units::Bytes;
use wire::manifest::{self, RESERVED};

use super::directory::{Directory, mtime_of, permissions, timestamps};
use crate::Error;

/// The hidden folder.
pub(crate) struct Staging {
    path: PathBuf,
    fd: OwnedFd,
    /// The directory that it is in.
    above: OwnedFd,
    /// Whether it was there before.
    existed: bool,
    /// Whether names in it, or its own, may be lost with the power.
    own_names_unsynced: AtomicBool,
    /// Whether names given from here may be lost with the power.
    target_names_unsynced: AtomicBool,
    spool: Mutex<Spool>,
}

/// Packs of which only a part is there, each in a slot of its own.
#[derive(Default)]
struct Spool {
    /// Has no name, and goes with its descriptor.
    file: Option<File>,
    slots: BTreeMap<usize, u64>,
    free: Vec<u64>,
}

impl Spool {
    fn slot(&mut self, object: usize) -> u64 {
        let (free, used) = (&mut self.free, self.slots.len() as u64);
        *self.slots.entry(object).or_insert_with(|| free.pop().unwrap_or(used))
    }
}

/// A small file that is whole and waits for its name.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    /// Its index in the tree.
    pub(crate) entry: usize,
    /// Its name here.
    pub(crate) name: String,
    /// BLAKE3 of its data.
    pub(crate) hash: blake3::Hash,
}

/// What is in the folder, by [`name_prefix`].
pub(crate) type Listing = BTreeMap<String, Vec<String>>;

/// What everything here of one path begins with.
pub(crate) fn name_prefix(path: &[u8]) -> String {
    blake3::hash(path).to_hex()[..32].to_string()
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.remove_if_empty();
    }
}

impl Staging {
    /// Removes the folder if nothing is left in it and nobody else is at work there. While it is
    /// there, the next attempt knows that names may not be on the disk yet; so they are brought
    /// there first.
    pub(crate) fn remove_if_empty(&self) {
        if flock(&self.fd, FlockOperation::NonBlockingLockExclusive).is_ok() {
            if self.target_names_unsynced.swap(false, Ordering::Relaxed)
                && rustix::fs::syncfs(&self.fd).is_err()
            {
                return;
            }
            let _ = unlinkat(&self.above, OsStr::from_bytes(RESERVED), AtFlags::REMOVEDIR);
        }
    }

    /// Opens the folder, making it if it is not there.
    pub(crate) fn open(directory: &Directory) -> Result<Staging, Error> {
        loop {
            let existed = match mkdirat(directory.fd(), OsStr::from_bytes(RESERVED), Mode::RWXU) {
                Ok(()) => false,
                Err(Errno::EXIST) => true,
                Err(errno) => return Err(directory.failed("make", RESERVED, errno)),
            };
            if let Some(mut staging) = Staging::open_existing(directory)? {
                staging.existed = existed;
                return Ok(staging);
            }
        }
    }

    /// Whether an earlier attempt left it.
    pub(crate) fn existed(&self) -> bool {
        self.existed
    }

    /// Notes that names are given from here.
    pub(crate) fn mark_names_unsynced(&self) {
        self.target_names_unsynced.store(true, Ordering::Relaxed);
    }

    /// Notes that all names given from here were brought to the disk.
    pub(crate) fn mark_names_synced(&self) {
        self.target_names_unsynced.store(false, Ordering::Relaxed);
    }

    /// Brings the names of parts and journals to the disk, and the folder's own.
    pub(crate) fn sync_names(&self) -> Result<(), Error> {
        if !self.own_names_unsynced.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let failed = |errno| self.failed("sync the directory", "", errno);
        rustix::fs::fsync(&self.fd).map_err(failed)?;
        let above = openat2(
            &self.above,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH,
        );
        above.and_then(rustix::fs::fsync).map_err(failed)
    }

    /// Opens the folder if it is there.
    pub(crate) fn open_existing(directory: &Directory) -> Result<Option<Staging>, Error> {
        let failed = |errno: Errno| directory.failed("open", RESERVED, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = match openat2(
            directory.fd(),
            OsStr::from_bytes(RESERVED),
            flags,
            Mode::empty(),
            resolve,
        ) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        // Whoever is done removes the folder if nobody else holds it; it may be gone before we hold
        // it.
        flock(&fd, FlockOperation::LockShared).map_err(failed)?;
        let is_gone = fstat(&fd).map_err(failed)?.st_nlink == 0;
        if is_gone {
            return Ok(None);
        }
        let above = directory.folder(b"").map_err(failed)?;
        Ok(Some(Staging {
            path: directory.shown(RESERVED),
            fd,
            above,
            existed: true,
            own_names_unsynced: AtomicBool::new(false),
            target_names_unsynced: AtomicBool::new(false),
            spool: Mutex::default(),
        }))
    }

    /// Its descriptor, to rename from.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// What earlier attempts left.
    pub(crate) fn listing(&self) -> Result<Listing, Error> {
        let failed = |errno: Errno| self.failed("list", "", errno);
        let mut listing = Listing::new();
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Ok(name) = entry.file_name().to_str()
                && let Some(prefix) = name.get(..32)
            {
                listing.entry(prefix.to_string()).or_default().push(name.to_string());
            }
        }
        Ok(listing)
    }

    /// Writes a small file whole: `data` is that of its extents, one behind the other.
    pub(crate) fn put(
        &self,
        entry: usize,
        path: &[u8],
        file: &manifest::File,
        data: &[u8],
    ) -> Result<Staged, Error> {
        let hash = blake3::hash(data);
        let name = format!("{}-{}", name_prefix(path), hash.to_hex());
        let failed =
            |source: io::Error| Error::Disk { action: "write", path: self.shown(path), source };
        let out = self.open_file(&name).map_err(failed)?;
        // What an earlier attempt left is no part of it, in its holes neither.
        if out.metadata().map_err(failed)?.len() > 0 {
            out.set_len(0).map_err(failed)?;
        }
        let mut rest = data;
        for (offset, len) in file.extents() {
            let (part, after) = rest.split_at(usize::try_from(len).expect("small"));
            out.write_all_at(part, offset).map_err(failed)?;
            rest = after;
        }
        if file.data.is_some() {
            out.set_len(file.size).map_err(failed)?;
        }
        finish(&out, file).map_err(failed)?;
        Ok(Staged { entry, name, hash })
    }

    /// What an earlier attempt left of this small file, if it is whole: of the size, the mode and
    /// the time that it is to have, and of the contents that its name says. Everything else that is
    /// there for this path is removed.
    pub(crate) fn resume(
        &self,
        listing: &Listing,
        entry: usize,
        path: &[u8],
        file: &manifest::File,
    ) -> Option<Staged> {
        let mut found = None;
        for name in listing.get(&name_prefix(path))? {
            match name.get(33..).and_then(|hash| blake3::Hash::from_hex(hash).ok()) {
                Some(hash) if found.is_none() && self.is_whole(name, file, hash) => {
                    found = Some(Staged { entry, name: name.clone(), hash });
                }
                _ => self.remove(name),
            }
        }
        found
    }

    fn is_whole(&self, name: &str, file: &manifest::File, hash: blake3::Hash) -> bool {
        let Ok(stat) = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        u64::try_from(stat.st_size) == Ok(file.size)
            && mtime_of(&stat) == file.mtime
            && permissions(&stat) == file.mode & 0o777
            && self.hash(name, file).is_ok_and(|found| found == hash)
            && self.has_empty_holes(name, file).unwrap_or(false)
    }

    /// Whether there is nothing but zeros where a file is to have holes: no hash says that.
    fn has_empty_holes(&self, name: &str, file: &manifest::File) -> io::Result<bool> {
        if file.data.is_none() {
            return Ok(true);
        }
        let input = self.open_to_read(name)?;
        let mut buffer = vec![0; 64 * 1_024];
        let mut hole = 0;
        for (offset, len) in file.extents().chain([(file.size, 0)]) {
            while hole < offset {
                match rustix::fs::seek(&input, SeekFrom::Data(hole)) {
                    Ok(data) => hole = data.min(offset),
                    // No data up to the end.
                    Err(Errno::NXIO) => break,
                    // A file system that knows no holes: all of it is read.
                    Err(Errno::INVAL) => {}
                    Err(errno) => return Err(errno.into()),
                }
                let length = usize::try_from(offset - hole)
                    .map_or(buffer.len(), |left| left.min(buffer.len()));
                input.read_exact_at(&mut buffer[..length], hole)?;
                if buffer[..length].iter().any(|&byte| byte != 0) {
                    return Ok(false);
                }
                hole += length as u64;
            }
            hole = offset + len;
        }
        Ok(true)
    }

    /// Reads a small file's data back from the disk and hashes them.
    pub(crate) fn hash_cold(&self, name: &str, file: &manifest::File) -> io::Result<blake3::Hash> {
        let input = self.open_to_read(name)?;
        let _ = rustix::fs::fadvise(&input, 0, None, rustix::fs::Advice::DontNeed);
        self.hash(name, file)
    }

    /// Reads a small file's data back and hashes them.
    fn hash(&self, name: &str, file: &manifest::File) -> io::Result<blake3::Hash> {
        let input = self.open_to_read(name)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = Vec::new();
        for (offset, len) in file.extents() {
            buffer.resize(usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData)?, 0);
            input.read_exact_at(&mut buffer, offset)?;
            hasher.update(&buffer);
        }
        Ok(hasher.finalize())
    }

    fn open_to_read(&self, name: &str) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map(File::from)
    }

    /// Brings a file here to the disk.
    pub(crate) fn sync(&self, name: &str) -> Result<(), Error> {
        match self.open_to_read(name) {
            Ok(file) => rustix::fs::fsync(&file),
            // A file that nobody may read.
            Err(Errno::ACCESS) => rustix::fs::syncfs(&self.fd),
            Err(errno) => Err(errno),
        }
        .map_err(|errno| self.failed("sync", name, errno))
    }

    /// Bytes on disk of a file here.
    pub(crate) fn allocated_bytes(&self, name: &str) -> Bytes {
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        Bytes(stat.map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)))
    }

    /// Removes a file here, if it is there.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// Opens a file of ours for reading and writing, makes it if need be, and follows no link on
    /// the way.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("what is staged for it is no regular file"));
        }
        // We give what is here no second name: whatever has one is somebody else's file.
        if metadata.nlink() > 1 {
            return Err(io::Error::other("what is staged for it is a hard link to another file"));
        }
        Ok(file)
    }

    /// As [`Staging::open_file`], for a file that the next attempt is to find after a power loss
    /// too.
    pub(crate) fn open_durable(&self, name: &str) -> io::Result<File> {
        self.own_names_unsynced.store(true, Ordering::Relaxed);
        self.open_file(name)
    }

    /// Keeps a part of a pack, from `offset` in it, until the rest of it is there.
    pub(crate) fn spool(&self, object: usize, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut spool = self.lock_spool();
        let at = spool.slot(object) * BLOCK + offset;
        self.spool_file(&mut spool)?
            .write_all_at(bytes, at)
            .map_err(|source| self.failed("write", SPOOL, source))
    }

    /// Gives a whole pack that was kept.
    pub(crate) fn read_spooled(&self, object: usize, buffer: &mut [u8]) -> Result<(), Error> {
        let mut spool = self.lock_spool();
        let at = spool.slot(object) * BLOCK;
        match self.spool_file(&mut spool)?.read_exact_at(buffer, at) {
            // Never written: whoever said that it is there was wrong, and its hash will tell.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            read => read.map_err(|source| self.failed("read back", SPOOL, source)),
        }
    }

    /// Forgets a pack that was kept; its room serves the next one.
    pub(crate) fn free_slot(&self, object: usize) {
        let mut spool = self.lock_spool();
        if let Some(slot) = spool.slots.remove(&object) {
            spool.free.push(slot);
        }
    }

    fn lock_spool(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().expect("no panic while held")
    }

    fn spool_file<'a>(&self, spool: &'a mut Spool) -> Result<&'a File, Error> {
        if spool.file.is_none() {
            let name = format!("{SPOOL}-{}", std::process::id());
            self.remove(&name);
            let file =
                self.open_file(&name).map_err(|source| self.failed("open", &name, source))?;
            self.remove(&name);
            spool.file = Some(file);
        }
        Ok(spool.file.as_ref().expect("it was just opened"))
    }

    /// A path below the directory that receives, for messages.
    pub(crate) fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.with_file_name(OsStr::from_bytes(path))
    }

    fn failed(&self, action: &'static str, name: &str, source: impl Into<io::Error>) -> Error {
        Error::Disk { action, path: self.path.join(name), source: source.into() }
    }
}

const SPOOL: &str = "spool";

/// Gives a complete file its mode and, last, its time.
pub(crate) fn finish(file: &File, entry: &manifest::File) -> io::Result<()> {
    fchmod(file, Mode::from_raw_mode((entry.mode & 0o777).into()))?;
    futimens(file, &timestamps(entry.mtime))?;
    Ok(())
}
