//! The data and the holes of a sparse file.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use wire::manifest::MAX_EXTENTS;

/// The extents of a file's data, if it has holes; with very many holes, only the largest count.
pub(super) fn data(file: &File, size: u64) -> io::Result<Option<Vec<(u64, u64)>>> {
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(start) => start,
            // No more data.
            Err(Errno::NXIO) => break,
            // A file system without holes.
            Err(Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(file.as_fd(), SeekFrom::Hole(start))?.min(size);
        if end <= start {
            break;
        }
        extents.push((start, end - start));
        at = end;
    }
    if extents == [(0, size)] {
        return Ok(None);
    }
    if extents.len() > MAX_EXTENTS {
        let mut holes: Vec<u64> =
            extents.windows(2).map(|pair| pair[1].0 - (pair[0].0 + pair[0].1)).collect();
        holes.sort_unstable_by(|a, b| b.cmp(a));
        let smallest = holes[MAX_EXTENTS - 2];
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (offset, len) in extents {
            match joined.last_mut() {
                // Among holes of the same size, some may have to be filled.
                Some(before) if offset - (before.0 + before.1) <= smallest => {
                    before.1 = offset + len - before.0;
                }
                _ => joined.push((offset, len)),
            }
        }
        extents = joined;
    }
    Ok(Some(extents))
}
