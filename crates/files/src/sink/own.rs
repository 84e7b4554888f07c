//! Whether the staging folder is this process's own. In a receiving folder that others may write to
//! another user may have made it, or may be able to change what is in it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, unlinkat};
use rustix::process::geteuid;

use crate::beneath::permissions;

/// The owner and the mode of a file or folder.
#[derive(Clone, Copy)]
struct Rights {
    owner: u32,
    mode: u16,
}

impl From<Stat> for Rights {
    fn from(stat: Stat) -> Rights {
        Rights { owner: stat.st_uid, mode: permissions(&stat) }
    }
}

/// The permission of others to change what is in a folder.
const OTHERS_WRITE: u16 = 0o022;

/// Checks that nobody but this process's user, and root, can change what is in `folder`. Returns
/// the owner of the files that this process makes there.
///
/// # Errors
/// What is wrong with the folder, and what to do.
pub(super) fn check(folder: &OwnedFd) -> io::Result<u32> {
    let found = Rights::from(fstat(folder)?);
    let private = Rights { owner: geteuid().as_raw(), mode: 0o600 };
    let judged = match judge(found, private) {
        // Some file systems give everything one owner or one mode, also what is made now.
        Err(wrong) => probe(folder).map_or(Err(wrong), |probe| judge(found, probe)),
        fine => fine,
    };
    judged.map(|()| found.owner).map_err(|wrong| {
        let text = format!("{wrong}; another user may have prepared it: remove it");
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    })
}

/// Compares a folder with a file that this process made for itself.
fn judge(found: Rights, own: Rights) -> Result<(), String> {
    let Rights { owner, mode } = found;
    if owner != own.owner {
        return Err(format!("it belongs to user {owner}, and this process is user {}", own.owner));
    }
    if mode & OTHERS_WRITE & !own.mode != 0 {
        return Err(format!("others than its owner may change what is in it (mode {mode:04o})"));
    }
    Ok(())
}

/// The rights of a new file in `folder`, which is removed again.
fn probe(folder: &OwnedFd) -> io::Result<Rights> {
    let name = format!("probe-{}", std::process::id());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
    unlinkat(folder, &name, AtFlags::empty())?;
    Ok(fstat(file)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_compared_with_what_is_made_there() {
        let rights = |owner, mode| Rights { owner, mode };
        let private = rights(1_000, 0o600);
        for mode in [0o700, 0o755, 0o711, 0o500] {
            assert_eq!(judge(rights(1_000, mode), private), Ok(()), "{mode:o}");
        }
        for mode in [0o720, 0o702, 0o777] {
            assert!(judge(rights(1_000, mode), private).is_err(), "{mode:o}");
        }
        assert!(judge(rights(0, 0o700), private).is_err());
        // A file system without modes, and one without owners.
        assert_eq!(judge(rights(1_000, 0o777), rights(1_000, 0o777)), Ok(()));
        assert!(judge(rights(1_000, 0o777), rights(1_000, 0o755)).is_err());
        assert_eq!(judge(rights(65_534, 0o700), rights(65_534, 0o600)), Ok(()));
    }
}
