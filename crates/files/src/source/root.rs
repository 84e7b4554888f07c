//! The root of source paths: the whole file system, or one directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, openat2, readlinkat};
use rustix::io::Errno;

/// The root of source paths.
#[derive(Clone, Debug)]
pub(crate) enum SourceRoot {
    /// The whole file system, as far as this process has access.
    Anywhere,
    /// Below this directory: no name and no link leads out of it, even if another process changes
    /// the directory meanwhile.
    Below(Arc<OwnedFd>),
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// Attempts at a lookup that a concurrent rename disturbs.
const ATTEMPTS: usize = 32;

impl SourceRoot {
    /// Below `directory`.
    pub(crate) fn below(directory: &Path) -> io::Result<SourceRoot> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(SourceRoot::Below(Arc::new(rustix::fs::open(directory, flags, Mode::empty())?)))
    }

    /// The metadata at `path`, following links.
    pub(crate) fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        match self {
            SourceRoot::Anywhere => fs::metadata(path),
            SourceRoot::Below(root) => File::from(beneath(root, path, OFlags::PATH)?).metadata(),
        }
    }

    /// The metadata at `path`, without following a link.
    pub(crate) fn symlink_metadata(&self, path: &Path) -> io::Result<Metadata> {
        match self {
            SourceRoot::Anywhere => fs::symlink_metadata(path),
            SourceRoot::Below(root) => {
                File::from(beneath(root, path, OFlags::PATH | OFlags::NOFOLLOW)?).metadata()
            }
        }
    }

    /// The names in a folder, in order.
    pub(crate) fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut names = match self {
            SourceRoot::Anywhere => fs::read_dir(folder)?
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<io::Result<Vec<_>>>()?,
            SourceRoot::Below(root) => {
                let folder = beneath(root, folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
                let mut names = Vec::new();
                for entry in Dir::new(folder)? {
                    let entry = entry?;
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        names.push(OsStr::from_bytes(name).to_os_string());
                    }
                }
                names
            }
        };
        names.sort_unstable();
        Ok(names)
    }

    /// The target of a link.
    pub(crate) fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        match self {
            SourceRoot::Anywhere => fs::read_link(path),
            SourceRoot::Below(root) => {
                let link = beneath(root, path, OFlags::PATH | OFlags::NOFOLLOW)?;
                let target = readlinkat(link, "", Vec::new())?;
                Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
            }
        }
    }

    /// Opens a file for reading, without blocking on a pipe that took its place.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        match self {
            SourceRoot::Anywhere => {
                let flags = OFlags::NONBLOCK.bits().cast_signed();
                OpenOptions::new().read(true).custom_flags(flags).open(path)
            }
            SourceRoot::Below(root) => {
                beneath(root, path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
            }
        }
    }
}

fn beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    for _ in 0..ATTEMPTS {
        match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), BENEATH) {
            Err(Errno::AGAIN) => {}
            Err(Errno::XDEV) => {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "it leads out of what is offered",
                ));
            }
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leads_out() {
        let scratch = std::env::temp_dir().join(format!("anabranch-root-{}", std::process::id()));
        let root = scratch.join("root");
        fs::create_dir_all(root.join("in")).unwrap();
        fs::write(scratch.join("secret"), "s").unwrap();
        fs::write(root.join("in/file"), "f").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(scratch.join("secret"), root.join("absolute")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("in", root.join("inside")).unwrap();
        let root = SourceRoot::below(&root).unwrap();
        for path in [
            "out",
            "absolute",
            "up",
            "up/secret",
            "../secret",
            "/etc/passwd",
            "in/../../secret",
            "in/../../root/in",
        ] {
            let path = Path::new(path);
            for found in [
                root.open(path).map(drop),
                root.metadata(path).map(drop),
                root.names(path).map(drop),
            ] {
                assert!(found.is_err(), "{}", path.display());
            }
        }
        assert!(root.symlink_metadata(Path::new("out")).unwrap().is_symlink());
        assert_eq!(root.read_link(Path::new("up")).unwrap(), Path::new(".."));
        assert!(root.metadata(Path::new("inside/file")).unwrap().is_file());
        assert_eq!(root.names(Path::new(".")).unwrap(), ["absolute", "in", "inside", "out", "up"]);
        assert_eq!(io::read_to_string(root.open(Path::new("inside/file")).unwrap()).unwrap(), "f");
        fs::remove_dir_all(scratch).unwrap();
    }
}
