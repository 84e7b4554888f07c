//! Files and folders of the receiving folder that the source does not have (`--delete`).
//!
//! They are found before any data come, and deleted after everything is complete: only those that
//! were found, and only if they are still the same. Everything is looked up beneath the receiving
//! folder, through no link.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, OFlags, unlinkat};
use rustix::io::Errno;
use transfer::Tree;
use units::Bytes;
use wire::files::Deletes;
use wire::manifest::{Kind, is_reserved};

use super::directory::{Directory, Parents};
use super::lacking::is_no_name;
use super::survey::in_the_way;
use crate::beneath::{self, Inode, ctime_of, split};
use crate::blocking::Wanted;
use crate::source::Patterns;
use crate::{Error, Selection};

/// The folders in which everything is deleted that the source does not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    /// Paths below the receiving folder; empty for the receiving folder itself.
    pub(crate) folders: Vec<Vec<u8>>,
    /// What the source would not have sent is not deleted.
    pub(crate) selection: Selection,
    /// Whether any number of files may be deleted.
    pub(crate) is_forced: bool,
}

/// The message if something may be missing in the source.
pub(crate) const NOTHING_DELETED: &str =
    "nothing is deleted, because the source could not be read completely";

/// A file or folder to delete.
#[derive(Debug)]
pub(crate) struct Doomed {
    /// Its path below the receiving folder.
    pub(crate) path: Vec<u8>,
    /// Its size; zero for a folder.
    pub(crate) size: Bytes,
    inode: Inode,
    /// The time of its last change, unless it is a folder, which changes as it is emptied.
    changed: Option<i64>,
}

/// The most memory of the list of what is to be deleted.
pub(crate) const DOOMED_BYTES: usize = 256 << 20;
/// So many files are deleted without `--force-delete`, whatever their share of all.
const FEW: usize = 100;

/// A folder that is being looked at.
struct OpenFolder {
    path: Vec<u8>,
    names: std::vec::IntoIter<OsString>,
    /// Whether it lies in what `--include` selects.
    is_inside: bool,
    /// Entries that the source has under names that the file system takes for the same: in other
    /// case, for example.
    spelled_otherwise: Vec<Inode>,
    /// The folder itself, if it is deleted once nothing is left in it.
    doomed: Option<Doomed>,
    /// Whether something in it stays.
    is_needed: bool,
}

/// Looks for what is to be deleted.
struct Search<'a> {
    directory: &'a Directory,
    parents: Parents<'a>,
    /// The names that the source has in each folder, in order.
    names: HashMap<&'a [u8], Vec<&'a [u8]>>,
    folders: BTreeSet<&'a [u8]>,
    include: Option<Patterns>,
    exclude: Option<Patterns>,
    /// The device of the receiving folder.
    device: u64,
    doomed: Vec<Doomed>,
    bytes: usize,
    /// The number of files, and of those that are to be deleted.
    files: (usize, usize),
}

impl Mirror {
    /// Finds what is to be deleted, as long as the result is `wanted`; the contents of a folder
    /// come before the folder.
    ///
    /// # Errors
    /// If everything in a folder is found, or more than a few files and more than half of all,
    /// unless this is forced; if a folder cannot be listed.
    pub(crate) fn find(
        &self,
        directory: &Directory,
        tree: &Tree,
        wanted: &Wanted,
    ) -> Result<Vec<Doomed>, Error> {
        let failed = |errno| directory.failed("look at", b"", errno);
        let mut names: HashMap<&[u8], Vec<&[u8]>> = HashMap::new();
        for entry in tree.entries() {
            let (above, name) = split(&entry.path);
            names.entry(above).or_default().push(name);
        }
        for names in names.values_mut() {
            names.sort_unstable();
        }
        let mut search = Search {
            directory,
            parents: Parents::new(directory),
            names,
            folders: self.folders.iter().map(Vec::as_slice).collect(),
            include: Patterns::new(&self.selection.include)?,
            exclude: Patterns::new(&self.selection.exclude)?,
            device: rustix::fs::fstat(directory.fd()).map_err(failed)?.st_dev,
            doomed: Vec::new(),
            bytes: 0,
            files: (0, 0),
        };
        for folder in search.folders.clone() {
            let before = search.doomed.len();
            search.below(folder, wanted)?;
            if search.doomed.len() > before && !self.is_forced && !has_files(tree, folder) {
                return Err(Error::NothingLeft { path: directory.shown(folder) });
            }
        }
        let (all, doomed) = search.files;
        if doomed > FEW && doomed > all / 2 && !self.is_forced {
            return Err(Error::TooMuchToDelete { path: directory.shown(b""), doomed, all });
        }
        Ok(search.doomed)
    }
}

impl Search<'_> {
    /// Looks at everything below one of the folders.
    fn below(&mut self, root: &[u8], wanted: &Wanted) -> Result<(), Error> {
        let Some(top) = self.level(root.to_vec(), self.include.is_none(), None)? else {
            return Ok(());
        };
        let mut levels = vec![top];
        while let Some(level) = levels.last_mut() {
            wanted.check()?;
            let Some(name) = level.names.next() else {
                let OpenFolder { doomed, is_needed, .. } =
                    levels.pop().expect("there is a last one");
                match doomed.filter(|_| !is_needed) {
                    Some(doomed) => self.doom(doomed)?,
                    None => levels.iter_mut().last().into_iter().for_each(|above| {
                        above.is_needed = true;
                    }),
                }
                continue;
            };
            match self.entry(root, level, &name)? {
                Sighting::Gone => {}
                Sighting::Needed => level.is_needed = true,
                Sighting::Doomed(doomed) => self.doom(doomed)?,
                Sighting::Folder(below) => levels.push(below),
            }
        }
        Ok(())
    }

    /// Looks at an entry of the folder at `above`.
    fn entry(&mut self, root: &[u8], level: &OpenFolder, name: &OsStr) -> Result<Sighting, Error> {
        let above = &level.path[..];
        let path = joined(above, name);
        if is_reserved(name.as_bytes()) || self.folders.contains(&path[..]) {
            return Ok(Sighting::Needed);
        }
        let stat = self.parents.stat(&path);
        let Some(stat) = stat.map_err(|errno| in_the_way(self.directory, &path, errno))? else {
            return Ok(Sighting::Gone);
        };
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // As the source matches them: below the folder that is named there.
        let below = if root.is_empty() { &path[..] } else { &path[root.len() + 1..] };
        let below = Path::new(OsStr::from_bytes(below));
        let matches = |patterns: &Patterns| patterns.match_path(below, is_folder);
        if self.exclude.as_ref().is_some_and(matches) || stat.st_dev != self.device {
            return Ok(Sighting::Needed);
        }
        let is_inside = level.is_inside || self.include.as_ref().is_none_or(matches);
        let of_source = self.names.get(above).map_or(&[][..], Vec::as_slice);
        let is_there = of_source.binary_search(&name.as_bytes()).is_ok();
        if !is_there && level.spelled_otherwise.contains(&Inode::from(&stat)) {
            return Ok(Sighting::Needed);
        }
        let doomed = (is_inside && !is_there).then(|| Doomed {
            path: path.clone(),
            size: Bytes(if is_folder { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) }),
            inode: Inode::from(&stat),
            changed: (!is_folder).then(|| ctime_of(&stat)),
        });
        if is_folder {
            let level = self.level(path, is_inside, doomed)?;
            return Ok(level.map_or(Sighting::Gone, Sighting::Folder));
        }
        self.files.0 += 1;
        self.files.1 += usize::from(doomed.is_some());
        Ok(doomed.map_or(Sighting::Needed, Sighting::Doomed))
    }

    /// The entries of a folder that the source has under names that are not among those listed.
    fn spelled_otherwise(
        &mut self,
        above: &[u8],
        listed: &[OsString],
    ) -> Result<Vec<Inode>, Error> {
        let mut found = Vec::new();
        for name in self.names.get(above).into_iter().flatten() {
            let name = OsStr::from_bytes(name);
            if listed.binary_search_by(|other| other.as_os_str().cmp(name)).is_ok() {
                continue;
            }
            let path = joined(above, name);
            let stat = match self.parents.stat(&path) {
                Err(errno) if is_no_name(errno) => continue,
                stat => stat.map_err(|errno| in_the_way(self.directory, &path, errno))?,
            };
            found.extend(stat.as_ref().map(Inode::from));
        }
        Ok(found)
    }

    /// Lists a folder; `None` if it is gone, or something else.
    fn level(
        &mut self,
        path: Vec<u8>,
        is_inside: bool,
        doomed: Option<Doomed>,
    ) -> Result<Option<OpenFolder>, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let listed = beneath::open(self.directory.fd(), &path, flags).and_then(beneath::names);
        match listed {
            Ok(names) => {
                let spelled_otherwise = self.spelled_otherwise(&path, &names)?;
                let names = names.into_iter();
                let is_needed = false;
                Ok(Some(OpenFolder {
                    path,
                    names,
                    is_inside,
                    spelled_otherwise,
                    doomed,
                    is_needed,
                }))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(self.directory.failed("list", &path, errno)),
        }
    }

    fn doom(&mut self, doomed: Doomed) -> Result<(), Error> {
        self.bytes += size_of::<Doomed>() + doomed.path.len();
        if self.bytes > DOOMED_BYTES {
            let text = "--delete would remove more than can be listed; remove some of it by hand";
            return Err(Error::refused(text));
        }
        self.doomed.push(doomed);
        Ok(())
    }
}

/// Whether a tree has anything but folders below the folder at `root`.
fn has_files(tree: &Tree, root: &[u8]) -> bool {
    let is_below = |path: &[u8]| {
        root.is_empty() || path.strip_prefix(root).is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    let is_folder = |kind: &Kind| matches!(kind, Kind::Directory { .. });
    tree.entries().iter().any(|entry| !is_folder(&entry.kind) && is_below(&entry.path))
}

/// The path of an entry of the folder at `above`.
fn joined(above: &[u8], name: &OsStr) -> Vec<u8> {
    let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
    [above, slash, name.as_bytes()].concat()
}

/// What an entry of a folder is.
enum Sighting {
    /// It is not there any more.
    Gone,
    /// It stays, and so does the folder.
    Needed,
    /// A file that the source does not have.
    Doomed(Doomed),
    /// A folder, which must be looked into.
    Folder(OpenFolder),
}

impl Doomed {
    /// Whether it is a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.changed.is_none()
    }

    /// The frame of a dry run.
    pub(crate) fn deletes(&self) -> Deletes<'_> {
        Deletes { path: &self.path, size: self.size.0, is_folder: self.is_folder() }
    }

    /// Deletes it, if it is still what was found. Returns whether it did.
    pub(super) fn delete(&self, parents: &mut Parents<'_>) -> Result<bool, Errno> {
        let found = match parents.stat(&self.path) {
            Ok(Some(found)) => found,
            // A folder on the way has become something else.
            Ok(None) | Err(Errno::LOOP | Errno::NOTDIR) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        let is_same = Inode::from(&found) == self.inode
            && self.changed.is_none_or(|changed| ctime_of(&found) == changed);
        if !is_same {
            return Ok(false);
        }
        let (above, name) = split(&self.path);
        let flags = if self.is_folder() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(parents.folder(above, false)?, OsStr::from_bytes(name), flags) {
            Ok(()) => Ok(true),
            // Another process put something into it.
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}
