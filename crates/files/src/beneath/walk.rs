//! A lookup component by component, where the kernel has no `openat2` or a filter of system calls
//! forbids it. Each component is opened below the one before without following a link, so that no
//! rename and no link that is swapped in meanwhile leads elsewhere.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::Links;

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Opens what is at `path` below `folder`; the errors are those of `openat2`.
pub(super) fn open(
    folder: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let mut lookup = Lookup { folder, above: Vec::new(), todo: Vec::new(), flags, followed: 0 };
    lookup.push(path)?;
    while let Some(name) = lookup.todo.pop() {
        match &name[..] {
            b"." => {}
            // What a folder was found in, wherever it was moved since.
            b".." => drop(lookup.above.pop().ok_or(Errno::XDEV)?),
            name => {
                if let Some(found) = lookup.enter(name, links)? {
                    return Ok(found);
                }
            }
        }
    }
    openat(lookup.here(), c".", lookup.flags | OFlags::CLOEXEC, Mode::empty())
}

struct Lookup<'a> {
    /// No component leads out of it.
    folder: BorrowedFd<'a>,
    /// The folders on the way, the latest last.
    above: Vec<OwnedFd>,
    /// The components that are left, the next one last.
    todo: Vec<Vec<u8>>,
    flags: OFlags,
    followed: usize,
}

impl Lookup<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.above.last().map_or(self.folder, |folder| folder.as_fd())
    }

    /// Adds the components of a path in front of those that are left. Nothing behind a slash stands
    /// for the folder in front of it.
    fn push(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.starts_with(b"/") {
            return Err(Errno::XDEV);
        }
        let components = path.split(|&byte| byte == b'/').rev();
        let named = components.map(|name| if name.is_empty() { b"." } else { name });
        self.todo.extend(named.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Goes into a folder, or follows a link. Returns what was looked for, if this is the last
    /// component and no link.
    fn enter(&mut self, name: &[u8], links: Links) -> Result<Option<OwnedFd>, Errno> {
        let is_last = self.todo.is_empty();
        let flags = if is_last { self.flags } else { OFlags::PATH | OFlags::DIRECTORY };
        let opened =
            openat(self.here(), name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        match opened {
            // A link that is looked at, and not followed.
            Ok(found) if is_last && flags.contains(OFlags::NOFOLLOW) => return Ok(Some(found)),
            Ok(found) if !is_link(fstat(&found)?.st_mode) => {
                if is_last {
                    return Ok(Some(found));
                }
                self.above.push(found);
                return Ok(None);
            }
            Err(Errno::LOOP) if is_last && flags.contains(OFlags::NOFOLLOW) => {
                return Err(Errno::LOOP);
            }
            // A link; with O_DIRECTORY, something that is no folder.
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => {}
            Err(errno) => return Err(errno),
        }
        let found = statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_link(found.st_mode) {
            return Err(Errno::NOTDIR);
        }
        self.followed += 1;
        if links == Links::Never || self.followed > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        // The link may be another one than the one that was found: it is not followed outside.
        let target = readlinkat(self.here(), name, Vec::new())?;
        self.push(target.as_bytes())?;
        Ok(None)
    }
}

fn is_link(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::Symlink
}
