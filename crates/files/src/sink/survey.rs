//! Compares a tree with what is there already: what must come, and what stands in the way.

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

use super::directory::{Directory, Parents, kind_of, mtime_of, permissions, split};
use super::large::part_names;
use super::staging::{Listing, Staged, Staging, name_prefix};
use crate::Error;

/// What a survey found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The files that must come, by their indices.
    pub(crate) wanted: BTreeSet<usize>,
    /// Small files that an earlier attempt left whole.
    pub(crate) staged: Vec<Staged>,
    /// What is to be staged without a byte of data: empty files, and files that are one hole.
    pub(crate) empty: Vec<usize>,
    /// Files whose contents are there, but with another mode or time.
    pub(crate) stale: Vec<usize>,
    /// Names in the staging folder of what an earlier attempt left, by path.
    pub(crate) listing: Listing,
}

impl Survey {
    /// Looks at what is there for each entry of `tree`. Changes nothing but leftovers in `staging`.
    ///
    /// # Errors
    /// If something stands in the way, or the disk is too small.
    pub(crate) fn new(
        directory: &Directory,
        staging: Option<&Staging>,
        tree: &Tree,
        wishes: Wishes,
    ) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        if let Some(staging) = staging {
            survey.listing = staging.listing()?;
        }
        let mut parents = Parents::new(directory);
        let (mut need, mut held) = (Bytes::ZERO, Bytes::ZERO);
        for (index, entry) in tree.entries().iter().enumerate() {
            let found = parents
                .stat(&entry.path)
                .map_err(|errno| in_the_way(directory, &entry.path, errno))?;
            if let Some(found) = &found {
                let is_there = match &entry.kind {
                    Kind::File(file) => {
                        !wishes.restart && is_same(directory, &entry.path, file, found)?
                    }
                    Kind::Directory { .. } => true,
                    Kind::Symlink { target, .. } => {
                        is_symlink_to(&mut parents, &entry.path, target)
                    }
                    Kind::HardLink { to } => {
                        let file = parents.stat(&tree.entries()[*to as usize].path);
                        file.ok().flatten().is_some_and(|file| same_inode(&file, found))
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
                    // What a crash between a name and the end left has no use any more.
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

    /// What is wanted, as ranges of entries; what lies between two wanted files and is none belongs
    /// to the range.
    pub(crate) fn ranges(&self, tree: &Tree) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let mut open = false;
        for (index, _) in tree.files() {
            let at = index as u64;
            match (self.wanted.contains(&index), ranges.last_mut().filter(|_| open)) {
                (true, Some(range)) => range.len = at + 1 - range.start,
                (true, None) => ranges.push(Range { start: at, len: 1 }),
                (false, _) => {}
            }
            open = self.wanted.contains(&index);
        }
        ranges
    }
}

/// Whether what is at `path` is the file that is to be sent: of the same size and time, or of the
/// same contents where the sender says their hash.
fn is_same(
    directory: &Directory,
    path: &[u8],
    file: &manifest::File,
    found: &Stat,
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
        match input.read(&mut buffer).map_err(failed)? {
            0 => return Ok(*hasher.finalize().as_bytes() == hash),
            length => hasher.update(&buffer[..length]),
        };
    }
}

/// Whether there is a symbolic link at `path` that says `target`.
pub(crate) fn is_symlink_to(parents: &mut Parents<'_>, path: &[u8], target: &[u8]) -> bool {
    let (above, name) = split(path);
    let found = parents
        .folder(above, false)
        .and_then(|above| readlinkat(above, OsStr::from_bytes(name), Vec::new()));
    found.is_ok_and(|found| found.as_bytes() == target)
}

/// Whether both are the same file.
pub(crate) fn same_inode(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// Whether an entry can take the place of what is there.
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

/// What it means that a path cannot be looked up.
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
