//! What a file system has and keeps, learnt from files in the staging folder that are there for
//! that.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Mode, OFlags, StatFs, fstatfs, ftruncate, linkat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::lacking;
use super::probe_file::{PROBE, Probe};
use super::staging::Staging;
use super::times::KeptTimes;

/// The largest file that FAT takes, in bytes.
pub(super) const LARGEST_OF_FAT: u64 = u32::MAX as u64;

impl Staging {
    /// Whether the file system has hard links.
    pub(super) fn has_links(&self) -> bool {
        *self.has_links.get_or_init(|| {
            self.probe().is_none_or(|probe| {
                let other = format!("{}-link", probe.name);
                let linked = linkat(self.fd(), &probe.name, self.fd(), &other, AtFlags::empty());
                self.remove(&other);
                !matches!(linked, Err(errno) if lacking::lacks_links(errno))
            })
        })
    }

    /// Whether the file system takes names that differ in large and small letters for one.
    pub(super) fn is_caseless(&self) -> bool {
        *self.is_caseless.get_or_init(|| {
            self.probe().is_some_and(|probe| {
                let name = probe.name.to_uppercase();
                statat(self.fd(), name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            })
        })
    }

    /// Whether a file can have this name. Only names are tried that some file systems do not take.
    pub(super) fn takes(&self, name: &[u8]) -> bool {
        let is_odd = |byte: &u8| *byte < b' ' || b"\"*:<>?\\|".contains(byte);
        let is_plain = !name.iter().any(is_odd)
            && !matches!(name.last(), Some(b'.' | b' '))
            && std::str::from_utf8(name).is_ok();
        if is_plain {
            return true;
        }
        let name = OsStr::from_bytes(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(self.fd(), name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                drop(file);
                let _ = unlinkat(self.fd(), name, AtFlags::empty());
                true
            }
            Err(errno) => !(lacking::is_no_name(errno) || errno == Errno::NOENT),
        }
    }

    /// Whether a file can have this size. Only sizes are tried that FAT does not take; file systems
    /// that would write so many zeros, and take any size, are not tried.
    pub(super) fn takes_size(&self, size: u64) -> bool {
        const EXFAT: i64 = 0x2011_bab0;
        const FUSE: i64 = 0x6573_5546;
        #[expect(clippy::unnecessary_cast, reason = "it differs by architecture")]
        let is_tried = |of: StatFs| ![EXFAT, FUSE].contains(&(of.f_type as i64));
        if size <= LARGEST_OF_FAT || !fstatfs(self.fd()).is_ok_and(is_tried) {
            return true;
        }
        let Some(probe) = self.probe() else { return true };
        ftruncate(probe.file(), size) != Err(Errno::FBIG)
    }

    /// The times that the file system keeps.
    pub(super) fn times(&self) -> KeptTimes {
        KeptTimes::new(self.probe())
    }

    /// A file of no contents; `None` if there can be none.
    fn probe(&self) -> Option<Probe> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PROBE}-{}-{number}", std::process::id());
        let folder = self.fd().try_clone().ok()?;
        let file = Some(self.open_file(&name).ok()?);
        Some(Probe { folder, name, file })
    }
}
