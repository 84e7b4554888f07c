//! Temporary folders, and contents to send, for `demo` and for experiments with real transfers.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use units::Bytes;

/// Names that are tried for a folder: another process may have left some.
const NAMES_TRIED: u32 = 1_000;

/// A temporary folder, removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the folder `path`, which must not exist and which nobody else may read.
    pub(crate) fn create(path: &Path) -> io::Result<Scratch> {
        fs::DirBuilder::new().mode(0o700).create(path)?;
        Ok(Scratch(path.to_path_buf()))
    }

    /// Creates a folder of a new name in the system's temporary folder, which nobody else may read.
    pub(crate) fn private(purpose: &str) -> io::Result<Scratch> {
        let path = Scratch::temporary(purpose);
        for number in 0..NAMES_TRIED {
            let mut path = path.clone().into_os_string();
            path.push(format!("-{number}"));
            match Scratch::create(path.as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let folder = std::env::temp_dir();
                    let text = format!("{error}: {} (TMPDIR names another)", folder.display());
                    return Err(io::Error::new(error.kind(), text));
                }
                made => return made,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// A path in the system's temporary folder, for `purpose` in this process.
    pub(crate) fn temporary(purpose: &str) -> PathBuf {
        std::env::temp_dir().join(format!("anabranch-{purpose}-{}", std::process::id()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The system cleans its temporary folder up if this fails.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes `size` bytes that do not repeat, from a linear congruential generator.
pub(crate) fn write_source(path: &Path, size: Bytes) -> io::Result<()> {
    let mut state: u64 = 0x5ee5_1d3a;
    let mut block = vec![0; 1 << 16];
    let mut file = File::create(path)?;
    let mut left = size.0;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_folder_is_its_owners_and_new() {
        let (first, second) =
            (Scratch::private("test").unwrap(), Scratch::private("test").unwrap());
        assert_ne!(first.path(), second.path());
        for folder in [first, second] {
            let mode = fs::metadata(folder.path()).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }
}
