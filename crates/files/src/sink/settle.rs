//! Gives complete files their names. Each file is synced first, so that a name never stands for
//! data that a power loss could take away.
//!
//! One sync serves a batch. When all files have their names, links are made, symbolic ones last;
//! then directories get their modes and times, and a last sync makes all names durable.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::{AtFlags, Stat, renameat, unlinkat};
use rustix::io::Errno;
use transfer::{Cv, Object, Packing, Tree};
use wire::files::{Archived, Wishes};
use wire::manifest::{Kind, RESERVED};

use super::directory::{Directory, Parents};
use super::lacking::{self, is_no_name};
use super::large::{Part, part_names};
use super::mirror::Doomed;
use super::session::Missing;
use super::staging::{Staged, Staging};
use super::survey::may_replace;
use crate::Error;
use crate::beneath::{Inode, split};

/// The destination of a tree.
pub(crate) struct Target {
    pub(crate) directory: Arc<Directory>,
    pub(crate) staging: Arc<Staging>,
    pub(crate) tree: Tree,
    pub(crate) packing: Arc<Packing>,
    pub(crate) wishes: Wishes,
    /// What became of owners and attributes so far.
    pub(super) archived: Mutex<Archived>,
    /// Files that changed at the source meanwhile.
    missing: Mutex<Missing>,
    /// Entries that the file system cannot have, or cannot have beside others.
    nameless: Mutex<BTreeSet<usize>>,
}

/// Complete files that wait for their names.
pub(crate) enum Completed {
    /// Small files: all of an object, with its index and hash, or some that belong to no object.
    Small(Option<(usize, Cv)>, Vec<Staged>),
    /// A large file: its object, the object's hash, and its part.
    Large(usize, Cv, Arc<Part>),
    /// The object of a large file that gets no name.
    LeftOut(usize),
}

impl Completed {
    /// Index and hash of the object that the files make up, if they do.
    pub(crate) fn object(&self) -> Option<(usize, Cv)> {
        match self {
            Completed::Small(object, _) => *object,
            Completed::Large(object, root, _) => Some((*object, *root)),
            Completed::LeftOut(_) => None,
        }
    }

    /// Whether an object of the layout is over with it.
    pub(crate) fn is_object(&self) -> bool {
        self.object().is_some() || matches!(self, Completed::LeftOut(_))
    }
}

/// What remains to be done once all files have their names.
#[derive(Debug, Default)]
pub(crate) struct AtEnd {
    /// Files whose contents are up to date, but not their mode, time or attributes; and which files
    /// these are.
    pub(crate) stale: Vec<(usize, Inode)>,
    /// Entries that are there, but for owner, mode or extended attributes.
    pub(crate) updated: BTreeSet<usize>,
    /// Entries in whose place something else stays.
    pub(crate) kept: BTreeSet<usize>,
    /// Those of them whose place another entry has, as the file system sees it.
    pub(crate) nameless: BTreeSet<usize>,
    /// What the source does not have; the contents of a folder before the folder.
    pub(crate) doomed: Vec<Doomed>,
}

/// Work that waits for the sync after a batch.
#[derive(Default)]
pub(crate) struct PendingSync {
    /// Journals of named files, to be removed once the names are durable.
    journals: Vec<String>,
    /// Folders with names in them that a power loss may still take away.
    folders: BTreeSet<Vec<u8>>,
    /// Whether anything in the directory changed.
    changed: bool,
}

impl PendingSync {
    /// The state at the start; `resumed` if an earlier attempt left a staging folder: it may have
    /// ended between names and their sync.
    pub(crate) fn new(resumed: bool) -> PendingSync {
        PendingSync { changed: resumed, ..PendingSync::default() }
    }

    /// Folders with names in them that a power loss may still take away.
    #[cfg(test)]
    pub(crate) fn folders(&self) -> impl Iterator<Item = &[u8]> {
        self.folders.iter().map(Vec::as_slice)
    }
}

/// Up to this many files are synced one by one: a sync of the whole file system waits for the data
/// of other programs too.
const FEW: usize = 4;

impl Target {
    /// A tree that goes into a directory.
    pub(crate) fn new(
        directory: Arc<Directory>,
        staging: Arc<Staging>,
        tree: Tree,
        packing: Arc<Packing>,
        wishes: Wishes,
    ) -> Target {
        Target {
            directory,
            staging,
            tree,
            packing,
            wishes,
            archived: Mutex::default(),
            missing: Mutex::default(),
            nameless: Mutex::default(),
        }
    }

    /// Syncs the files of a batch and gives them their names.
    pub(crate) fn settle(
        &self,
        batch: &[Completed],
        pending: &mut PendingSync,
    ) -> Result<(), Error> {
        for completed in batch {
            if let Completed::Large(object, root, part) = completed
                && !self.is_missing(*object)
            {
                let file = self.tree.file(self.large_file(*object)).expect("a file of the tree");
                let is_kept = part.finish(file)?;
                self.note_kept(is_kept || self.is_archived(self.large_file(*object)));
                if self.wishes.verify {
                    part.sync_all()?;
                    self.check(part.matches_root(*root)?, self.large_file(*object))?;
                }
            }
        }
        if self.sync_files(batch)? {
            pending.folders.clear();
        }
        // The names of the previous batch come first: a file without a durable name and without a
        // journal would be sent again.
        self.sync_folders(&std::mem::take(&mut pending.folders))?;
        for journal in pending.journals.drain(..) {
            self.staging.remove(&journal);
        }
        let mut parents = Parents::new(&self.directory);
        for completed in batch {
            pending.changed = true;
            self.staging.mark_names_unsynced();
            match completed {
                Completed::Small(_, files) => {
                    for staged in files {
                        if self.missing().has(staged.entry) {
                            self.staging.remove(&staged.name);
                            continue;
                        }
                        if self.wishes.verify {
                            let file = self.tree.file(staged.entry).expect("a file of the tree");
                            let found = self.staging.hash_cold(&staged.name, file);
                            self.check(
                                found.is_ok_and(|found| found == staged.hash),
                                staged.entry,
                            )?;
                        }
                        let archived = self.open_archived(staged)?;
                        self.check_staged(staged)?;
                        if !self.name(&mut parents, staged.entry, &staged.name)? {
                            continue;
                        }
                        self.note_kept(staged.is_kept || self.is_archived(staged.entry));
                        if let Some(file) = archived {
                            self.set_attributes(staged.entry, &file, false)?;
                        }
                        self.note_folders(staged.entry, pending);
                    }
                }
                Completed::Large(object, ..) if self.is_missing(*object) => {}
                Completed::LeftOut(_) => {}
                Completed::Large(object, _, part) => {
                    let file = self.large_file(*object);
                    self.check_still(file, &part.name, part.inode)?;
                    if self.name(&mut parents, file, &part.name)? {
                        self.set_attributes(file, part.data(), false)?;
                        self.note_folders(file, pending);
                    }
                    pending.journals.push(part.journal_name.clone());
                }
            }
        }
        Ok(())
    }

    /// Makes links and directories, deletes what the source does not have, sets the directories'
    /// modes and times, and syncs everything. Returns the number of deleted files and folders.
    pub(crate) fn finish(&self, at_end: &AtEnd, pending: &mut PendingSync) -> Result<usize, Error> {
        let mut parents = Parents::new(&self.directory);
        pending.changed |= !at_end.stale.is_empty();
        self.refresh(at_end)?;
        if self.tree.entries().iter().any(|entry| matches!(entry.kind, Kind::HardLink { .. })) {
            // If only the second name survived a power loss, the next attempt would take it for
            // another file.
            self.sync_folders(&std::mem::take(&mut pending.folders))?;
        }
        for (index, entry) in self.tree.entries().iter().enumerate() {
            if let Kind::HardLink { to } = entry.kind
                && !at_end.kept.contains(&index)
                && !self.missing().has(to as usize)
            {
                if self.nameless().contains(&(to as usize)) {
                    self.nameless().insert(index);
                    continue;
                }
                pending.changed |=
                    self.link(&mut parents, index, &self.tree.entries()[to as usize].path)?;
            }
        }
        for (index, entry) in self.tree.entries().iter().enumerate() {
            if let Kind::Symlink { target, mtime } = &entry.kind
                && !at_end.kept.contains(&index)
            {
                let was_there = at_end.updated.contains(&index);
                pending.changed |= self.symlink(&mut parents, index, target, *mtime, was_there)?;
            }
        }
        // What is missing may have taken another name.
        let is_whole = self.missing().is_empty();
        let deleted = if is_whole { self.delete(&at_end.doomed)? } else { 0 };
        pending.changed |= deleted > 0;
        pending.changed |= self.folders(at_end)?;
        if pending.changed {
            let only_names = at_end.stale.is_empty() && deleted == 0 && !self.is_archive();
            self.sync_names(only_names)?;
            self.staging.mark_names_synced();
            pending.folders.clear();
        }
        for journal in pending.journals.drain(..) {
            self.staging.remove(&journal);
        }
        for entry in self.missing().entries() {
            let (part, journal) = part_names(&self.tree.entries()[entry].path);
            self.staging.remove(&part);
            self.staging.remove(&journal);
        }
        self.staging.remove_if_empty();
        Ok(deleted)
    }

    /// Deletes what the source does not have, as far as it is still what was found. Returns the
    /// number of files and folders.
    fn delete(&self, all: &[Doomed]) -> Result<usize, Error> {
        let mut parents = Parents::new(&self.directory);
        let mut deleted = 0;
        for doomed in all {
            let above = split(&doomed.path).0;
            let done = self.with_owner_write(above, || doomed.delete(&mut parents));
            let failed = |errno| self.directory.failed("delete", &doomed.path, errno);
            deleted += usize::from(done.map_err(failed)?);
        }
        Ok(deleted)
    }

    /// Syncs the data of a batch. Returns whether it synced the whole file system.
    fn sync_files(&self, batch: &[Completed]) -> Result<bool, Error> {
        let files: usize = batch
            .iter()
            .map(|completed| match completed {
                Completed::Small(_, files) => files.len(),
                Completed::Large(..) => 1,
                Completed::LeftOut(_) => 0,
            })
            .sum();
        if files > FEW {
            lacking::sync_all(self.staging.fd())
                .map_err(|errno| self.directory.failed("sync", b"", errno))?;
            return Ok(true);
        }
        for completed in batch {
            match completed {
                Completed::Small(_, files) => {
                    files.iter().try_for_each(|staged| self.staging.sync(&staged.name))?;
                }
                // The journal too: until the name is durable, the next attempt may need all of it.
                Completed::Large(_, _, part) => part.sync_all().and_then(|()| part.sync())?,
                Completed::LeftOut(_) => {}
            }
        }
        Ok(false)
    }

    /// Records the folders that the name of an entry changed: its parent and all folders above,
    /// which may have been created for it. More than a few are not told apart: all are synced.
    fn note_folders(&self, entry: usize, pending: &mut PendingSync) {
        let mut above = split(&self.tree.entries()[entry].path).0;
        while pending.folders.len() <= FEW
            && pending.folders.insert(above.to_vec())
            && !above.is_empty()
        {
            above = split(above).0;
        }
    }

    /// Syncs the names in these folders.
    fn sync_folders(&self, folders: &BTreeSet<Vec<u8>>) -> Result<(), Error> {
        if folders.len() > FEW {
            return lacking::sync_all(self.directory.fd())
                .map_err(|errno| self.directory.failed("sync", b"", errno));
        }
        for path in folders {
            let synced = self.directory.sync_folder(path);
            synced.map_err(|errno| self.directory.failed("sync the directory", path, errno))?;
        }
        Ok(())
    }

    /// Syncs the names; without `only_names` also modes and times of files.
    fn sync_names(&self, only_names: bool) -> Result<(), Error> {
        let failed = |errno| self.directory.failed("sync the directory", b"", errno);
        // If the tree is a few files at the top, only that directory has changed.
        let is_flat = self.tree.entries().iter().all(|entry| !entry.path.contains(&b'/'));
        if only_names
            && self.tree.entries().len() <= FEW
            && is_flat
            && self.tree.file_count() == self.tree.entries().len()
        {
            return lacking::sync_folder(self.directory.fd()).map_err(failed);
        }
        lacking::sync_all(self.directory.fd()).map_err(failed)
    }

    /// Checks that a staged file is still the one that was verified: the same one, or, where the
    /// file system gives a file another number once it is closed, one of the same contents.
    fn check_staged(&self, staged: &Staged) -> Result<(), Error> {
        let file = self.tree.file(staged.entry).expect("a file of the tree");
        let is_like = || self.staging.hash_cold(&staged.name, file).is_ok_and(|f| f == staged.hash);
        match self.check_still(staged.entry, &staged.name, staged.inode) {
            Err(Error::Integrity { .. }) if !self.staging.keeps_numbers() && is_like() => Ok(()),
            checked => checked,
        }
    }

    /// Checks that the staged file `from` is still the one that was verified.
    pub(super) fn check_still(&self, index: usize, from: &str, inode: Inode) -> Result<(), Error> {
        let path = &self.tree.entries()[index].path;
        let is_still = self.staging.is_still(from, inode);
        if !is_still.map_err(|errno| self.directory.failed("look at the part of", path, errno))? {
            return Err(Error::Integrity {
                what: self.directory.shown(path).display().to_string(),
                detail: format!(
                    "another file was put in its place in {}",
                    String::from_utf8_lossy(RESERVED)
                ),
            });
        }
        Ok(())
    }

    /// Renames the staged file `from` to the path of an entry. Returns whether it has that name:
    /// the file system may have none like it.
    pub(super) fn name(
        &self,
        parents: &mut Parents<'_>,
        index: usize,
        from: &str,
    ) -> Result<bool, Error> {
        let path = &self.tree.entries()[index].path;
        let (above, last) = split(path);
        let to = OsStr::from_bytes(last);
        let entry = &self.tree.entries()[index];
        let found = parents.stat(path).ok().flatten();
        let is_kept = |found: &Stat| !may_replace(self.wishes, &self.tree, entry, found);
        let rename = |above: &OwnedFd| {
            // It may have appeared, or become newer, since the survey.
            if found.as_ref().is_some_and(is_kept) {
                return unlinkat(self.staging.fd(), from, AtFlags::empty());
            }
            if self.wishes.overwrite || self.wishes.update && found.is_some() {
                renameat(self.staging.fd(), from, above, to)
            } else {
                let by_link = self.staging.keeps_numbers();
                let (from, to) = ((self.staging.fd(), from), (above, to));
                lacking::rename_new(from, to, self.directory.fd(), by_link)
            }
        };
        let renamed = match parents.folder(above, true).and_then(rename) {
            // The folder's mode may forbid its owner to write.
            Err(Errno::ACCESS) => self.with_owner_write(above, || {
                self.directory.make_folder(above).and_then(|above| rename(&above))
            }),
            renamed => renamed,
        };
        // Some say that there is no such name where there can be none.
        let is_nowhere = |errno| errno == Errno::NOENT && self.staging.has(from);
        if renamed.is_err_and(|errno| is_no_name(errno) || is_nowhere(errno)) {
            self.staging.remove(from);
            self.nameless().insert(index);
            return Ok(false);
        }
        renamed.map(|()| true).map_err(|errno| match errno {
            Errno::EXIST => Error::Exists { path: self.directory.shown(path) },
            Errno::XDEV => self.directory.failed("move to another file system, of", path, errno),
            Errno::ISDIR | Errno::NOTEMPTY => Error::InTheWay {
                path: self.directory.shown(path),
                what: "a file or link",
                found: "a folder",
            },
            Errno::LOOP | Errno::NOTDIR => super::survey::in_the_way(&self.directory, path, errno),
            errno => self.directory.failed("rename", path, errno),
        })
    }

    /// Calls `act`, which works in the folder `path`; if access is denied, calls it again after
    /// giving the owner access. The final modes are set at the end.
    pub(super) fn with_owner_write<T>(
        &self,
        path: &[u8],
        mut act: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match act() {
            Err(Errno::ACCESS) if !path.is_empty() => {
                self.directory.add_owner_write(path)?;
                act()
            }
            done => done,
        }
    }

    fn check(&self, is_right: bool, entry: usize) -> Result<(), Error> {
        if is_right {
            return Ok(());
        }
        Err(Error::Integrity {
            what: self.directory.shown(&self.tree.entries()[entry].path).display().to_string(),
            detail: "what the disk gives back differs from what was written to it".into(),
        })
    }

    /// Entries that the file system cannot have.
    pub(super) fn nameless(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.nameless.lock().expect("no panic while held")
    }

    /// Files that changed at the source meanwhile.
    pub(super) fn missing(&self) -> MutexGuard<'_, Missing> {
        self.missing.lock().expect("no panic while held")
    }

    /// Whether an entry gets its mode and time with its owner.
    fn is_archived(&self, index: usize) -> bool {
        self.tree.attributes(index).is_some()
    }

    /// Whether a complete file got its name.
    pub(super) fn has_name(&self, file: usize) -> bool {
        !self.missing().has(file) && !self.nameless().contains(&file)
    }

    /// Whether an object is a large file that gets no name.
    pub(super) fn is_missing(&self, object: usize) -> bool {
        match self.packing.object(object) {
            Some(Object::Large(file)) => self.missing().has(file),
            _ => false,
        }
    }

    fn large_file(&self, object: usize) -> usize {
        match self.packing.object(object) {
            Some(Object::Large(file)) => file,
            _ => unreachable!("only large files have parts"),
        }
    }
}
