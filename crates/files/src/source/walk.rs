//! Walks the folders to be sent, keeps links as links, and applies the filters.
//!
//! Every entry is looked up by its name in the open folder that contains it, through no link. What
//! cannot be read is left out, unless the command or the request names it itself.

mod entries;
mod unsized_files;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, OFlags, Stat, statat};
use rustix::io::Errno;
use wire::manifest::{self, Attributes, AttributesOf, Entry, Kind, is_reserved};

use super::budget::MemoryBudget;
use super::globs;
use super::patterns::Patterns;
use super::root::{NamedPaths, SourcePath, SourceRoot};
use super::stamp::Stamp;
use crate::beneath::{self, Inode, LastFolder, split};
use crate::left_out::LeftOuts;
use crate::protocol::{footprint_of, footprint_of_attributes};
use crate::{Error, Selection};

/// The result of a walk.
pub(crate) struct Found {
    /// The paths that the command or the request names.
    pub(crate) named: NamedPaths,
    pub(crate) entries: Vec<Entry>,
    /// Owners and extended attributes of the entries, if these are sent.
    pub(crate) attributes: AttributesOf,
    /// For each entry, the file that it stands for; `None` if it is no file.
    pub(crate) origins: Vec<Option<Origin>>,
    /// The paths at the receiver of the folders that are named.
    pub(crate) folders: Vec<Vec<u8>>,
    /// Entries that could not be read.
    pub(crate) left_out: LeftOuts,
    /// Messages about staging folders.
    pub(crate) notices: Vec<String>,
}

/// A file as the walk found it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) place: SourcePath,
    pub(crate) inode: Inode,
    pub(crate) stamp: Stamp,
    /// Its contents, if its size says nothing about them.
    pub(crate) contents: Option<Vec<u8>>,
}

/// Bytes that are hashed between two looks at whether the walk goes on.
const HASHED_AT_ONCE: usize = 1 << 20;

/// Finds everything under `sources` that the selection includes; the one source arrives as
/// `rename`, if that is given. Takes from `budget` before it keeps an entry.
pub(crate) fn walk(
    root: SourceRoot,
    sources: &[PathBuf],
    selection: &Selection,
    rename: Option<&OsStr>,
    budget: MemoryBudget<'_>,
) -> Result<Found, Error> {
    if let Some(name) = rename {
        check_rename(name, sources)?;
    }
    let mut walk = Walk {
        budget,
        found: Found {
            named: NamedPaths::new(root),
            entries: Vec::new(),
            attributes: AttributesOf::new(),
            origins: Vec::new(),
            folders: Vec::new(),
            left_out: LeftOuts::default(),
            notices: Vec::new(),
        },
        folder: LastFolder::default(),
        include: Patterns::new(&selection.include)?,
        exclude: Patterns::new(&selection.exclude)?,
        pending: Vec::new(),
        seen: HashMap::new(),
        checksum: selection.checksum,
        strict: selection.strict,
        is_archive: selection.archive,
        clamped: 0,
    };
    match &selection.files_from {
        None => {
            for source in sources {
                let root = walk.found.named.root().clone();
                for source in globs::expand(&root, source, walk.budget)? {
                    walk.source(&source, rename)?;
                }
            }
        }
        Some(names) => walk.listed(sources, names, rename)?,
    }
    if walk.found.entries.is_empty() {
        if let Some((path, reason)) = walk.found.left_out.named().first() {
            let (path, source) = (path.clone(), io::Error::other(reason.clone()));
            return Err(Error::Source { path, source });
        }
        // The contents of an empty folder are nothing, and that is what it has.
        let is_filtered = selection.files_from.is_some()
            || !selection.include.is_empty()
            || !selection.exclude.is_empty();
        if is_filtered || walk.found.folders.is_empty() {
            return Err(Error::NothingSelected);
        }
    }
    if walk.clamped > 0 {
        let subject = match walk.clamped {
            1 => "a file, folder or link has a time".into(),
            count => format!("{count} files, folders or links have times"),
        };
        let text = format!(
            "{subject} before 1678 or after 2262, and the nearest one in between is sent instead",
        );
        walk.found.notices.push(text);
    }
    Ok(walk.found)
}

struct Walk<'a> {
    budget: MemoryBudget<'a>,
    found: Found,
    /// The folder of the last entry.
    folder: LastFolder,
    /// If given, only matching files are included, and the folders that lead to them.
    include: Option<Patterns>,
    exclude: Option<Patterns>,
    /// Folders above the current location of which no entry is included so far.
    pending: Vec<Described>,
    /// Files with several names.
    seen: HashMap<Inode, u32>,
    checksum: bool,
    /// Whether what cannot be read ends the walk.
    strict: bool,
    /// Whether owners and extended attributes are sent.
    is_archive: bool,
    /// Entries whose time no manifest can have.
    clamped: usize,
}

/// An entry, with its attributes if these are sent.
type Described = (Entry, Option<Attributes>);

/// The reason for leaving out what another process has removed or replaced.
const CHANGED: &str = "it vanished while the folder was looked at";

/// The location of an entry: local, and at the receiver.
struct Location {
    place: SourcePath,
    target: Vec<u8>,
}

/// A folder whose entries are being looked at.
struct Level {
    location: Location,
    /// The names that are left.
    names: std::vec::IntoIter<OsString>,
    /// Whether the folder was included as a whole.
    inside: bool,
    /// The number of pending folders above it.
    pending: usize,
}

impl Location {
    /// The entry `name` of the folder at this location.
    fn child(&self, name: &OsStr) -> Location {
        let mut target = self.target.clone();
        if !target.is_empty() {
            target.push(b'/');
        }
        target.extend_from_slice(name.as_bytes());
        Location { place: self.place.child(name.as_bytes()), target }
    }
}

impl Walk<'_> {
    /// Adds a file or folder that the command names. A link is followed.
    fn source(&mut self, source: &Path, rename: Option<&OsStr>) -> Result<(), Error> {
        let (place, stat) = self.found.named.add(source)?;
        self.folder = LastFolder::default();
        if kind_of(&stat) != FileType::Directory {
            let name = source
                .file_name()
                .ok_or_else(|| Error::usage(format!("{} has no name", source.display())))?;
            if kind_of(&stat) != FileType::RegularFile {
                return Err(Error::usage(format!("{} is no file and no folder", source.display())));
            }
            let target = rename.unwrap_or(name).as_bytes().to_vec();
            let location = Location { place, target };
            return self.entry(location, Path::new(name), &stat, false).map(drop);
        }
        let target = rename.map_or_else(|| folder_name(source), |name| name.as_bytes().to_vec());
        self.found.folders.push(target.clone());
        let location = Location { place, target };
        if !location.target.is_empty() {
            let folder = self.directory(&location, &stat)?;
            self.pending.push(folder);
            if self.include.is_none() {
                self.flush()?;
            }
        }
        let top = self.level(location, false, 0)?;
        self.folders(top)
    }

    /// Adds the contents of a folder and of all folders below it.
    fn folders(&mut self, top: Level) -> Result<(), Error> {
        let mut levels = vec![top];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.next() else {
                self.pending.truncate(level.pending);
                levels.pop();
                continue;
            };
            let location = level.location.child(&name);
            let stat = self.stat(&location.place);
            let Some(stat) = self.unless_unreadable(&location.place, stat)? else { continue };
            let filtered = OsStr::from_bytes(location.place.below()).to_os_string();
            let deeper = self.entry(location, Path::new(&filtered), &stat, level.inside)?;
            levels.extend(deeper);
        }
        Ok(())
    }

    /// Lists a folder.
    fn level(&mut self, location: Location, inside: bool, pending: usize) -> Result<Level, Error> {
        let listed =
            open_in(&mut self.folder, &self.found.named, &location.place).and_then(|folder| {
                beneath::open(folder, b"", OFlags::RDONLY | OFlags::DIRECTORY)
                    .and_then(beneath::names)
                    .map_err(|errno| self.found.named.failed(&location.place, errno))
            })?;
        Ok(Level { location, names: listed.into_iter(), inside, pending })
    }

    /// The metadata at a place below a named folder.
    fn stat(&mut self, place: &SourcePath) -> Result<Stat, Error> {
        let name = OsStr::from_bytes(split(place.below()).1);
        let folder = open_in(&mut self.folder, &self.found.named, &place.parent())?;
        statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| match errno {
            Errno::NOENT => {
                Error::Source { path: self.found.named.shown(place), source: errno.into() }
            }
            errno => self.found.named.failed(place, errno),
        })
    }

    /// What was read at a place. If reading failed, the place is left out, and there is nothing;
    /// but what is named, and everything with `--strict`, must be readable.
    fn unless_unreadable<T>(
        &mut self,
        place: &SourcePath,
        read: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let is_needed = self.strict || place.below().is_empty();
        let reason = match read {
            Ok(found) => return Ok(Some(found)),
            Err(error) if is_needed => return Err(error),
            Err(Error::Source { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                CHANGED.into()
            }
            // Without the number that the standard library adds.
            Err(Error::Source { source, .. }) => {
                source.to_string().split(" (os error").next().unwrap_or_default().into()
            }
            Err(Error::SourceChanged { .. }) => CHANGED.into(),
            Err(error) => return Err(error),
        };
        self.leave_out(place, reason)?;
        Ok(None)
    }

    /// Leaves out what is at a place.
    fn leave_out(&mut self, place: &SourcePath, reason: String) -> Result<(), Error> {
        let bytes = self.found.left_out.add(self.found.named.shown(place), reason);
        (self.budget)(bytes)
    }

    /// Adds an entry, unless a filter excludes the path `filtered`. Returns a folder that must be
    /// looked into.
    fn entry(
        &mut self,
        location: Location,
        filtered: &Path,
        stat: &Stat,
        inside: bool,
    ) -> Result<Option<Level>, Error> {
        (self.budget)(0)?;
        let is_folder = kind_of(stat) == FileType::Directory;
        let matches = |patterns: &Patterns| patterns.match_path(filtered, is_folder);
        if self.exclude.as_ref().is_some_and(matches) {
            return Ok(None);
        }
        let inside = inside || self.include.as_ref().is_none_or(matches);
        if is_reserved(split(&location.target).1) {
            self.leave_out_staging(&location.place);
            return Ok(None);
        }
        if is_folder || inside {
            check_depth(&location.target, || self.found.named.shown(&location.place))?;
        }
        if is_folder {
            let depth = self.pending.len();
            let place = location.place.clone();
            let folder = self.directory(&location, stat);
            let Some(folder) = self.unless_unreadable(&place, folder)? else { return Ok(None) };
            self.pending.push(folder);
            if inside {
                self.flush()?;
            }
            let level = self.level(location, inside, depth);
            let level = self.unless_unreadable(&place, level)?;
            if level.is_none() {
                self.pending.truncate(depth);
            }
            return Ok(level);
        }
        if inside {
            self.flush()?;
            let place = location.place.clone();
            let added = self.leaf(location, stat);
            self.unless_unreadable(&place, added)?;
        }
        Ok(None)
    }

    fn leave_out_staging(&mut self, place: &SourcePath) {
        let path = self.found.named.shown(place);
        let text = format!("{} is a receiver's staging folder: left out", path.display());
        self.found.notices.push(text);
    }

    /// Adds the listed names below one folder; folders are added without their contents. They
    /// arrive in a folder with the name `rename`, if there is one.
    fn listed(
        &mut self,
        sources: &[PathBuf],
        names: &[PathBuf],
        rename: Option<&OsStr>,
    ) -> Result<(), Error> {
        let root = match sources {
            [] => Path::new("."),
            [root] => root,
            _ => {
                return Err(Error::usage(
                    "--files-from takes at most one folder, below which its names are",
                ));
            }
        };
        let (place, stat) = self.found.named.add(root)?;
        let target = rename.map_or_else(Vec::new, |name| name.as_bytes().to_vec());
        let top = Location { place, target };
        let first = self.found.entries.len();
        let is_named = !top.target.is_empty();
        if is_named {
            let folder = self.directory(&top, &stat)?;
            self.push(folder, None)?;
        }
        let mut left_out = BTreeSet::new();
        // Each folder once, before its contents.
        let mut all = BTreeSet::new();
        for name in names {
            let name: PathBuf =
                name.components().filter(|part| *part != std::path::Component::CurDir).collect();
            if name.as_os_str().is_empty() {
                continue;
            }
            let is_staging =
                |above: &&Path| above.file_name().is_some_and(|last| is_reserved(last.as_bytes()));
            if let Some(staging) = name.ancestors().find(is_staging) {
                if left_out.insert(staging.to_path_buf()) {
                    self.leave_out_staging(&top.place.child(staging.as_os_str().as_bytes()));
                }
                continue;
            }
            check_depth(name.as_os_str().as_bytes(), || root.join(&name))?;
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
            let location = top.child(name.as_os_str());
            let stat = self.stat(&location.place);
            let Some(stat) = self.unless_unreadable(&location.place, stat)? else { continue };
            let is_folder = kind_of(&stat) == FileType::Directory;
            let matches = |patterns: &Patterns| patterns.match_path_or_parents(&name, is_folder);
            if self.exclude.as_ref().is_some_and(matches)
                || !self.include.as_ref().is_none_or(matches)
            {
                continue;
            }
            if is_folder {
                let folder = self.directory(&location, &stat);
                if let Some(folder) = self.unless_unreadable(&location.place, folder)? {
                    self.push(folder, None)?;
                }
            } else {
                let place = location.place.clone();
                let added = self.leaf(location, &stat);
                self.unless_unreadable(&place, added)?;
            }
        }
        if is_named && self.found.entries.len() == first + 1 {
            // Without anything in it there is nothing to be sent.
            self.found.entries.pop();
            self.found.origins.pop();
            self.found.attributes.remove(&first);
        }
        Ok(())
    }

    /// Adds the pending folders.
    fn flush(&mut self) -> Result<(), Error> {
        std::mem::take(&mut self.pending).into_iter().try_for_each(|entry| self.push(entry, None))
    }

    fn push(&mut self, described: Described, origin: Option<Origin>) -> Result<(), Error> {
        let (entry, attributes) = described;
        self.clamped += usize::from(matches!(
            entry.kind,
            Kind::File(manifest::File { mtime: i64::MIN | i64::MAX, .. })
                | Kind::Directory { mtime: i64::MIN | i64::MAX, .. }
                | Kind::Symlink { mtime: i64::MIN | i64::MAX, .. }
        ));
        let path = origin.as_ref().map_or(0, |origin| origin.place.below().len());
        let of_attributes = attributes.as_ref().map_or(0, footprint_of_attributes);
        let contents =
            origin.as_ref().and_then(|origin| origin.contents.as_ref()).map_or(0, Vec::len);
        let bytes = of_attributes + size_of_val(&origin) + path + contents;
        (self.budget)(footprint_of(&entry) + bytes)?;
        if let Some(attributes) = attributes {
            self.found.attributes.insert(self.found.entries.len(), attributes);
        }
        self.found.entries.push(entry);
        self.found.origins.push(origin);
        Ok(())
    }
}

/// Checks that the path of an entry at the receiver is within the limits of a manifest; `shown` is
/// its local path, for the message.
fn check_depth(target: &[u8], shown: impl FnOnce() -> PathBuf) -> Result<(), Error> {
    if !manifest::is_too_long(target) {
        return Ok(());
    }
    let text = "at most 1,000 folders lie in each other, and a path has at most 4,095 bytes: leave \
                it out with --exclude, or send a folder further down by itself";
    Err(Error::Source { path: abridged(&shown()), source: io::Error::other(text) })
}

/// A path whose middle is left out if it is long.
fn abridged(path: &Path) -> PathBuf {
    const START: usize = 400;
    const END: usize = 50;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() <= START + END {
        return path.to_path_buf();
    }
    let (start, end) = (&bytes[..START], &bytes[bytes.len() - END..]);
    OsString::from_vec([start, "…".as_bytes(), end].concat()).into()
}

/// Checks that the selection may arrive under another name.
fn check_rename(name: &OsStr, sources: &[PathBuf]) -> Result<(), Error> {
    if sources.len() != 1 {
        return Err(Error::usage("only one file or folder can arrive under another name"));
    }
    check_name(name)
}

/// Checks that a file can have this name.
pub(crate) fn check_name(name: &OsStr) -> Result<(), Error> {
    let bytes = name.as_bytes();
    if !manifest::is_plain(bytes) || bytes.contains(&b'/') {
        return Err(Error::usage(format!("{} cannot be the name of a file", name.display())));
    }
    Ok(())
}

/// The name of a folder at the receiver: empty if only the contents are sent, as with `folder/` and
/// `.`.
#[must_use]
pub fn folder_name(source: &Path) -> Vec<u8> {
    let bytes = source.as_os_str().as_bytes();
    let last = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if matches!(last, b"" | b"." | b"..") { Vec::new() } else { last.to_vec() }
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The folder at a place, which stays open for the next lookup.
fn open_in<'a>(
    last: &'a mut LastFolder,
    named: &NamedPaths,
    place: &SourcePath,
) -> Result<&'a OwnedFd, Error> {
    last.get_or_open(place.below(), || named.open_folder(place))
}
