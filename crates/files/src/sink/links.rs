//! Links and folders of a tree, made once all files have their names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Stat, linkat, symlinkat, utimensat};
use rustix::io::Errno;
use wire::manifest::Kind;

use super::directory::Parents;
use super::lacking::{self, if_possible, is_no_name, lacks_links};
use super::settle::{AtEnd, Target};
use super::staging::{self, name_prefix};
use super::survey::is_symlink_to;
use super::timestamps::timestamps;
use crate::Error;
use crate::beneath::{FOLDER_BITS, Inode, mtime_of, permissions, split};

impl Target {
    /// Makes a hard link to the file at `to`, unless it exists; a copy of it where there are no
    /// hard links. Returns whether it did.
    pub(super) fn link(
        &self,
        parents: &mut Parents<'_>,
        index: usize,
        to: &[u8],
    ) -> Result<bool, Error> {
        let path = &self.tree.entries()[index].path;
        let failed = |errno| self.directory.failed("make the hard link", path, errno);
        let file = parents.stat(to).map_err(failed)?.ok_or_else(|| failed(Errno::NOENT))?;
        let found = parents.stat(path).map_err(failed)?;
        let is_there = |found: &Stat| {
            let is_copy = || found.st_size == file.st_size && mtime_of(found) == mtime_of(&file);
            Inode::from(found) == Inode::from(&file) || !self.staging.has_links() && is_copy()
        };
        if found.as_ref().is_some_and(is_there) {
            return Ok(false);
        }
        let name = format!("{}.link", name_prefix(path));
        self.staging.remove(&name);
        let (above, last) = split(to);
        let above = parents.folder(above, false).map_err(failed)?;
        match linkat(above, OsStr::from_bytes(last), self.staging.fd(), &name, AtFlags::empty()) {
            Ok(()) => self.check_still(index, &name, Inode::from(&file))?,
            Err(errno) if lacks_links(errno) => self.copy(index, to, &name)?,
            Err(errno) => return Err(failed(errno)),
        }
        self.name(parents, index, &name)?;
        Ok(true)
    }

    /// Stages a copy of the file at `from`, for an entry that is a further name of it.
    fn copy(&self, index: usize, from: &[u8], name: &str) -> Result<(), Error> {
        let path = &self.tree.entries()[index].path;
        let failed = |source| self.directory.failed("make a copy for", path, source);
        let source = self.directory.file(from).map_err(failed)?;
        let mut source = source.ok_or_else(|| failed(Errno::NOENT.into()))?;
        let mut copy = self.staging.open_file(name).map_err(failed)?;
        copy.set_len(0).and_then(|()| std::io::copy(&mut source, &mut copy)).map_err(failed)?;
        let Kind::HardLink { to } = self.tree.entries()[index].kind else {
            unreachable!("only further names are copied")
        };
        if let Some(entry) = self.tree.file(to as usize) {
            staging::finish(&copy, entry).map_err(failed)?;
        }
        self.set_attributes(to as usize, &copy, false)?;
        lacking::sync_file(&copy).map_err(failed)?;
        self.note_kept(false);
        Ok(())
    }

    /// Makes a symbolic link, unless it exists, and sets its time. Returns whether anything
    /// changed.
    pub(super) fn symlink(
        &self,
        parents: &mut Parents<'_>,
        index: usize,
        target: &[u8],
        mtime: i64,
        was_there: bool,
    ) -> Result<bool, Error> {
        let path = &self.tree.entries()[index].path;
        let failed = |errno| self.directory.failed("make the symbolic link", path, errno);
        if is_symlink_to(parents, path, target) {
            let found = parents.stat(path).map_err(failed)?;
            let (above, name) = split(path);
            let above = parents.folder(above, false).map_err(failed)?;
            let has_changed = self.set_owner_of_link(index, above, name, was_there)?;
            let times = self.staging.times();
            if found.is_some_and(|found| times.is_kept(mtime, mtime_of(&found))) {
                return Ok(has_changed);
            }
            let set = utimensat(
                above,
                OsStr::from_bytes(name),
                &timestamps(mtime),
                AtFlags::SYMLINK_NOFOLLOW,
            );
            let is_kept = if_possible(set).map_err(failed)?;
            self.note_kept(is_kept);
            return Ok(is_kept || has_changed);
        }
        let name = format!("{}.link", name_prefix(path));
        self.staging.remove(&name);
        match symlinkat(OsStr::from_bytes(target), self.staging.fd(), &name) {
            Ok(()) => {}
            Err(errno) if lacking::lacks(errno) || is_no_name(errno) => {
                self.nameless().insert(index);
                return Ok(false);
            }
            Err(errno) => return Err(failed(errno)),
        }
        let times = timestamps(mtime);
        let set = utimensat(self.staging.fd(), &name, &times, AtFlags::SYMLINK_NOFOLLOW);
        self.note_kept(if_possible(set).map_err(failed)?);
        self.set_owner_of_link(index, self.staging.fd(), name.as_bytes(), false)?;
        self.name(parents, index, &name)?;
        Ok(true)
    }

    /// Creates missing directories and sets the modes and times of all. Returns whether anything
    /// changed.
    pub(super) fn folders(&self, at_end: &AtEnd) -> Result<bool, Error> {
        let mut folders = BTreeMap::new();
        for (index, entry) in self.tree.entries().iter().enumerate() {
            if let Kind::Directory { mtime, mode } = entry.kind {
                folders.insert(&entry.path[..], (index, mtime, mode & FOLDER_BITS));
            }
        }
        let mut changed = false;
        let mut parents = Parents::new(&self.directory);
        for path in folders.keys() {
            let failed = |errno| self.directory.failed("make the folder", path, errno);
            let made = match parents.stat(path) {
                Ok(Some(_)) => continue,
                Ok(None) => {
                    let above = split(path).0;
                    self.with_owner_write(above, || self.directory.make_folder(path)).map(drop)
                }
                Err(errno) => Err(errno),
            };
            match made {
                Ok(()) => changed = true,
                Err(errno) if is_no_name(errno) || errno == Errno::NOENT => {
                    self.nameless().insert(folders[path].0);
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        folders.retain(|_, (index, ..)| !self.nameless().contains(index));
        let times = self.staging.times();
        // Children before parents: each change in a directory changes its time, and its final mode
        // may forbid access.
        let mut parents = Parents::new(&self.directory);
        for (path, (index, mtime, mode)) in folders.iter().rev() {
            if self.tree.attributes(*index).is_some() {
                let was_there = at_end.updated.contains(index);
                changed |= self.set_folder_attributes(*index, *mtime, was_there)?;
                continue;
            }
            let failed = |errno| self.directory.failed("set mode and time of", path, errno);
            let found = parents.stat(path).map_err(failed)?;
            let is_right = |found: Stat| {
                permissions(&found) == *mode && times.is_kept(*mtime, mtime_of(&found))
            };
            if !found.is_some_and(is_right) {
                let change = self.directory.set_folder(path, *mode, *mtime, &times);
                let change = change.map_err(failed)?;
                changed |= change.is_changed;
                self.note_kept(change.is_kept);
            }
        }
        Ok(changed)
    }
}
