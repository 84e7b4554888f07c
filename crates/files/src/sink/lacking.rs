//! What a file system lacks, and other ways to the same end. FAT, exFAT, NFS, CIFS, 9p and file
//! systems of programs (FUSE) each lack some system calls or flags, and so do containers whose
//! filters forbid them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use rustix::fs::{
    AtFlags, FlockOperation, RenameFlags, flock, fsync, linkat, renameat, renameat_with, statat,
    sync, syncfs, unlinkat,
};
use rustix::io::Errno;

/// Whether an error says that there is no such operation here, rather than that it failed.
pub(super) fn lacks(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::PERM
            | Errno::NOLCK
            | Errno::NOTTY
            | Errno::OVERFLOW
    )
}

/// Whether an error says that no entry of a file system can have such a name.
pub(super) fn is_no_name(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::ILSEQ | Errno::NAMETOOLONG)
}

/// Whether an operation was done; `false` if it is lacking.
///
/// # Errors
/// All others.
pub(super) fn if_possible(done: Result<(), Errno>) -> Result<bool, Errno> {
    match done {
        Ok(()) => Ok(true),
        Err(errno) if lacks(errno) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes or releases a lock; nothing keeps others out where there are no locks.
///
/// # Errors
/// `EWOULDBLOCK` if another process has it.
pub(super) fn lock(fd: impl AsFd, operation: FlockOperation) -> Result<(), Errno> {
    match flock(fd, operation) {
        // NFS locks for writing only what is open for that.
        Err(Errno::BADF) => Ok(()),
        locked => if_possible(locked).map(drop),
    }
}

/// Syncs a folder; where that is lacking, the file system keeps its own order.
pub(super) fn sync_folder(folder: impl AsFd) -> Result<(), Errno> {
    if_possible(fsync(folder)).map(drop)
}

/// Syncs the data and the metadata of a file; where that is lacking, everything.
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    if !if_possible(fsync(file))? {
        sync();
    }
    Ok(())
}

/// Syncs the data of a file; where that is lacking, everything.
pub(super) fn sync_data(file: &File) -> io::Result<()> {
    match file.sync_data() {
        Err(error) if Errno::from_io_error(&error).is_some_and(lacks) => {
            sync();
            Ok(())
        }
        synced => synced,
    }
}

/// Syncs the file system that `fd` is on; where that is lacking, all of them.
pub(super) fn sync_all(fd: impl AsFd) -> Result<(), Errno> {
    if !if_possible(syncfs(fd))? {
        sync();
    }
    Ok(())
}

/// Held with the lock of a folder, which does not keep threads of its own process out.
static RENAMING: Mutex<()> = Mutex::new(());

/// Gives the file `from` the name `to` in another folder, unless that name is taken. Where no call
/// does that in one step, it is linked and unlinked, or looked for and renamed while the lock of
/// the folder `root` keeps other transfers out. Not `by_link` over FUSE, which hides a file that is
/// unlinked while it is open.
///
/// # Errors
/// `EEXIST` if the name is taken.
pub(super) fn rename_new(
    (above, from): (&OwnedFd, &str),
    (below, to): (&OwnedFd, &OsStr),
    root: &OwnedFd,
    by_link: bool,
) -> Result<(), Errno> {
    if if_possible(renameat_with(above, from, below, to, RenameFlags::NOREPLACE))? {
        return Ok(());
    }
    if by_link {
        match linkat(above, from, below, to, AtFlags::empty()) {
            Ok(()) => return unlinkat(above, from, AtFlags::empty()),
            Err(errno) if lacks_links(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    let _turn = RENAMING.lock().expect("no panic while held");
    lock(root, FlockOperation::LockExclusive)?;
    let renamed = match statat(below, to, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => renameat(above, from, below, to),
        Err(errno) => Err(errno),
    };
    lock(root, FlockOperation::Unlock)?;
    renamed
}

/// Whether an error of `linkat` says that there are no hard links here, or no more of this file.
pub(super) fn lacks_links(errno: Errno) -> bool {
    lacks(errno) || matches!(errno, Errno::MLINK | Errno::XDEV | Errno::ACCESS)
}
