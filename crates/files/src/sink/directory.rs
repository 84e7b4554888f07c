//! The receiving directory. Paths are resolved below it and never through a symbolic link.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, futimens, mkdirat, statat};
use rustix::io::Errno;
use units::Bytes;

use super::lacking::{self, if_possible};
use super::times::KeptTimes;
use super::timestamps::timestamps;
use crate::Error;
use crate::beneath::{self, LastFolder, folder_permissions, mtime_of, split};

/// The directory that receives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    /// Whether data only pass through it.
    is_passage: bool,
}

impl Directory {
    /// Opens `path`, or creates it and syncs its parents.
    pub(crate) fn open(path: &Path) -> Result<Directory, Error> {
        let failed =
            |source| Error::Disk { action: "open the directory", path: path.to_path_buf(), source };
        let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
        std::fs::create_dir_all(path).map_err(failed)?;
        for made in missing {
            let above = made
                .parent()
                .filter(|above| !above.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            let synced = File::open(above).and_then(|above| Ok(lacking::sync_folder(above)?));
            synced.map_err(failed)?;
        }
        let fd = rustix::fs::open(
            path,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let fd = fd.map_err(|errno| failed(errno.into()))?;
        Ok(Directory { path: path.to_path_buf(), fd, is_passage: false })
    }

    /// The same directory; if `is_passage`, data only pass through it, and it may be smaller than
    /// they are.
    pub(crate) fn passing(self, is_passage: bool) -> Directory {
        Directory { is_passage, ..self }
    }

    /// Opens the directory at `path` below, or creates it and syncs its parents. It is reached
    /// through no link.
    pub(crate) fn below(&self, path: &[u8]) -> Result<Directory, Errno> {
        let fd = match self.open_folder(path, OFlags::RDONLY) {
            Err(Errno::NOENT) => {
                // For others too, as far as the process's umask allows.
                self.make(path, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
                let mut above = path;
                while !above.is_empty() {
                    above = split(above).0;
                    self.sync_folder(above)?;
                }
                self.open_folder(path, OFlags::RDONLY)?
            }
            opened => opened?,
        };
        Ok(Directory { path: self.shown(path), fd, is_passage: false })
    }

    /// Free bytes of the file system, as available to this process.
    pub(crate) fn free(&self) -> Result<Bytes, Error> {
        if self.is_passage { Ok(Bytes(u64::MAX)) } else { self.room() }
    }

    /// Refuses what there is no room for.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the system's, if it cannot be asked.
    pub(super) fn need(&self, need: Bytes) -> Result<(), Error> {
        if need <= self.free()? {
            return Ok(());
        }
        // What was deleted a moment ago is free on btrfs once the file system has been synced.
        let _ = lacking::sync_all(&self.fd);
        let free = self.free()?;
        if need <= free {
            return Ok(());
        }
        Err(Error::NoSpace { path: self.shown(b""), need, free })
    }

    /// The free space, also of a passage.
    pub(super) fn room(&self) -> Result<Bytes, Error> {
        match rustix::fs::fstatvfs(&self.fd) {
            Ok(stat) if stat.f_blocks > 0 => Ok(Bytes(stat.f_bavail.saturating_mul(stat.f_frsize))),
            // It does not count its blocks.
            Ok(_) => Ok(Bytes(u64::MAX)),
            Err(errno) if lacking::lacks(errno) => Ok(Bytes(u64::MAX)),
            Err(errno) => Err(self.failed("ask for free space in", b"", errno)),
        }
    }

    /// The directory's descriptor.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// A path below it, for messages.
    pub(crate) fn shown(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.path.clone() } else { self.path.join(OsStr::from_bytes(path)) }
    }

    /// Opens the directory at `path` below, or this one if `path` is empty, for looking up names in
    /// it.
    pub(crate) fn folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_folder(path, OFlags::PATH)
    }

    /// Opens the regular file at `path` below for reading; `None` if it is of another kind.
    pub(crate) fn file(&self, path: &[u8]) -> io::Result<Option<File>> {
        let file = File::from(beneath::open(&self.fd, path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Creates the directory at `path` below and its missing parents, accessible to the owner only:
    /// the final modes are set at the end.
    pub(crate) fn make_folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.make(path, Mode::RWXU)
    }

    fn make(&self, path: &[u8], mode: Mode) -> Result<OwnedFd, Errno> {
        // The deepest directory on the way that exists, and the length of its path.
        let mut end = path.len();
        let mut fd = loop {
            match self.folder(&path[..end]) {
                Err(Errno::NOENT) if end > 0 => end = split(&path[..end]).0.len(),
                found => break found?,
            }
        };
        for name in path[end..].split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            match mkdirat(&fd, OsStr::from_bytes(name), mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            fd = beneath::open(&fd, name, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        Ok(fd)
    }

    /// Sets mode and time of the directory at `path` below where they differ.
    pub(super) fn set_folder(
        &self,
        path: &[u8],
        mode: u16,
        mtime: i64,
        times: &KeptTimes,
    ) -> Result<FolderChange, Errno> {
        let fd = self.open_folder(path, OFlags::RDONLY)?;
        let stat = rustix::fs::fstat(&fd)?;
        let has_mode = folder_permissions(&stat) == mode;
        let has_mtime = times.is_kept(mtime, mtime_of(&stat));
        let mut change = FolderChange { is_changed: false, is_kept: true };
        if !has_mtime {
            change.note(if_possible(futimens(&fd, &timestamps(mtime)))?);
        }
        if !has_mode {
            change.note(if_possible(fchmod(&fd, Mode::from_raw_mode(mode.into())))?);
            change.is_kept &= folder_permissions(&rustix::fs::fstat(&fd)?) == mode;
        }
        Ok(change)
    }

    /// Syncs the names in the directory at `path` below.
    pub(crate) fn sync_folder(&self, path: &[u8]) -> Result<(), Errno> {
        match self.open_folder(path, OFlags::RDONLY) {
            Ok(folder) => lacking::sync_folder(folder),
            // A directory that its owner may not read.
            Err(Errno::ACCESS) => lacking::sync_all(&self.fd),
            Err(errno) => Err(errno),
        }
    }

    /// Gives the owner full access to the directory at `path` below; the final mode is set at the
    /// end.
    pub(crate) fn add_owner_write(&self, path: &[u8]) -> Result<(), Errno> {
        let fd = self.open_folder(path, OFlags::RDONLY)?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        let mode = Mode::from_raw_mode(mode.bits() & 0o7777) | Mode::RWXU;
        if_possible(fchmod(&fd, mode)).map(drop)
    }

    fn open_folder(&self, path: &[u8], access: OFlags) -> Result<OwnedFd, Errno> {
        beneath::open(&self.fd, path, access | OFlags::DIRECTORY)
    }

    /// The error of a failed `action` on the path below.
    pub(crate) fn failed(
        &self,
        action: &'static str,
        path: &[u8],
        source: impl Into<io::Error>,
    ) -> Error {
        Error::Disk { action, path: self.shown(path), source: source.into() }
    }
}

/// What [`Directory::set_folder`] did.
#[derive(Clone, Copy, Debug)]
pub(super) struct FolderChange {
    pub(super) is_changed: bool,
    /// Whether the file system kept all of it.
    pub(super) is_kept: bool,
}

impl FolderChange {
    fn note(&mut self, is_done: bool) {
        self.is_changed |= is_done;
        self.is_kept &= is_done;
    }
}

/// Looks up paths and keeps the directory of the last one open.
pub(crate) struct Parents<'a> {
    directory: &'a Directory,
    last: LastFolder,
}

impl<'a> Parents<'a> {
    pub(crate) fn new(directory: &'a Directory) -> Parents<'a> {
        Parents { directory, last: LastFolder::default() }
    }

    /// The metadata at `path`, without following a link; `None` if nothing is there.
    pub(crate) fn stat(&mut self, path: &[u8]) -> Result<Option<Stat>, Errno> {
        let (above, name) = split(path);
        let found = self.folder(above, false).and_then(|above| {
            let name = OsStr::from_bytes(name);
            statat(above, name, AtFlags::SYMLINK_NOFOLLOW)
        });
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The directory at `path`; with `make`, created if it is missing.
    pub(crate) fn folder(&mut self, path: &[u8], make: bool) -> Result<&OwnedFd, Errno> {
        let directory = self.directory;
        self.last.get_or_open(path, || {
            if make { directory.make_folder(path) } else { directory.folder(path) }
        })
    }
}

/// The kind of a file, for messages.
pub(crate) fn kind_of(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        _ => "a device, socket or pipe",
    }
}
