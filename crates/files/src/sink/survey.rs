//! Compares a tree with the receiving directory: the files that must be sent, and the entries that
//! are in the way.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Stat, readlinkat};
use rustix::io::Errno;
use transfer::Tree;
use units::Bytes;
use wire::frame::{Range, Wishes};
use wire::manifest::{self, Kind};

use super::directory::{Directory, Parents, kind_of};
use super::large::part_names;
use super::staging::{Listing, Staged, Staging, name_prefix};
use crate::Error;
use crate::beneath::{Inode, mtime_of, permissions, split};
use crate::blocking::Wanted;

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Indices of the files that must be sent.
    pub(crate) wanted: BTreeSet<usize>,
    /// Small files that an earlier attempt staged completely.
    pub(crate) staged: Vec<Staged>,
    /// Files to be staged without any data: empty files, and files that are one hole.
    pub(crate) empty: Vec<usize>,
    /// Files whose contents are up to date, but not their mode or time.
    pub(crate) stale: Vec<usize>,
    /// Names in the staging folder that an earlier attempt left.
    pub(crate) listing: Listing,
}

impl Survey {
    /// Compares each entry of `tree` with the directory, as long as the result is `wanted`. Changes
    /// nothing but leftovers in `staging`.
    ///
    /// # Errors
    /// If an existing entry is in the way, or the disk is too small.
    pub(crate) fn new(
        directory: &Directory,
        staging: Option<&Staging>,
        tree: &Tree,
        wishes: Wishes,
        wanted: &Wanted,
    ) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        if let Some(staging) = staging {
            survey.listing = staging.listing()?;
        }
        let mut parents = Parents::new(directory);
        let (mut need, mut held) = (Bytes::ZERO, Bytes::ZERO);
        for (index, entry) in tree.entries().iter().enumerate() {
            wanted.check()?;
            let found = parents
                .stat(&entry.path)
                .map_err(|errno| in_the_way(directory, &entry.path, errno))?;
            if let Some(found) = &found {
                let is_there = match &entry.kind {
                    Kind::File(file) => {
                        !wishes.restart && is_same(directory, &entry.path, file, found, wanted)?
                    }
                    Kind::Directory { .. } => true,
                    Kind::Symlink { target, .. } => {
                        is_symlink_to(&mut parents, &entry.path, target)
                    }
                    Kind::HardLink { to } => {
                        let file = parents.stat(&tree.entries()[*to as usize].path);
                        file.ok().flatten().is_some_and(|file| Inode::from(&file) == found.into())
                    }
                };
                check_replaceable(
                    directory,
                    &entry.path,
                    &entry.kind,
                    found,
                    is_there || wishes.overwrite,
                )?;
                if is_there {
                    // Leftovers of a crash after the file got its name are of no use.
                    if let Some(staging) = staging
                        && !survey.listing.is_empty()
                        && let Some(left) = survey.listing.get(&name_prefix(&entry.path))
                    {
                        for name in left {
                            staging.remove(name);
                        }
                    }
                    if let Kind::File(file) = &entry.kind
                        && (permissions(found) != file.mode & 0o777
                            || mtime_of(found) != file.mtime)
                    {
                        survey.stale.push(index);
                    }
                    continue;
                }
            }
            let Kind::File(file) = &entry.kind else { continue };
            if file.data_len() == 0 {
                survey.empty.push(index);
                continue;
            }
            let left = staging.filter(|_| !wishes.restart);
            if file.data_len() <= transfer::BLOCK
                && let Some(staged) = left
                    .and_then(|staging| staging.resume(&survey.listing, index, &entry.path, file))
            {
                survey.staged.push(staged);
                continue;
            }
            survey.wanted.insert(index);
            need += Bytes(file.data_len());
            if let Some(staging) = staging
                && !survey.listing.is_empty()
            {
                held += staging.allocated_bytes(&part_names(&entry.path).0);
            }
        }
        let free = directory.free()?;
        if need > free + held {
            return Err(Error::NoSpace { path: directory.shown(b""), need, free });
        }
        Ok(survey)
    }

    /// The files that are made here, those without data included, as ranges of entries. Entries
    /// between two of them that are no files belong to the range.
    pub(crate) fn ranges(&self, tree: &Tree) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let mut open = false;
        let is_made =
            |index: &usize| self.wanted.contains(index) || self.empty.binary_search(index).is_ok();
        for (index, _) in tree.files() {
            let at = index as u64;
            match (is_made(&index), ranges.last_mut().filter(|_| open)) {
                (true, Some(range)) => range.len = at + 1 - range.start,
                (true, None) => ranges.push(Range { start: at, len: 1 }),
                (false, _) => {}
            }
            open = is_made(&index);
        }
        ranges
    }
}

/// Whether the file at `path` is the one to be sent: of the same size and time, or of the same
/// contents if the sender gives a hash.
fn is_same(
    directory: &Directory,
    path: &[u8],
    file: &manifest::File,
    found: &Stat,
    wanted: &Wanted,
) -> Result<bool, Error> {
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile
        || u64::try_from(found.st_size) != Ok(file.size)
    {
        return Ok(false);
    }
    let Some(hash) = file.hash else { return Ok(mtime_of(found) == file.mtime) };
    let failed = |source| directory.failed("read", path, source);
    let Some(mut input) = directory.file(path).map_err(failed)? else { return Ok(false) };
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        wanted.check()?;
        match input.read(&mut buffer).map_err(failed)? {
            0 => return Ok(*hasher.finalize().as_bytes() == hash),
            length => hasher.update(&buffer[..length]),
        };
    }
}

/// Whether there is a symbolic link to `target` at `path`.
pub(crate) fn is_symlink_to(parents: &mut Parents<'_>, path: &[u8], target: &[u8]) -> bool {
    let (above, name) = split(path);
    let found = parents
        .folder(above, false)
        .and_then(|above| readlinkat(above, OsStr::from_bytes(name), Vec::new()));
    found.is_ok_and(|found| found.as_bytes() == target)
}

/// Checks that an entry may replace the existing one.
fn check_replaceable(
    directory: &Directory,
    path: &[u8],
    kind: &Kind,
    found: &Stat,
    may_replace: bool,
) -> Result<(), Error> {
    let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let wants_folder = matches!(kind, Kind::Directory { .. });
    if is_folder != wants_folder {
        let what = if wants_folder { "a folder" } else { "a file or link" };
        return Err(Error::InTheWay { path: directory.shown(path), what, found: kind_of(found) });
    }
    if may_replace { Ok(()) } else { Err(Error::Exists { path: directory.shown(path) }) }
}

/// The error for a path that cannot be looked up.
pub(crate) fn in_the_way(directory: &Directory, path: &[u8], errno: Errno) -> Error {
    let (above, _) = split(path);
    match errno {
        Errno::LOOP => Error::InTheWay {
            path: directory.shown(above),
            what: "a folder",
            found: "a symbolic link",
        },
        Errno::NOTDIR => Error::InTheWay {
            path: directory.shown(above),
            what: "a folder",
            found: "something else",
        },
        errno => directory.failed("look at", path, errno),
    }
}
