//! One process at a time writes into a folder of results.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::ResultsError;

/// Holds a folder until it is dropped, or the process ends in any way.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    pub(super) fn new(folder: &Path) -> Result<FolderLock, ResultsError> {
        let path = folder.join("lock");
        let failed = |source| ResultsError::Folder { path: folder.to_owned(), source };
        let file =
            File::options().create(true).truncate(false).write(true).open(path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(FolderLock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(ResultsError::InUse(folder.to_owned())),
            Err(error) => Err(failed(error.into())),
        }
    }
}
