//! Entries of a walk: what a file, a link or a folder is sent as.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FileType, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;
use wire::manifest::{self, Attributes, Entry, Kind, PRIVATE_FILE, PRIVATE_FOLDER};

use super::super::holes::data;
use super::super::root::{READ, SourcePath};
use super::super::stamp::Stamp;
use super::{Described, HASHED_AT_ONCE, Location, Origin, Walk, kind_of, open_in};
use crate::beneath::{self, Inode, folder_permissions, mtime_of, permissions, split};
use crate::{Error, attributes};

impl Walk<'_> {
    /// Adds an entry that is no folder.
    pub(super) fn leaf(&mut self, location: Location, stat: &Stat) -> Result<(), Error> {
        let Location { place, target: path } = location;
        match kind_of(stat) {
            FileType::Symlink => {
                let target = self.link_target(&place)?;
                let kind = Kind::Symlink { mtime: mtime_of(stat), target };
                let attributes = self.is_archive.then(|| attributes::of_link(stat));
                self.push((Entry { path, kind }, attributes), None)
            }
            FileType::RegularFile => {
                if let Some(&to) = self.seen.get(&Inode::from(stat)) {
                    return self.push((Entry { path, kind: Kind::HardLink { to } }, None), None);
                }
                // Opened now, so that a file that cannot be read is known before both sides agree.
                let (mut input, stat) = self.open(&place, stat)?;
                let mut file = self.file(&place, &mut input, &stat)?;
                let contents = self.contents(&place, &input, &stat)?;
                if let Some(contents) = &contents {
                    file.size = contents.len() as u64;
                    file.data = None;
                }
                if self.checksum {
                    file.hash = Some(match &contents {
                        Some(contents) => *blake3::hash(contents).as_bytes(),
                        None => self.hash(&place, &mut input, file.size)?,
                    });
                }
                let attributes = self.attributes(&place, &input)?;
                if attributes.is_some() {
                    file.mode = PRIVATE_FILE;
                }
                let inode = Inode::from(&stat);
                if stat.st_nlink > 1 {
                    let index = u32::try_from(self.found.entries.len()).unwrap_or(u32::MAX);
                    self.seen.insert(inode, index);
                }
                let origin = Origin { place, inode, stamp: Stamp::of(&stat), contents };
                self.push((Entry { path, kind: Kind::File(file) }, attributes), Some(origin))
            }
            other => {
                let what = match other {
                    FileType::Fifo => "a pipe is not sent",
                    FileType::Socket => "a socket is not sent",
                    _ => "a device is not sent",
                };
                let (path, source) = (self.found.named.shown(&place), io::Error::other(what));
                Err(Error::Source { path, source })
            }
        }
    }

    /// Opens the file at a place, and gives its metadata; `found` are those of an earlier lookup.
    fn open(&mut self, place: &SourcePath, found: &Stat) -> Result<(File, Stat), Error> {
        let named = &self.found.named;
        if place.below().is_empty() {
            return Ok((named.open_file(place, Inode::from(found))?, *found));
        }
        let folder = open_in(&mut self.folder, named, &place.parent())?;
        let opened = beneath::open(folder, split(place.below()).1, READ);
        let file = opened.map_err(|errno| named.failed(place, errno))?;
        let stat = fstat(&file).map_err(|errno| named.failed(place, errno))?;
        if kind_of(&stat) != FileType::RegularFile {
            return Err(named.changed(place));
        }
        Ok((File::from(file), stat))
    }

    /// The entry of a folder.
    pub(super) fn directory(
        &mut self,
        location: &Location,
        stat: &Stat,
    ) -> Result<Described, Error> {
        let place = &location.place;
        let (mut mode, mut attributes) = (folder_permissions(stat), None);
        if self.is_archive {
            let folder = open_in(&mut self.folder, &self.found.named, place)?;
            let folder = beneath::open(folder, b"", OFlags::RDONLY | OFlags::DIRECTORY)
                .map_err(|errno| self.found.named.failed(place, errno))?;
            attributes = self.attributes(place, &folder)?;
            mode = PRIVATE_FOLDER;
        }
        let kind = Kind::Directory { mtime: mtime_of(stat), mode };
        Ok((Entry { path: location.target.clone(), kind }, attributes))
    }

    /// The attributes of an open file or folder, if these are sent.
    fn attributes(&self, place: &SourcePath, open: impl AsFd) -> Result<Option<Attributes>, Error> {
        if !self.is_archive {
            return Ok(None);
        }
        let failed = |source| Error::Source { path: self.found.named.shown(place), source };
        attributes::of(open).map(Some).map_err(failed)
    }

    fn link_target(&mut self, place: &SourcePath) -> Result<Vec<u8>, Error> {
        let name = OsStr::from_bytes(split(place.below()).1);
        let folder = open_in(&mut self.folder, &self.found.named, &place.parent())?;
        match readlinkat(folder, name, Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            // No link any more.
            Err(Errno::INVAL) => Err(self.found.named.changed(place)),
            Err(errno) => Err(self.found.named.failed(place, errno)),
        }
    }

    fn file(
        &self,
        place: &SourcePath,
        input: &mut File,
        stat: &Stat,
    ) -> Result<manifest::File, Error> {
        let named = &self.found.named;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let failed = |source| Error::Source { path: named.shown(place), source };
        let mut file = manifest::File {
            size,
            mtime: mtime_of(stat),
            mode: permissions(stat),
            hash: None,
            data: None,
        };
        // A file that allocates less than its size may have holes.
        if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size {
            file.data = data(input, size).map_err(failed)?;
            input.rewind().map_err(failed)?;
        }
        Ok(file)
    }

    /// The hash of a file's contents, as long as the file has a name and keeps its size.
    fn hash(&mut self, place: &SourcePath, file: &mut File, size: u64) -> Result<[u8; 32], Error> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; HASHED_AT_ONCE];
        loop {
            (self.budget)(0)?;
            let failed = |source| Error::Source { path: self.found.named.shown(place), source };
            let now = file.metadata().map_err(failed)?;
            if now.nlink() == 0 || now.len() != size {
                return Err(self.found.named.changed(place));
            }
            match file.read(&mut buffer).map_err(failed)? {
                0 => return Ok(*hasher.finalize().as_bytes()),
                length => hasher.update(&buffer[..length]),
            };
        }
    }
}
