//! Compares a tree with the receiving directory: the files that must be sent, and the entries that
//! are in the way.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Stat, readlinkat};
use rustix::io::Errno;
use transfer::Tree;
use units::Bytes;
use wire::files::{Range, Wishes};
use wire::manifest::{self, Entry, Kind};

use super::archive::{Comparison, Difference};
use super::directory::{Directory, Parents, kind_of};
use super::lacking::is_no_name;
use super::large::part_names;
use super::mirror::Mirror;
use super::probe::LARGEST_OF_FAT;
use super::settle::AtEnd;
use super::staging::{Listing, Staged, Staging, name_prefix};
use crate::Error;
use crate::beneath::{Inode, mtime_of, permissions, split};
use crate::blocking::Wanted;

/// Whether the file system can have an entry.
fn can_have(directory: &Directory, staging: &Staging, entry: &Entry) -> bool {
    let is_too_large = match &entry.kind {
        Kind::File(file) if !file.is_stream() && file.size > LARGEST_OF_FAT => {
            // Without room for its data, that is what is said.
            let has_room = directory.free().is_ok_and(|free| Bytes(file.data_len()) <= free);
            has_room && !staging.takes_size(file.size)
        }
        _ => false,
    };
    !is_too_large && staging.takes(split(&entry.path).1)
}

/// What a transfer makes of an entry of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is new.
    Created,
    /// It takes the place of another one.
    Replaced,
    /// Another one is there and stays, as `--ignore-existing` or `--update` want it.
    Kept,
    /// It is there already; mode and time may have to be set.
    Same,
    /// It is there already, but for owner, mode or extended attributes.
    Updated,
}

/// A number of entries, and the bytes of those that are files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) entries: usize,
    pub(crate) bytes: Bytes,
}

/// What a transfer does to the receiving folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) created: Tally,
    pub(crate) replaced: Tally,
    pub(crate) kept: Tally,
    pub(crate) deleted: Tally,
    pub(crate) updated: Tally,
}

impl Tally {
    fn add(&mut self, bytes: Bytes) {
        self.entries += 1;
        self.bytes += bytes;
    }
}

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Indices of the files that must be sent.
    pub(crate) wanted: BTreeSet<usize>,
    /// Small files that an earlier attempt staged completely.
    pub(crate) staged: Vec<Staged>,
    /// Files to be staged without any data: empty files, and files that are one hole.
    pub(crate) empty: Vec<usize>,
    /// What becomes of each entry of the tree.
    pub(crate) fates: Vec<Fate>,
    /// What remains to be done once all files have their names.
    pub(crate) at_end: AtEnd,
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
        mirror: Option<&Mirror>,
        wanted: &Wanted,
    ) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        if let Some(staging) = staging {
            survey.listing = staging.listing()?;
        }
        let mut parents = Parents::new(directory);
        let comparison = Comparison::new(directory, tree, staging);
        // Where large letters are small ones, two entries may be one file.
        let is_caseless = staging.is_some_and(Staging::is_caseless);
        let mut seen = HashSet::new();
        let (mut need, mut held) = (Bytes::ZERO, Bytes::ZERO);
        for (index, entry) in tree.entries().iter().enumerate() {
            wanted.check()?;
            let found = parents.stat(&entry.path);
            let is_folder = matches!(entry.kind, Kind::Directory { .. });
            let is_taken = is_caseless && !is_folder && !seen.insert(in_small_letters(&entry.path));
            survey.fates.push(Fate::Created);
            // Nothing can have that name or that size here, or another entry has the name; it is
            // said at the end.
            let has_none = match &found {
                Ok(None) => staging.is_some_and(|staging| !can_have(directory, staging, entry)),
                Ok(Some(_)) => false,
                Err(errno) => is_no_name(*errno),
            };
            if is_taken || has_none {
                survey.fates[index] = Fate::Kept;
                survey.at_end.kept.insert(index);
                survey.at_end.nameless.insert(index);
                continue;
            }
            let found = found.map_err(|errno| in_the_way(directory, &entry.path, errno))?;
            if let Some(found) = &found {
                let is_there = is_there(&comparison, &mut parents, entry, found, wishes, wanted)?;
                check_kind(directory, &entry.path, &entry.kind, found)?;
                let is_folder = matches!(entry.kind, Kind::Directory { .. });
                let is_left = wishes.keep_existing && !is_folder;
                let difference = if is_there && !is_left {
                    comparison.of(&mut parents, index, found)?
                } else {
                    Difference::None
                };
                let is_there = is_there && difference != Difference::SendAgain;
                let fate = if is_there && difference == Difference::InPlace {
                    survey.at_end.updated.insert(index);
                    Fate::Updated
                } else if is_there {
                    Fate::Same
                } else if !may_replace(wishes, tree, entry, found) {
                    Fate::Kept
                } else if wishes.overwrite || wishes.update {
                    Fate::Replaced
                } else {
                    return Err(Error::Exists { path: directory.shown(&entry.path) });
                };
                survey.fates[index] = fate;
                if matches!(fate, Fate::Same | Fate::Updated | Fate::Kept) {
                    remove_leftovers(staging, &survey.listing, &entry.path);
                    if fate == Fate::Kept || is_left {
                        survey.at_end.kept.insert(index);
                    } else if let Kind::File(file) = &entry.kind
                        && (fate == Fate::Updated
                            || tree.attributes(index).is_none()
                                && permissions(found) != file.mode & 0o777
                            || !comparison.times.is_kept(file.mtime, mtime_of(found)))
                    {
                        survey.at_end.stale.push((index, found.into()));
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
            // The size of a stream shows as it grows.
            if !file.is_stream() {
                need += Bytes(file.data_len());
            }
            if let Some(staging) = staging
                && !survey.listing.is_empty()
            {
                held += staging.allocated_bytes(&part_names(&entry.path).0);
            }
        }
        directory.need(Bytes(need.0.saturating_sub(held.0)))?;
        if let Some(mirror) = mirror {
            survey.at_end.doomed = mirror.find(directory, tree, wanted)?;
        }
        Ok(survey)
    }

    /// The entries with this fate, in order.
    pub(crate) fn of_fate(&self, fate: Fate) -> impl Iterator<Item = usize> + '_ {
        let all = self.fates.iter().enumerate();
        all.filter(move |(_, of)| **of == fate).map(|(index, _)| index)
    }

    /// The comparison of `tree` with a folder that does not exist.
    pub(crate) fn of_nothing(tree: &Tree) -> Survey {
        let with_data = tree.files().filter(|(_, file)| file.data_len() > 0);
        Survey {
            wanted: with_data.map(|(index, _)| index).collect(),
            fates: vec![Fate::Created; tree.entries().len()],
            ..Survey::default()
        }
    }

    /// What the transfer does to the receiving folder. Folders, and files that are the same, do not
    /// count unless they are new or deleted.
    pub(crate) fn changes(&self, tree: &Tree) -> Changes {
        let mut changes = Changes::default();
        for (index, fate) in self.fates.iter().enumerate() {
            let bytes = tree.file(index).map_or(Bytes::ZERO, |file| Bytes(file.size));
            match fate {
                Fate::Created => changes.created.add(bytes),
                Fate::Replaced => changes.replaced.add(bytes),
                Fate::Kept => changes.kept.add(bytes),
                Fate::Updated => changes.updated.add(bytes),
                Fate::Same => {}
            }
        }
        self.at_end.doomed.iter().for_each(|doomed| changes.deleted.add(doomed.size));
        changes
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

/// Whether an entry is there already, so that nothing need be sent for it: what is found is the
/// file or the link, or a folder.
fn is_there(
    comparison: &Comparison<'_>,
    parents: &mut Parents<'_>,
    entry: &Entry,
    found: &Stat,
    wishes: Wishes,
    wanted: &Wanted,
) -> Result<bool, Error> {
    Ok(match &entry.kind {
        Kind::File(file) => {
            !wishes.restart && is_same(&entry.path, file, found, comparison, wanted)?
        }
        Kind::Directory { .. } => true,
        Kind::Symlink { target, .. } => is_symlink_to(parents, &entry.path, target),
        Kind::HardLink { to } => {
            let to = *to as usize;
            let file = parents.stat(&comparison.tree.entries()[to].path).ok().flatten();
            let is_copy = || {
                let file = comparison.tree.file(to).filter(|_| !comparison.has_links);
                file.is_some_and(|file| comparison.has_size_and_time(file, found))
            };
            file.is_some_and(|file| Inode::from(&file) == found.into()) || is_copy()
        }
    })
}

/// Whether the file at `path` is the one to be sent: of the same size and time, or of the same
/// contents if the sender gives a hash.
fn is_same(
    path: &[u8],
    file: &manifest::File,
    found: &Stat,
    comparison: &Comparison<'_>,
    wanted: &Wanted,
) -> Result<bool, Error> {
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile
        || u64::try_from(found.st_size) != Ok(file.size)
    {
        return Ok(false);
    }
    let Some(hash) = file.hash else { return Ok(comparison.has_size_and_time(file, found)) };
    let failed = |source| comparison.directory.failed("read", path, source);
    let Some(mut input) = comparison.directory.file(path).map_err(failed)? else {
        return Ok(false);
    };
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

/// A path as a file system sees it that does not tell large letters from small ones, or nearly so.
fn in_small_letters(path: &[u8]) -> String {
    String::from_utf8_lossy(path).to_lowercase()
}

/// Removes what a crash after the file at `path` got its name has left: it is of no use.
fn remove_leftovers(staging: Option<&Staging>, listing: &Listing, path: &[u8]) {
    if let Some(staging) = staging
        && !listing.is_empty()
        && let Some(left) = listing.get(&name_prefix(path))
    {
        for name in left {
            staging.remove(name);
        }
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

/// Whether the wishes let an entry take the place of another one, as far as they say anything
/// about what is there.
pub(crate) fn may_replace(wishes: Wishes, tree: &Tree, entry: &Entry, found: &Stat) -> bool {
    if wishes.keep_existing || !wishes.update {
        return !wishes.keep_existing;
    }
    let mtime = match &entry.kind {
        Kind::File(file) => Some(file.mtime),
        Kind::Symlink { mtime, .. } => Some(*mtime),
        Kind::HardLink { to } => tree.file(*to as usize).map(|file| file.mtime),
        Kind::Directory { .. } => None,
    };
    mtime.is_none_or(|mtime| mtime_of(found) < mtime)
}

/// Checks that a folder is where a folder belongs, and only there, and nowhere a device, socket or
/// pipe.
fn check_kind(directory: &Directory, path: &[u8], kind: &Kind, found: &Stat) -> Result<(), Error> {
    let found_kind = FileType::from_raw_mode(found.st_mode);
    let is_folder = found_kind == FileType::Directory;
    let wants_folder = matches!(kind, Kind::Directory { .. });
    let is_special =
        !matches!(found_kind, FileType::Directory | FileType::RegularFile | FileType::Symlink);
    if is_folder != wants_folder || is_special {
        let what = if wants_folder { "a folder" } else { "a file or link" };
        return Err(Error::InTheWay { path: directory.shown(path), what, found: kind_of(found) });
    }
    Ok(())
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
