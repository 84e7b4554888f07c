//! Times as the system takes them.

use rustix::fs::{Timespec, Timestamps};

/// Access and modification time, both set to `mtime`.
pub(crate) fn timestamps(mtime: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime.div_euclid(1_000_000_000),
        tv_nsec: mtime.rem_euclid(1_000_000_000) as _,
    };
    Timestamps { last_access: time, last_modification: time }
}
