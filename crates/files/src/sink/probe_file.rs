//! A file that is there to show what the file system does.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, unlinkat};

/// The beginning of such files' names.
pub(super) const PROBE: &str = "probe";

/// A file that shows what the file system does with it; removed on drop.
pub(super) struct Probe {
    pub(super) folder: OwnedFd,
    pub(super) name: String,
    /// Closed before it is removed: FUSE and NFS keep what is open, under another name.
    pub(super) file: Option<File>,
}

impl Probe {
    pub(super) fn file(&self) -> &File {
        self.file.as_ref().expect("it is open until it is dropped")
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.file = None;
        let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
    }
}
