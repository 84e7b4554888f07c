//! Owners, modes and extended attributes of what is received with `--archive`.
//!
//! A file gets them as soon as it has its name: before that it is this process's alone, in a folder
//! of its own, and a crash between the two leaves a file that the next attempt takes up. What an
//! earlier transfer left is changed in place, at the end, if that is safe.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FileType, OFlags, Stat, fstat, futimens, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use transfer::Tree;
use wire::files::Archived;
use wire::manifest::{self, Kind};

use super::directory::{Directory, Parents};
use super::lacking::if_possible;
use super::settle::{AtEnd, Target};
use super::staging::{self, Staged, Staging};
use super::times::KeptTimes;
use super::timestamps::timestamps;
use crate::Error;
use crate::attributes::{self, Applied};
use crate::beneath::{self, Inode, mtime_of};

/// How the attributes of an existing entry differ from those of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Not at all, or the source has none.
    None,
    /// They can be set.
    InPlace,
    /// The file must be sent again, whatever its contents.
    SendAgain,
}

/// Compares attributes of existing entries with those of a tree.
pub(super) struct Comparison<'a> {
    pub(super) directory: &'a Directory,
    pub(super) tree: &'a Tree,
    /// The further names of each file, by index.
    names: HashMap<usize, Vec<usize>>,
    /// Times as the directory's file system keeps them.
    pub(super) times: KeptTimes,
    /// Whether that file system has hard links, as far as is known.
    pub(super) has_links: bool,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(
        directory: &'a Directory,
        tree: &'a Tree,
        staging: Option<&Staging>,
    ) -> Comparison<'a> {
        let mut names: HashMap<usize, Vec<usize>> = HashMap::new();
        if !tree.attributes_of().is_empty() {
            for (index, entry) in tree.entries().iter().enumerate() {
                if let Kind::HardLink { to } = entry.kind {
                    names.entry(to as usize).or_default().push(index);
                }
            }
        }
        let times = staging.map_or_else(|| KeptTimes::new(None), Staging::times);
        let has_links = staging.is_none_or(Staging::has_links);
        Comparison { directory, tree, names, times, has_links }
    }

    /// Whether what is there has size and time of a file.
    pub(super) fn has_size_and_time(&self, file: &manifest::File, found: &Stat) -> bool {
        u64::try_from(found.st_size) == Ok(file.size)
            && self.times.is_kept(file.mtime, mtime_of(found))
    }

    /// Compares an entry with what is there, whose contents are the same.
    pub(super) fn of(
        &self,
        parents: &mut Parents<'_>,
        index: usize,
        found: &Stat,
    ) -> Result<Difference, Error> {
        let Some(wanted) = self.tree.attributes(index) else { return Ok(Difference::None) };
        let path = &self.tree.entries()[index].path;
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::Symlink {
            let has_owner = attributes::has_owner(found, wanted);
            return Ok(if has_owner { Difference::None } else { Difference::InPlace });
        }
        let file = match beneath::open(self.directory.fd(), path, OFlags::RDONLY | OFlags::NONBLOCK)
        {
            Ok(file) => file,
            // Only its owner can tell; the metadata are all that is known.
            Err(Errno::ACCESS) if attributes::has_owner_and_mode(found, wanted) => {
                return Ok(Difference::None);
            }
            Err(Errno::ACCESS) => return Ok(Difference::InPlace),
            Err(errno) => return Err(self.directory.failed("open", path, errno)),
        };
        let failed = |source| self.directory.failed("read the attributes of", path, source);
        if attributes::has_owner_and_mode(found, wanted)
            && attributes::has_extended(&file, wanted).map_err(failed)?
        {
            return Ok(Difference::None);
        }
        // Its contents may be another user's, who gave them the right size and time.
        let may_be_forged = kind == FileType::RegularFile
            && found.st_uid != geteuid().as_raw()
            && attributes::grants(&file, found, wanted).map_err(failed)?;
        if may_be_forged
            || kind == FileType::RegularFile && self.has_other_names(parents, index, found)
        {
            return Ok(Difference::SendAgain);
        }
        Ok(Difference::InPlace)
    }

    /// Whether a file has a name that the tree does not give it: it may be a file of somebody
    /// else's, outside the receiving folder.
    fn has_other_names(&self, parents: &mut Parents<'_>, index: usize, found: &Stat) -> bool {
        if found.st_nlink <= 1 {
            return false;
        }
        let further = self.names.get(&index).map_or(&[][..], Vec::as_slice);
        let mut is_this = |link: &&usize| {
            let stat = parents.stat(&self.tree.entries()[**link].path).ok().flatten();
            stat.is_some_and(|stat| Inode::from(&stat) == found.into())
        };
        let names = 1 + further.iter().filter(|link| is_this(link)).count();
        found.st_nlink > names as u64
    }
}

impl Target {
    /// Whether the entries have attributes.
    pub(super) fn is_archive(&self) -> bool {
        !self.tree.attributes_of().is_empty()
    }

    /// What became of the attributes so far.
    pub(crate) fn archived(&self) -> Archived {
        let archived = *self.archived.lock().expect("no panic while held");
        let lost_entries = u32::try_from(self.nameless().len()).unwrap_or(u32::MAX);
        Archived { lost_entries, ..archived }
    }

    /// Counts an entry, unless the file system kept its mode and time.
    pub(super) fn note_kept(&self, is_kept: bool) {
        self.archived.lock().expect("no panic while held").lost_modes += u32::from(!is_kept);
    }

    /// Opens a staged file that gets attributes when it has its name; `None` if it gets none.
    pub(super) fn open_archived(&self, staged: &Staged) -> Result<Option<File>, Error> {
        if self.tree.attributes(staged.entry).is_none() {
            return Ok(None);
        }
        let path = &self.tree.entries()[staged.entry].path;
        let failed = |source| self.directory.failed("open the part of", path, source);
        let file = self.staging.open_to_read(&staged.name).map_err(failed)?;
        if staging::inode_of(&file).map_err(failed)? != staged.inode {
            return Err(self.swapped(staged.entry));
        }
        Ok(Some(file))
    }

    /// Sets the attributes of an open file or folder, if the source has any; `was_there` if it is
    /// not new.
    pub(super) fn set_attributes(
        &self,
        index: usize,
        file: impl AsFd,
        was_there: bool,
    ) -> Result<bool, Error> {
        let Some(wanted) = self.tree.attributes(index) else { return Ok(false) };
        let path = &self.tree.entries()[index].path;
        let failed = |source| self.directory.failed("set owner and attributes of", path, source);
        let applied = attributes::apply(file, wanted).map_err(failed)?;
        self.note(applied, was_there);
        Ok(applied.is_changed)
    }

    /// Sets modes, times and attributes of files whose contents were there.
    pub(super) fn refresh(&self, at_end: &AtEnd) -> Result<(), Error> {
        for &(index, inode) in &at_end.stale {
            let path = &self.tree.entries()[index].path;
            let entry = self.tree.file(index).expect("a file of the tree");
            let opened = self.directory.file(path);
            let file = opened.map_err(|source| self.directory.failed("open", path, source))?;
            let failed = |source| self.directory.failed("set mode and time of", path, source);
            let file = file.ok_or_else(|| self.swapped(index))?;
            if staging::inode_of(&file).map_err(failed)? != inode {
                return Err(self.swapped(index));
            }
            if self.tree.attributes(index).is_none() {
                let is_kept = staging::finish(&file, entry).map_err(failed)?;
                self.note_kept(is_kept);
                continue;
            }
            // While it is still this user's.
            let found = fstat(&file).map_err(|errno| failed(errno.into()))?;
            if mtime_of(&found) != entry.mtime {
                let set = if_possible(futimens(&file, &timestamps(entry.mtime)));
                self.note_kept(set.map_err(|errno| failed(errno.into()))?);
            }
            self.set_attributes(index, &file, at_end.updated.contains(&index))?;
        }
        Ok(())
    }

    /// Sets the owner of the link called `name` in the open folder `above`; `was_there` if it is
    /// not new. Returns whether anything changed.
    pub(super) fn set_owner_of_link(
        &self,
        index: usize,
        above: impl AsFd,
        name: &[u8],
        was_there: bool,
    ) -> Result<bool, Error> {
        let Some(wanted) = self.tree.attributes(index) else { return Ok(false) };
        let entry = &self.tree.entries()[index];
        let Kind::Symlink { target, .. } = &entry.kind else { return Ok(false) };
        let failed = |errno| self.directory.failed("set the owner of the link", &entry.path, errno);
        let link = beneath::open(above, name, OFlags::PATH | OFlags::NOFOLLOW).map_err(failed)?;
        // From here on it is this link, whatever takes its name.
        match readlinkat(&link, c"", Vec::new()) {
            Ok(found) if found.as_bytes() == target => {}
            Ok(_) | Err(Errno::INVAL | Errno::NOENT) => return Err(self.swapped(index)),
            Err(errno) => return Err(failed(errno)),
        }
        let applied = attributes::apply_to_link(&link, wanted).map_err(|source| {
            self.directory.failed("set the owner of the link", &entry.path, source)
        })?;
        self.note(applied, was_there);
        Ok(applied.is_changed)
    }

    /// Sets attributes and time of the folder at `path`. Returns whether anything changed.
    pub(super) fn set_folder_attributes(
        &self,
        index: usize,
        mtime: i64,
        was_there: bool,
    ) -> Result<bool, Error> {
        let path = &self.tree.entries()[index].path;
        let failed = |errno| self.directory.failed("set mode and time of", path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = beneath::open(self.directory.fd(), path, flags).map_err(failed)?;
        let has_mtime = mtime_of(&fstat(&folder).map_err(failed)?) == mtime;
        if !has_mtime {
            // While it is still this user's.
            let set = if_possible(futimens(&folder, &timestamps(mtime)));
            self.note_kept(set.map_err(failed)?);
        }
        Ok(self.set_attributes(index, &folder, was_there)? || !has_mtime)
    }

    fn note(&self, applied: Applied, was_there: bool) {
        let Applied { has_owner, has_attributes, .. } = applied;
        let mut archived = self.archived.lock().expect("no panic while held");
        archived.updated += u32::from(was_there && has_owner && has_attributes);
        archived.lost_owners += u32::from(!has_owner);
        archived.lost_attributes += u32::from(!has_attributes);
    }

    /// The error if something else is in the place of an entry.
    pub(super) fn swapped(&self, index: usize) -> Error {
        let path = &self.tree.entries()[index].path;
        Error::Integrity {
            what: self.directory.shown(path).display().to_string(),
            detail: "another file was put in its place meanwhile".into(),
        }
    }
}
