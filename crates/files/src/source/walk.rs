//! Walks the folders to be sent, keeps links as links, and applies the filters.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use wire::manifest::{self, Entry, Kind, MAX_EXTENTS, RESERVED};

use super::patterns::Patterns;
use super::read::Stamp;
use super::root::SourceRoot;
use crate::protocol::footprint;
use crate::{Error, Selection};

/// The result of a walk.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) entries: Vec<Entry>,
    /// For each entry, its local path and attributes; `None` if it is no file.
    pub(crate) origins: Vec<Option<(PathBuf, Stamp)>>,
    /// Messages about entries that were left out.
    pub(crate) notices: Vec<String>,
}

/// Reserves memory for a number of bytes, which may be zero; the error ends the walk. Called for
/// every entry that is found, and every [`HASHED_AT_ONCE`] bytes that are hashed.
pub(crate) type MemoryBudget<'a> = &'a mut dyn FnMut(usize) -> Result<(), Error>;

/// Bytes that are hashed between two looks at whether the walk goes on.
const HASHED_AT_ONCE: usize = 1 << 20;

/// Finds everything under `sources` that the selection includes; the one source arrives as
/// `rename`, if that is given. Takes from `budget` before it keeps an entry.
pub(crate) fn walk(
    root: &SourceRoot,
    sources: &[PathBuf],
    selection: &Selection,
    rename: Option<&OsStr>,
    budget: MemoryBudget<'_>,
) -> Result<Found, Error> {
    if let Some(name) = rename {
        check_rename(name, sources, selection)?;
    }
    let mut walk = Walk {
        root,
        budget,
        found: Found::default(),
        include: Patterns::new(&selection.include)?,
        exclude: Patterns::new(&selection.exclude)?,
        pending: Vec::new(),
        seen: HashMap::new(),
        checksum: selection.checksum,
    };
    match &selection.files_from {
        None => sources.iter().try_for_each(|source| walk.source(source, rename))?,
        Some(names) => walk.listed(sources, names)?,
    }
    if walk.found.entries.is_empty() {
        return Err(Error::usage(
            "there is nothing there: no file is left by --include, --exclude and --files-from",
        ));
    }
    Ok(walk.found)
}

struct Walk<'a> {
    root: &'a SourceRoot,
    budget: MemoryBudget<'a>,
    found: Found,
    /// If given, only matching files are included, and the folders that lead to them.
    include: Option<Patterns>,
    exclude: Option<Patterns>,
    /// Folders above the current location of which no entry is included so far.
    pending: Vec<Entry>,
    /// Files with several names, by device and inode.
    seen: HashMap<(u64, u64), u32>,
    checksum: bool,
}

/// The location of an entry: local, at the receiver, and for the filters.
struct Location<'a> {
    path: &'a Path,
    target: Vec<u8>,
    /// The path below the source; empty for the source itself.
    below: PathBuf,
}

impl Walk<'_> {
    /// Adds a file or folder that the command names. A link is followed.
    fn source(&mut self, source: &Path, rename: Option<&OsStr>) -> Result<(), Error> {
        let metadata = self.root.metadata(source).map_err(|error| failed(source, error))?;
        if !metadata.is_dir() {
            let name = source
                .file_name()
                .ok_or_else(|| Error::usage(format!("{} has no name", source.display())))?;
            let location = Location {
                path: source,
                target: rename.unwrap_or(name).as_bytes().to_vec(),
                below: name.into(),
            };
            if !metadata.is_file() {
                return Err(Error::usage(format!("{} is no file and no folder", source.display())));
            }
            return self.entry(&location, &metadata, false);
        }
        let target = rename.map_or_else(|| folder_name(source), |name| name.as_bytes().to_vec());
        let location = Location { path: source, target, below: PathBuf::new() };
        if !location.target.is_empty() {
            self.pending.push(directory(&location, &metadata));
            if self.include.is_none() {
                self.flush()?;
            }
        }
        self.folder(&location, false)?;
        self.pending.clear();
        Ok(())
    }

    /// Adds the contents of a folder; `inside` if the folder was included as a whole.
    fn folder(&mut self, folder: &Location<'_>, inside: bool) -> Result<(), Error> {
        let names = self.root.names(folder.path).map_err(|error| failed(folder.path, error))?;
        for name in names {
            let path = folder.path.join(&name);
            let mut target = folder.target.clone();
            if !target.is_empty() {
                target.push(b'/');
            }
            target.extend_from_slice(name.as_bytes());
            let location = Location { path: &path, target, below: folder.below.join(&name) };
            let metadata = match self.root.symlink_metadata(&path) {
                Ok(metadata) => metadata,
                // Gone since the folder was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&path, error)),
            };
            self.entry(&location, &metadata, inside)?;
        }
        Ok(())
    }

    /// Adds an entry, unless a filter excludes it.
    fn entry(
        &mut self,
        location: &Location<'_>,
        metadata: &Metadata,
        inside: bool,
    ) -> Result<(), Error> {
        (self.budget)(0)?;
        let is_folder = metadata.is_dir();
        let matches = |patterns: &Patterns| patterns.match_path(&location.below, is_folder);
        if self.exclude.as_ref().is_some_and(matches) {
            return Ok(());
        }
        let inside = inside || self.include.as_ref().is_none_or(matches);
        if location.target == RESERVED {
            self.found.notices.push(format!(
                "{} is a receiver's staging folder: left out",
                location.path.display()
            ));
            return Ok(());
        }
        if is_folder {
            let depth = self.pending.len();
            self.pending.push(directory(location, metadata));
            if inside {
                self.flush()?;
            }
            self.folder(location, inside)?;
            self.pending.truncate(depth);
        } else if inside {
            self.flush()?;
            self.leaf(location, metadata)?;
        }
        Ok(())
    }

    /// Adds an entry that is no folder.
    fn leaf(&mut self, location: &Location<'_>, metadata: &Metadata) -> Result<(), Error> {
        let file_type = metadata.file_type();
        if file_type.is_symlink() {
            let target = self
                .root
                .read_link(location.path)
                .map_err(|error| failed(location.path, error))?
                .into_os_string()
                .into_vec();
            let kind = Kind::Symlink { mtime: mtime(metadata), target };
            self.push(Entry { path: location.target.clone(), kind }, None)?;
        } else if file_type.is_file() {
            let index = u32::try_from(self.found.entries.len()).unwrap_or(u32::MAX);
            if metadata.nlink() > 1 {
                if let Some(&to) = self.seen.get(&(metadata.dev(), metadata.ino())) {
                    return self.push(
                        Entry { path: location.target.clone(), kind: Kind::HardLink { to } },
                        None,
                    );
                }
                self.seen.insert((metadata.dev(), metadata.ino()), index);
            }
            let mut file =
                self.file(location.path, metadata).map_err(|error| failed(location.path, error))?;
            if self.checksum {
                file.hash = Some(self.hash(location.path, metadata.len())?);
            }
            let origin = (location.path.to_path_buf(), Stamp::of(metadata));
            self.push(
                Entry { path: location.target.clone(), kind: Kind::File(file) },
                Some(origin),
            )?;
        } else {
            let what = match file_type {
                kind if kind.is_fifo() => "a pipe",
                kind if kind.is_socket() => "a socket",
                _ => "a device",
            };
            self.found.notices.push(format!("{} is {what}: left out", location.path.display()));
        }
        Ok(())
    }

    fn file(&self, path: &Path, metadata: &Metadata) -> io::Result<manifest::File> {
        let mut file = manifest::File {
            size: metadata.len(),
            mtime: mtime(metadata),
            mode: mode(metadata),
            hash: None,
            data: None,
        };
        // A file that allocates less than its size may have holes.
        if metadata.blocks().saturating_mul(512) < metadata.len() {
            file.data = data(&self.root.open(path)?, metadata.len())?;
        }
        Ok(file)
    }

    /// The hash of a file's contents, as long as the file has a name and keeps its size.
    fn hash(&mut self, path: &Path, size: u64) -> Result<[u8; 32], Error> {
        let of_file = |error| failed(path, error);
        let mut file = self.root.open(path).map_err(of_file)?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; HASHED_AT_ONCE];
        loop {
            (self.budget)(0)?;
            let now = file.metadata().map_err(of_file)?;
            if now.nlink() == 0 || now.len() != size {
                return Err(Error::SourceChanged { path: path.to_path_buf() });
            }
            match file.read(&mut buffer).map_err(of_file)? {
                0 => return Ok(*hasher.finalize().as_bytes()),
                length => hasher.update(&buffer[..length]),
            };
        }
    }

    /// Adds the listed names below one folder; folders are added without their contents.
    fn listed(&mut self, sources: &[PathBuf], names: &[PathBuf]) -> Result<(), Error> {
        let root = match sources {
            [] => Path::new("."),
            [root] => root,
            _ => {
                return Err(Error::usage(
                    "--files-from takes at most one folder, below which its names are",
                ));
            }
        };
        // Each folder once, before its contents.
        let mut all = std::collections::BTreeSet::new();
        for name in names {
            let name: PathBuf =
                name.components().filter(|part| *part != std::path::Component::CurDir).collect();
            if name.as_os_str().is_empty() {
                continue;
            }
            if !manifest::is_plain(name.as_os_str().as_bytes()) {
                let text = format!(
                    "--files-from: {} is no plain name below {}",
                    name.display(),
                    root.display()
                );
                return Err(Error::usage(text));
            }
            all.extend(
                name.ancestors()
                    .filter(|above| !above.as_os_str().is_empty())
                    .map(Path::to_path_buf),
            );
        }
        for name in all {
            let path = root.join(&name);
            let metadata =
                self.root.symlink_metadata(&path).map_err(|error| failed(&path, error))?;
            let matches =
                |patterns: &Patterns| patterns.match_path_or_parents(&name, metadata.is_dir());
            if self.exclude.as_ref().is_some_and(matches)
                || !self.include.as_ref().is_none_or(matches)
            {
                continue;
            }
            let location = Location {
                path: &path,
                target: name.as_os_str().as_bytes().to_vec(),
                below: PathBuf::new(),
            };
            if metadata.is_dir() {
                self.push(directory(&location, &metadata), None)?;
            } else {
                self.leaf(&location, &metadata)?;
            }
        }
        Ok(())
    }

    /// Adds the pending folders.
    fn flush(&mut self) -> Result<(), Error> {
        std::mem::take(&mut self.pending).into_iter().try_for_each(|entry| self.push(entry, None))
    }

    fn push(&mut self, entry: Entry, origin: Option<(PathBuf, Stamp)>) -> Result<(), Error> {
        let path = origin.as_ref().map_or(0, |(path, _)| path.as_os_str().len());
        (self.budget)(footprint(&entry) + size_of_val(&origin) + path)?;
        self.found.entries.push(entry);
        self.found.origins.push(origin);
        Ok(())
    }
}

/// Checks that the selection may arrive under another name.
fn check_rename(name: &OsStr, sources: &[PathBuf], selection: &Selection) -> Result<(), Error> {
    let bytes = name.as_bytes();
    if sources.len() != 1 || selection.files_from.is_some() {
        return Err(Error::usage("only one file or folder can arrive under another name"));
    }
    if !manifest::is_plain(bytes) || bytes.contains(&b'/') {
        return Err(Error::usage(format!("{} cannot be the name of a file", name.display())));
    }
    Ok(())
}

/// The name of a folder at the receiver: empty if only the contents are sent, as with `folder/` and
/// `.`.
fn folder_name(source: &Path) -> Vec<u8> {
    let bytes = source.as_os_str().as_bytes();
    let last = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if matches!(last, b"" | b"." | b"..") { Vec::new() } else { last.to_vec() }
}

/// The extents of a file's data, if it has holes; with very many holes, only the largest count.
fn data(file: &File, size: u64) -> io::Result<Option<Vec<(u64, u64)>>> {
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(start) => start,
            // No more data.
            Err(Errno::NXIO) => break,
            // A file system without holes.
            Err(Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(file.as_fd(), SeekFrom::Hole(start))?.min(size);
        if end <= start {
            break;
        }
        extents.push((start, end - start));
        at = end;
    }
    if extents == [(0, size)] {
        return Ok(None);
    }
    if extents.len() > MAX_EXTENTS {
        let mut holes: Vec<u64> =
            extents.windows(2).map(|pair| pair[1].0 - (pair[0].0 + pair[0].1)).collect();
        holes.sort_unstable_by(|a, b| b.cmp(a));
        let smallest = holes[MAX_EXTENTS - 2];
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (offset, len) in extents {
            match joined.last_mut() {
                // Among holes of the same size, some may have to be filled.
                Some(before) if offset - (before.0 + before.1) <= smallest => {
                    before.1 = offset + len - before.0;
                }
                _ => joined.push((offset, len)),
            }
        }
        extents = joined;
    }
    Ok(Some(extents))
}

fn directory(location: &Location<'_>, metadata: &Metadata) -> Entry {
    Entry {
        path: location.target.clone(),
        kind: Kind::Directory { mtime: mtime(metadata), mode: mode(metadata) },
    }
}

fn mtime(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

fn mode(metadata: &Metadata) -> u16 {
    u16::try_from(metadata.mode() & 0o777).expect("nine bits")
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Source { path: path.to_path_buf(), source }
}
