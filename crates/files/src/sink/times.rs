//! Times of modification as the target keeps them: file systems have nanoseconds, whole seconds or
//! two of them, and their own first and last year.

use std::fs::File;

use rustix::fs::{fstat, futimens};

use super::probe_file::Probe;
use super::timestamps::timestamps;
use crate::beneath::mtime_of;

/// The times that a file system keeps, learnt from a file that is there for that.
pub(super) struct KeptTimes(Option<Probe>);

/// The coarsest times in use are FAT's, of two seconds.
const COARSEST: i64 = 2_000_000_000;

impl KeptTimes {
    /// Of the file system of `probe`, whose times may be set; without it, of one that is not known.
    pub(super) fn new(probe: Option<Probe>) -> KeptTimes {
        KeptTimes(probe)
    }

    /// Whether `found` is what the file system keeps of the time `wanted`.
    pub(super) fn is_kept(&self, wanted: i64, found: i64) -> bool {
        if wanted == found {
            return true;
        }
        match &self.0 {
            Some(probe) => kept(probe.file(), wanted) == Some(found),
            None => {
                found % 1_000_000_000 == 0 && (0..COARSEST).contains(&wanted.saturating_sub(found))
            }
        }
    }
}

/// What is kept of a time; `None` if none can be set.
fn kept(probe: &File, wanted: i64) -> Option<i64> {
    futimens(probe, &timestamps(wanted)).ok()?;
    Some(mtime_of(&fstat(probe).ok()?))
}
