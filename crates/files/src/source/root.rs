//! The folders and files that a command or a request names. A name may go through links; below it
//! nothing does.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat};
use rustix::io::Errno;

use crate::Error;
use crate::beneath::{self, Inode};

/// The root of source paths.
#[derive(Clone, Debug)]
pub(crate) enum SourceRoot {
    /// The whole file system, as far as this process has access.
    Anywhere,
    /// Below this directory: no name and no link leads out of it, even if another process changes
    /// the directory meanwhile.
    Below(Arc<OwnedFd>),
}

/// The flags for reading a file. A pipe that took its place must not block.
pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// The most named folders that are kept open. Few: a server has the sources of many clients.
const MOST_OPEN: usize = 4;

/// Opens a directory that is offered.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

impl SourceRoot {
    /// Opens what `path` names, following links as long as they lead to something below the root.
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let SourceRoot::Below(root) = self else {
            return Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?);
        };
        match beneath::open_within(root, path.as_os_str().as_bytes(), flags) {
            Err(Errno::XDEV) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it leads out of what is offered",
            )),
            opened => Ok(opened?),
        }
    }
}

/// The named files and folders, each with its identity at the first lookup.
pub(crate) struct NamedPaths {
    root: SourceRoot,
    all: Vec<(PathBuf, Inode)>,
    /// Open folders, the latest last.
    open: Mutex<VecDeque<(usize, Arc<OwnedFd>)>>,
}

/// A place below a named folder, or a named file.
#[derive(Clone, Debug)]
pub(crate) struct SourcePath {
    /// Index of the name.
    named: usize,
    /// The path below the named folder; empty for what is named itself.
    below: Vec<u8>,
}

impl SourcePath {
    /// The path below the named folder.
    pub(crate) fn below(&self) -> &[u8] {
        &self.below
    }

    /// The entry `name` of the folder at this place.
    pub(crate) fn child(&self, name: &[u8]) -> SourcePath {
        let below = if self.below.is_empty() {
            name.to_vec()
        } else {
            [&self.below, &b"/"[..], name].concat()
        };
        SourcePath { named: self.named, below }
    }

    /// The folder that contains this place.
    pub(crate) fn parent(&self) -> SourcePath {
        SourcePath { named: self.named, below: beneath::split(&self.below).0.to_vec() }
    }
}

impl NamedPaths {
    pub(crate) fn new(root: SourceRoot) -> NamedPaths {
        NamedPaths { root, all: Vec::new(), open: Mutex::default() }
    }

    /// The root of the names.
    pub(super) fn root(&self) -> &SourceRoot {
        &self.root
    }

    /// Looks a name up, following links.
    pub(crate) fn add(&mut self, path: &Path) -> Result<(SourcePath, Stat), Error> {
        let failed = |source| Error::Source { path: path.to_path_buf(), source };
        let opened = self.root.open(path, OFlags::PATH).map_err(failed)?;
        let stat = fstat(&opened).map_err(|errno| failed(errno.into()))?;
        let named = self.all.len();
        self.all.push((path.to_path_buf(), Inode::from(&stat)));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.keep_open(named, Arc::new(opened));
        }
        Ok((SourcePath { named, below: Vec::new() }, stat))
    }

    /// The path of a place, for messages.
    pub(crate) fn shown(&self, place: &SourcePath) -> PathBuf {
        let (path, _) = &self.all[place.named];
        if place.below.is_empty() {
            path.clone()
        } else {
            path.join(std::ffi::OsStr::from_bytes(&place.below))
        }
    }

    /// Opens the folder at a place, to look up names in it.
    pub(crate) fn open_folder(&self, place: &SourcePath) -> Result<OwnedFd, Error> {
        let named = self.named_folder(place.named)?;
        beneath::open(&*named, &place.below, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| self.failed(place, errno))
    }

    /// Opens the file at a place for reading, which must be the file with this identity.
    pub(crate) fn open_file(&self, place: &SourcePath, inode: Inode) -> Result<File, Error> {
        let file = if place.below.is_empty() {
            self.root.open(&self.all[place.named].0, READ).map_err(|source| {
                match source.kind() {
                    io::ErrorKind::NotFound => self.changed(place),
                    _ => Error::Source { path: self.shown(place), source },
                }
            })?
        } else {
            let named = self.named_folder(place.named)?;
            beneath::open(&*named, &place.below, READ).map_err(|errno| self.failed(place, errno))?
        };
        self.check(place, &file, inode)?;
        Ok(File::from(file))
    }

    /// The error of a lookup at a place.
    pub(crate) fn failed(&self, place: &SourcePath, errno: Errno) -> Error {
        match errno {
            // What was a file or a folder is gone, or something else, a link for example.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => self.changed(place),
            errno => Error::Source { path: self.shown(place), source: errno.into() },
        }
    }

    /// The error for a place where something else is now.
    pub(crate) fn changed(&self, place: &SourcePath) -> Error {
        Error::SourceChanged { path: self.shown(place) }
    }

    /// A named folder. If it was closed meanwhile, its name must still lead to it.
    fn named_folder(&self, named: usize) -> Result<Arc<OwnedFd>, Error> {
        let known = {
            let open = self.open.lock().expect("no panic while held");
            open.iter().find(|(index, _)| *index == named).map(|(_, folder)| Arc::clone(folder))
        };
        if let Some(folder) = known {
            return Ok(folder);
        }
        let (path, inode) = &self.all[named];
        let place = SourcePath { named, below: Vec::new() };
        let folder = self
            .root
            .open(path, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|source| Error::Source { path: path.clone(), source })?;
        self.check(&place, &folder, *inode)?;
        let folder = Arc::new(folder);
        self.keep_open(named, Arc::clone(&folder));
        Ok(folder)
    }

    fn keep_open(&self, named: usize, folder: Arc<OwnedFd>) {
        let mut open = self.open.lock().expect("no panic while held");
        if open.len() == MOST_OPEN {
            open.pop_front();
        }
        open.push_back((named, folder));
    }

    fn check(&self, place: &SourcePath, opened: &OwnedFd, inode: Inode) -> Result<(), Error> {
        let stat = fstat(opened).map_err(|errno| self.failed(place, errno))?;
        if Inode::from(&stat) == inode { Ok(()) } else { Err(self.changed(place)) }
    }
}
