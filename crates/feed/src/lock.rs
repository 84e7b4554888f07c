//! Folders that one process has at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// Makes the folder, which nobody else may read, and takes it, as long as the file is open.
///
/// # Errors
/// The system's; [`io::ErrorKind::WouldBlock`], if another process has it.
pub(crate) fn lock_folder(folder: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600);
    let lock = lock.open(folder.join("lock"))?;
    lock_file(&lock)?;
    Ok(lock)
}

/// Takes a file that is open, for all who have it open in the same way: programs that inherit it,
/// too.
///
/// # Errors
/// As [`lock_folder`].
pub(crate) fn lock_file(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}
