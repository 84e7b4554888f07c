//! Files whose size says nothing about their contents: those of `/proc` and `/sys`, and of devices
//! that are mounted by programs. They are read to their end.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{FsWord, Stat, fstatfs};

use super::super::root::SourcePath;
use super::Walk;
use crate::Error;

/// The most of such a file; what is longer has no end, like a log of the kernel.
const MOST: usize = 16 << 20;
/// Bytes that are read at once; the kernel makes up the contents of most of these files in a page.
const AT_ONCE: usize = 64 << 10;

/// The numbers of the kernel's own file systems: proc, sysfs, debugfs, tracefs, securityfs,
/// configfs, cgroup, cgroup2, pstore, efivarfs, selinuxfs.
const OF_KERNEL: [FsWord; 11] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0x0027_e0eb,
    0x6367_7270,
    0x6165_676c,
    0xde5e_81e4,
    0xf97c_ff8c,
];

impl Walk<'_> {
    /// The contents of a file whose size says nothing about them; `None` if it does, and of an
    /// empty file.
    pub(super) fn contents(
        &mut self,
        place: &SourcePath,
        file: &File,
        stat: &Stat,
    ) -> Result<Option<Vec<u8>>, Error> {
        let is_of_kernel = || fstatfs(file).is_ok_and(|found| OF_KERNEL.contains(&found.f_type));
        if stat.st_blocks > 0 || (stat.st_size > 0 && !is_of_kernel()) {
            return Ok(None);
        }
        let failed = |source| Error::Source { path: self.found.named.shown(place), source };
        let mut contents = Vec::new();
        let mut buffer = vec![0; AT_ONCE];
        loop {
            match file.read_at(&mut buffer, contents.len() as u64).map_err(failed)? {
                0 => break,
                length => contents.extend_from_slice(&buffer[..length]),
            }
            if contents.len() > MOST {
                let text = "it has no size, and no end within 16 MiB";
                return Err(failed(std::io::Error::other(text)));
            }
            (self.budget)(0)?;
        }
        Ok((stat.st_size > 0 || !contents.is_empty()).then_some(contents))
    }
}
