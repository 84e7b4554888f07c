//! Lookups beneath a folder's descriptor, whatever another process does to the folder meanwhile:
//! by `openat2`, or where that is missing or forbidden, component by component (`beneath/walk.rs`).

#[cfg(test)]
mod tests;
mod walk;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

/// Attempts at a lookup that a concurrent rename disturbs.
const ATTEMPTS: usize = 32;

/// The symbolic links that a lookup follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Links {
    /// None.
    Never,
    /// Those that lead to something below the folder.
    Beneath,
}

impl Links {
    fn resolve(self) -> ResolveFlags {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match self {
            Links::Never => within | ResolveFlags::NO_SYMLINKS,
            Links::Beneath => within,
        }
    }
}

/// Opens what is at `path` below `folder`, or the folder itself if `path` is empty, through no
/// symbolic link. Nothing is made: `flags` have no `O_CREAT`.
///
/// # Errors
/// Those of `openat2`: `ELOOP` for a link, `EXDEV` for a path that leads out of the folder.
pub(crate) fn open(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    look_up(folder, path, flags, Links::Never)
}

/// The same through links that lead to something below `folder`.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_within(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    look_up(folder, path, flags, Links::Beneath)
}

fn look_up(folder: impl AsFd, path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
    if !has_openat2() {
        return walk::open(folder.as_fd(), path, flags, links);
    }
    let path = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
    let flags = flags | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS {
        match openat2(folder.as_fd(), path, flags, Mode::empty(), links.resolve()) {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// Whether this process may use `openat2`. Linux has it since version 5.6; systemd's
/// `RestrictSUIDSGID=` and the filters of containers answer `ENOSYS` or `EPERM`.
fn has_openat2() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let tried = openat2(CWD, c".", flags, Mode::empty(), ResolveFlags::empty());
        !matches!(tried, Err(Errno::NOSYS | Errno::PERM))
    })
}

/// The names in a folder that is open for reading, in order.
pub(crate) fn names(folder: OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::new(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The first symbolic link on the way to `path`.
pub(crate) fn first_link(folder: impl AsFd, path: &[u8]) -> Option<&[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes
        .chain([path.len()])
        .map(|end| &path[..end])
        .find(|path| open(folder.as_fd(), path, OFlags::PATH).err() == Some(Errno::LOOP))
}

/// The last folder that was looked up: the entries of a tree come folder by folder.
#[derive(Default)]
pub(crate) struct LastFolder(Option<(Vec<u8>, OwnedFd)>);

impl LastFolder {
    /// The folder at `path`; opened if it is not the last one.
    pub(crate) fn get_or_open<E>(
        &mut self,
        path: &[u8],
        open: impl FnOnce() -> Result<OwnedFd, E>,
    ) -> Result<&OwnedFd, E> {
        if self.0.as_ref().is_none_or(|(last, _)| last != path) {
            // Closed first: only one is held.
            self.0 = None;
            self.0 = Some((path.to_vec(), open()?));
        }
        Ok(&self.0.as_ref().expect("it was just set").1)
    }
}

/// The identity of a file, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl From<&Stat> for Inode {
    fn from(stat: &Stat) -> Inode {
        Inode { device: stat.st_dev, number: stat.st_ino }
    }
}

/// A path's folder and its last component.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Modification time in nanoseconds since 1970.
pub(crate) fn mtime_of(stat: &Stat) -> i64 {
    nanos(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

/// Time of the last change of the inode in nanoseconds since 1970.
pub(crate) fn ctime_of(stat: &Stat) -> i64 {
    nanos(stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0))
}

fn nanos(seconds: i64, more: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(more)
}

/// The permission bits of a folder that a transfer carries: with the set-group-id bit, which makes
/// what is in it belong to its group, and the sticky bit.
pub(crate) fn folder_permissions(stat: &Stat) -> u16 {
    u16::try_from(stat.st_mode & u32::from(FOLDER_BITS)).expect("ten bits")
}

/// The bits of a folder's mode that a transfer carries.
pub(crate) const FOLDER_BITS: u16 = 0o3777;

/// The permission bits of a file that a transfer carries: no set-user-id, set-group-id or sticky
/// bit.
pub(crate) fn permissions(stat: &Stat) -> u16 {
    u16::try_from(stat.st_mode & 0o777).expect("nine bits")
}
