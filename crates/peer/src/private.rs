//! Files that only their owner may read, or may change: keys, and lists of trusted keys.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};

/// What other users may not do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Read or change it.
    Secret,
    /// Change it.
    Trusted,
}

const READ: u32 = 0o044;
const WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Checks that the open file at `path` belongs to this user or to root, that other users may not
/// read or change it, and that they may not put another one in its place.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`], with the reason and the command that mends it.
pub fn check_private(file: &File, path: &Path, guard: Guard) -> io::Result<()> {
    check(&file.metadata()?, path, guard)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let metadata = folder.metadata()?;
    // In a folder like /tmp only the owner of a name may change it.
    if metadata.mode() & STICKY != 0 { Ok(()) } else { check(&metadata, folder, Guard::Trusted) }
}

fn check(metadata: &Metadata, path: &Path, guard: Guard) -> io::Result<()> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let (mode, owner) = (metadata.mode(), metadata.uid());
    if owner != 0 && owner != geteuid().as_raw() {
        return refused(format!(
            "{} belongs to user {owner}, who may change it: give it to user {} with chown, or \
             remove it",
            path.display(),
            geteuid().as_raw()
        ));
    }
    let is_secret = guard == Guard::Secret;
    let what = if mode & WRITE != 0 {
        "change"
    } else if is_secret && mode & READ != 0 {
        "read"
    } else {
        return Ok(());
    };
    let mend = if is_secret { "go-rwx" } else { "go-w" };
    let path = path.display();
    refused(format!(
        "others may {what} {path} (mode {:o}): check that nobody did, and forbid it with 'chmod \
         {mend} {path}'",
        mode & 0o777
    ))
}

/// Forbids other processes of this user to read this one's memory, and the kernel to write it to a
/// core file. Root still may.
///
/// # Errors
/// The kernel's, if it refuses.
pub fn forbid_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
