//! The data and the holes of a sparse file.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use wire::manifest::MAX_EXTENTS;

/// The extents of a file's data, if it has holes; with more than a manifest takes, only the largest
/// holes count.
pub(super) fn data(file: &File, size: u64) -> io::Result<Option<Vec<(u64, u64)>>> {
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(start) => start,
            // No more data.
            Err(Errno::NXIO) => break,
            Err(errno) if has_none(errno) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let end = match seek(file.as_fd(), SeekFrom::Hole(start)) {
            Ok(end) => end.min(size),
            Err(errno) if has_none(errno) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if end <= start {
            break;
        }
        extents.push((start, end - start));
        at = end;
        // However many there are, the list takes bounded memory.
        if extents.len() > 2 * MAX_EXTENTS {
            join(&mut extents);
        }
    }
    if extents == [(0, size)] {
        return Ok(None);
    }
    if extents.len() > MAX_EXTENTS {
        join(&mut extents);
    }
    Ok(Some(extents))
}

/// Whether an error says that the file system has no holes, or does not tell of them.
fn has_none(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::NOTTY)
}

/// Fills the smallest holes, so that only [`MAX_EXTENTS`] extents are left.
fn join(extents: &mut Vec<(u64, u64)>) {
    let mut holes: Vec<u64> =
        extents.windows(2).map(|pair| pair[1].0 - (pair[0].0 + pair[0].1)).collect();
    holes.sort_unstable_by(|a, b| b.cmp(a));
    holes.truncate(MAX_EXTENTS - 1);
    let Some(&smallest) = holes.last() else { return };
    // Among holes of the smallest size, some may have to be filled.
    let mut smallest_left = holes.iter().filter(|hole| **hole == smallest).count();
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(MAX_EXTENTS);
    for &(offset, len) in &*extents {
        let Some(before) = joined.last_mut() else {
            joined.push((offset, len));
            continue;
        };
        let hole = offset - (before.0 + before.1);
        if hole > smallest || hole == smallest && smallest_left > 0 {
            smallest_left -= usize::from(hole == smallest);
            joined.push((offset, len));
        } else {
            before.1 = offset + len - before.0;
        }
    }
    *extents = joined;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_holes_are_left() {
        let mut at = 0;
        let mut extents = Vec::new();
        for index in 0..2 * MAX_EXTENTS as u64 {
            extents.push((at, 4_096));
            // A few large ones, and very many of one size.
            at += 4_096 + if index % 1_000 == 0 { 8_192 } else { 4_096 };
        }
        let end = at;
        join(&mut extents);
        assert_eq!(extents.len(), MAX_EXTENTS);
        let large = extents.windows(2).filter(|pair| pair[1].0 - pair[0].0 - pair[0].1 == 8_192);
        assert_eq!(large.count(), 2 * MAX_EXTENTS / 1_000 + 1);
        assert!(extents.last().is_some_and(|(offset, len)| offset + len <= end));
    }
}
