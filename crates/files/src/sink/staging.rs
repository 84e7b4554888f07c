//! The hidden folder in the receiving directory in which files wait for their names.
//!
//! A small file is written here in one go once it is verified. Its staged name contains a hash of
//! its path and the hash of its data, so the folder is its own journal: the next attempt reuses a
//! file that matches its name and removes every other one. A large file has a part and a journal of
//! its blocks here ([`super::large`]).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, SeekFrom, fchmod, fstat, fstatfs,
    futimens, mkdirat, statat, unlinkat,
};
use rustix::io::Errno;
use transfer::BLOCK;
use units::Bytes;
use wire::manifest::{self, RESERVED};

use super::directory::Directory;
use super::lacking::{self, if_possible, lock};
use super::own;
use super::probe_file::PROBE;
use super::timestamps::timestamps;
use crate::Error;
use crate::beneath::{self, Inode, permissions};

/// The open staging folder.
pub(crate) struct Staging {
    path: PathBuf,
    fd: OwnedFd,
    /// The owner of everything in it.
    owner: u32,
    /// The receiving directory.
    above: OwnedFd,
    /// Whether it existed before.
    existed: bool,
    /// Whether a power loss may take away names in the folder, or its own name.
    own_names_unsynced: AtomicBool,
    /// Whether a power loss may take away target names that were given from here.
    target_names_unsynced: AtomicBool,
    spool: Mutex<Spool>,
    /// Whether the file system has hard links, and whether it tells large letters from small ones.
    pub(super) has_links: OnceLock<bool>,
    pub(super) is_caseless: OnceLock<bool>,
    /// Whether a file keeps its inode number when it is closed.
    keeps_numbers: bool,
}

/// Incomplete packs, each in a slot of its own.
#[derive(Default)]
struct Spool {
    /// A file without a name, freed with its descriptor; over FUSE, one with a name.
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

/// A complete small file that waits for its name.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    /// Its index in the tree.
    pub(crate) entry: usize,
    /// Its name in the staging folder.
    pub(crate) name: String,
    /// BLAKE3 of its data.
    pub(crate) hash: blake3::Hash,
    /// The file that has that data.
    pub(crate) inode: Inode,
    /// Whether the file system kept its mode.
    pub(crate) is_kept: bool,
}

/// The numbers of FAT, exFAT and FUSE: file systems that may make up an inode number for each time
/// that they have a file in memory.
const UNSTEADY: [rustix::fs::FsWord; 3] = [0x4d44, 0x2011_bab0, 0x6573_5546];

/// The beginnings of the names that FUSE and NFS give to files that were removed while they were
/// open.
const GHOSTS: [&[u8]; 2] = [b".fuse_hidden", b".nfs"];
/// The wait for such files to go.
const TRIES_TO_REMOVE: usize = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Whether `fd` is what has the folder's name in `above`.
fn has_name(above: &OwnedFd, fd: &OwnedFd) -> Result<bool, Errno> {
    match statat(above, OsStr::from_bytes(RESERVED), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok(Inode::from(&named) == Inode::from(&fstat(fd)?)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// The names in the folder, by [`name_prefix`].
pub(crate) type Listing = BTreeMap<String, Vec<String>>;

/// The prefix of all staged names of one path.
pub(crate) fn name_prefix(path: &[u8]) -> String {
    blake3::hash(path).to_hex()[..32].to_string()
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.remove_if_empty();
    }
}

impl Staging {
    /// Removes the folder if it is empty and no other session uses it. An existing folder tells the
    /// next attempt that target names may not be durable, so they are synced first.
    pub(crate) fn remove_if_empty(&self) {
        // Over NFS, what is open stays in the folder under another name.
        self.lock_spool().file = None;
        // If this was done before, another session may have made a folder of the same name.
        if lock(&self.fd, FlockOperation::NonBlockingLockExclusive).is_ok()
            && has_name(&self.above, &self.fd) == Ok(true)
        {
            if self.target_names_unsynced.swap(false, Ordering::Relaxed)
                && lacking::sync_all(&self.fd).is_err()
            {
                return;
            }
            self.remove_strays();
            for _ in 0..TRIES_TO_REMOVE {
                let removed =
                    unlinkat(&self.above, OsStr::from_bytes(RESERVED), AtFlags::REMOVEDIR);
                if removed != Err(Errno::NOTEMPTY) || !self.remove_strays() {
                    break;
                }
                std::thread::sleep(BETWEEN_TRIES);
            }
        }
    }

    /// Removes what a process that was killed has left of its own needs, and files that were
    /// removed while they were open, which FUSE and NFS keep under another name until they know
    /// better; nobody else is in the folder. Returns whether there were such files.
    fn remove_strays(&self) -> bool {
        let mut has_ghosts = false;
        for entry in Dir::read_from(&self.fd).into_iter().flatten().flatten() {
            let name = entry.file_name().to_bytes();
            let is_ghost = GHOSTS.iter().any(|ghost| name.starts_with(ghost));
            has_ghosts |= is_ghost;
            if is_ghost || [PROBE, SPOOL].iter().any(|own| name.starts_with(own.as_bytes())) {
                let _ = unlinkat(&self.fd, entry.file_name(), AtFlags::empty());
            }
        }
        has_ghosts
    }

    /// Opens the folder, or creates it.
    pub(crate) fn open(directory: &Directory) -> Result<Staging, Error> {
        loop {
            let existed = match mkdirat(directory.fd(), OsStr::from_bytes(RESERVED), Mode::RWXU) {
                Ok(()) => false,
                Err(Errno::EXIST) => true,
                Err(errno) => return Err(directory.failed("make", RESERVED, errno)),
            };
            if let Some(mut staging) = Staging::open_existing(directory)? {
                staging.existed = existed;
                staging.close_to_others();
                return Ok(staging);
            }
        }
    }

    /// Gives the folder the mode that it should have, whatever the umask was when it was made.
    fn close_to_others(&self) {
        // A file system without modes refuses.
        let _ = fchmod(&self.fd, Mode::RWXU);
    }

    /// Whether an earlier attempt left the folder.
    pub(crate) fn existed(&self) -> bool {
        self.existed
    }

    /// Records that files get target names from here.
    pub(crate) fn mark_names_unsynced(&self) {
        self.target_names_unsynced.store(true, Ordering::Relaxed);
    }

    /// Records that all target names given from here are synced.
    pub(crate) fn mark_names_synced(&self) {
        self.target_names_unsynced.store(false, Ordering::Relaxed);
    }

    /// Syncs the names of parts and journals, and the folder's own name.
    pub(crate) fn sync_names(&self) -> Result<(), Error> {
        if !self.own_names_unsynced.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let failed = |errno| self.failed("sync the directory", "", errno);
        lacking::sync_folder(&self.fd).map_err(failed)?;
        let above = beneath::open(&self.above, b"", OFlags::RDONLY | OFlags::DIRECTORY);
        above.and_then(lacking::sync_folder).map_err(failed)
    }

    /// Opens the folder if it exists.
    pub(crate) fn open_existing(directory: &Directory) -> Result<Option<Staging>, Error> {
        let failed = |errno: Errno| directory.failed("open", RESERVED, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match beneath::open(directory.fd(), RESERVED, flags) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        // Before the lock, which another user could hold on a folder of theirs.
        let owner = own::check(&fd).map_err(|source| directory.failed("use", RESERVED, source))?;
        // A session that ends removes the folder unless another session locks it, so it may be
        // removed before the lock is taken here.
        lock(&fd, FlockOperation::LockShared).map_err(failed)?;
        let above = directory.folder(b"").map_err(failed)?;
        if !has_name(&above, &fd).map_err(failed)? {
            return Ok(None);
        }
        let keeps_numbers = !UNSTEADY.contains(&fstatfs(&fd).map_err(failed)?.f_type);
        Ok(Some(Staging {
            path: directory.shown(RESERVED),
            fd,
            owner,
            above,
            existed: true,
            own_names_unsynced: AtomicBool::new(false),
            target_names_unsynced: AtomicBool::new(false),
            spool: Mutex::default(),
            has_links: OnceLock::new(),
            is_caseless: OnceLock::new(),
            keeps_numbers,
        }))
    }

    /// Whether a file keeps its inode number when it is closed.
    pub(super) fn keeps_numbers(&self) -> bool {
        self.keeps_numbers
    }

    /// The folder's descriptor, to rename from.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The names that earlier attempts left.
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

    /// Writes a complete small file; `data` are those of its extents, concatenated.
    pub(crate) fn put(
        &self,
        entry: usize,
        path: &[u8],
        file: &manifest::File,
        data: &[u8],
    ) -> Result<Staged, Error> {
        let hash = blake3::hash(data);
        let name = format!("{}-{}-{:016x}", name_prefix(path), hash.to_hex(), file.mtime);
        let failed =
            |source: io::Error| Error::Disk { action: "write", path: self.shown(path), source };
        let out = self.open_file(&name).map_err(failed)?;
        // Nothing of an earlier attempt may remain, in the holes either.
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
        let is_kept = finish(&out, file).map_err(failed)?;
        let inode = inode_of(&out).map_err(failed)?;
        Ok(Staged { entry, name, hash, inode, is_kept })
    }

    /// The staged small file of an earlier attempt, if it has the expected size, and the time and
    /// the contents that are in its name: the file system may keep less of the time. Every other
    /// staged file of this path is removed.
    pub(crate) fn resume(
        &self,
        listing: &Listing,
        entry: usize,
        path: &[u8],
        file: &manifest::File,
    ) -> Option<Staged> {
        let mut found = None;
        for name in listing.get(&name_prefix(path))? {
            let time = format!("-{:016x}", file.mtime);
            let hash = name.get(33..).and_then(|rest| rest.strip_suffix(&time[..]));
            let hash = hash.and_then(|hash| blake3::Hash::from_hex(hash).ok());
            let staged = hash.filter(|_| found.is_none()).and_then(|hash| {
                let (inode, is_kept) = self.whole(name, file, hash).ok()??;
                Some(Staged { entry, name: name.clone(), hash, inode, is_kept })
            });
            match staged {
                Some(staged) => found = Some(staged),
                None => self.remove(name),
            }
        }
        found
    }

    /// The staged file `name`, if it is whole and has the data with this hash.
    fn whole(
        &self,
        name: &str,
        file: &manifest::File,
        hash: blake3::Hash,
    ) -> io::Result<Option<(Inode, bool)>> {
        let input = self.open_to_read(name)?;
        let stat = fstat(&input)?;
        let is_whole = u64::try_from(stat.st_size) == Ok(file.size)
            && hash_data(&input, file)? == hash
            && has_empty_holes(&input, file)?;
        if !is_whole {
            return Ok(None);
        }
        // A crash may have come before these.
        let is_kept = finish(&input, file)?;
        Ok(Some((Inode::from(&stat), is_kept)))
    }

    /// Hashes a small file's data, read from the disk and not from the page cache.
    pub(crate) fn hash_cold(&self, name: &str, file: &manifest::File) -> io::Result<blake3::Hash> {
        let input = self.open_to_read(name)?;
        let _ = rustix::fs::fadvise(&input, 0, None, rustix::fs::Advice::DontNeed);
        hash_data(&input, file)
    }

    /// Opens a staged file for reading.
    pub(super) fn open_to_read(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        self.admit(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?)
    }

    /// Checks that an open file is one that this process staged.
    fn admit(&self, file: OwnedFd) -> io::Result<File> {
        let stat = fstat(&file)?;
        let wrong = if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            "no regular file"
        } else if stat.st_nlink > 1 {
            // Staged files have one name: a file with another name belongs to another program.
            "a hard link to another file"
        } else if stat.st_uid != self.owner {
            "another user's file"
        } else {
            return Ok(File::from(file));
        };
        Err(io::Error::other(format!("what is staged for it is {wrong}")))
    }

    /// Whether the file called `name` is this one.
    pub(crate) fn is_still(&self, name: &str, inode: Inode) -> Result<bool, Errno> {
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Inode::from(&stat) == inode)
    }

    /// Syncs a staged file.
    pub(crate) fn sync(&self, name: &str) -> Result<(), Error> {
        match self.open_to_read(name) {
            Ok(file) => lacking::sync_file(&file),
            // A file whose mode forbids reading.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                lacking::sync_all(&self.fd).map_err(io::Error::from)
            }
            Err(error) => Err(error),
        }
        .map_err(|error| self.failed("sync", name, error))
    }

    /// Allocated bytes of a staged file.
    pub(crate) fn allocated_bytes(&self, name: &str) -> Bytes {
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        Bytes(stat.map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)))
    }

    /// Whether there is a staged file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Removes a staged file, if it exists.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// Opens or creates a staged file for reading and writing, through no link.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        self.admit(rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?)
    }

    /// As [`Staging::open_file`], for a file that must survive a power loss.
    pub(crate) fn open_durable(&self, name: &str) -> io::Result<File> {
        self.own_names_unsynced.store(true, Ordering::Relaxed);
        self.open_file(name)
    }

    /// Stores a part of a pack, `offset` bytes into it, until the rest arrives.
    pub(crate) fn spool(&self, object: usize, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut spool = self.lock_spool();
        let at = spool.slot(object) * BLOCK + offset;
        self.spool_file(&mut spool)?
            .write_all_at(bytes, at)
            .map_err(|source| self.failed("write", SPOOL, source))
    }

    /// Reads a complete pack that was stored in parts.
    pub(crate) fn read_spooled(&self, object: usize, buffer: &mut [u8]) -> Result<(), Error> {
        let mut spool = self.lock_spool();
        let at = spool.slot(object) * BLOCK;
        match self.spool_file(&mut spool)?.read_exact_at(buffer, at) {
            // Never written, although the core counted it as received: its hash will not match.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            read => read.map_err(|source| self.failed("read back", SPOOL, source)),
        }
    }

    /// Frees the slot of a pack for the next one.
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
            // FUSE keeps what is open under another name, and may forget about it.
            if self.keeps_numbers {
                self.remove(&name);
            }
            spool.file = Some(file);
        }
        Ok(spool.file.as_ref().expect("it was just opened"))
    }

    /// A path below the receiving directory, for messages.
    pub(crate) fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.with_file_name(OsStr::from_bytes(path))
    }

    fn failed(&self, action: &'static str, name: &str, source: impl Into<io::Error>) -> Error {
        Error::Disk { action, path: self.path.join(name), source: source.into() }
    }
}

const SPOOL: &str = "spool";

/// Sets mode and then time of a complete file. Returns whether the file system has both.
pub(crate) fn finish(file: &File, entry: &manifest::File) -> io::Result<bool> {
    let has_mode = set_mode(file, entry)?;
    Ok(if_possible(futimens(file, &timestamps(entry.mtime)))? && has_mode)
}

/// Sets the mode of a file. Returns whether the file system kept it.
pub(super) fn set_mode(file: &File, entry: &manifest::File) -> io::Result<bool> {
    let mode = entry.mode & 0o777;
    let is_set = if_possible(fchmod(file, Mode::from_raw_mode(mode.into())))?;
    Ok(is_set && permissions(&fstat(file)?) == mode)
}

/// Hashes a small file's data.
fn hash_data(input: &File, file: &manifest::File) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = Vec::new();
    for (offset, len) in file.extents() {
        buffer.resize(usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData)?, 0);
        input.read_exact_at(&mut buffer, offset)?;
        hasher.update(&buffer);
    }
    Ok(hasher.finalize())
}

/// Whether the holes of a file contain only zeros: no hash covers them.
fn has_empty_holes(input: &File, file: &manifest::File) -> io::Result<bool> {
    if file.data.is_none() {
        return Ok(true);
    }
    let mut buffer = vec![0; 64 * 1_024];
    let mut hole = 0;
    for (offset, len) in file.extents().chain([(file.size, 0)]) {
        while hole < offset {
            match rustix::fs::seek(input, SeekFrom::Data(hole)) {
                Ok(data) => hole = data.min(offset),
                // No data up to the end.
                Err(Errno::NXIO) => break,
                // A file system without holes: everything is read.
                Err(errno) if lacking::lacks(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
            let length =
                usize::try_from(offset - hole).map_or(buffer.len(), |left| left.min(buffer.len()));
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

/// The identity of an open file.
pub(crate) fn inode_of(file: &File) -> io::Result<Inode> {
    Ok(Inode::from(&fstat(file)?))
}
