//! Whether a file is as it was.

use rustix::fs::Stat;

use crate::beneath::mtime_of;

/// Attributes that change when a file's contents change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(super) size: i64,
    mtime: i64,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Stamp {
        // Not the change time: renames and links change it too.
        Stamp { size: stat.st_size, mtime: mtime_of(stat) }
    }
}
