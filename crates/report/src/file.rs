//! Files that are written completely or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// An error in writing a file. An earlier file at the path is left as it was.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The directory does not exist.
    #[error(
        "cannot write {}: the directory {} does not exist; create it first",
        path.display(), directory.display()
    )]
    NoDirectory {
        /// The path of the file.
        path: PathBuf,
        /// The missing directory.
        directory: PathBuf,
    },
    /// No permission for the directory.
    #[error(
        "cannot write {}: permission denied; choose a directory that you may write to",
        path.display()
    )]
    Denied {
        /// The path of the file.
        path: PathBuf,
    },
    /// The disk is full, or the quota is used up.
    #[error(
        "cannot write {}: no space left on the device; free some, or choose another place",
        path.display()
    )]
    Full {
        /// The path of the file.
        path: PathBuf,
    },
    /// Another error.
    #[error("cannot write {}: {source}", path.display())]
    Other {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl WriteError {
    fn new(path: &Path, source: io::Error) -> WriteError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::Full { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                WriteError::Denied { path }
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                WriteError::NoDirectory { directory: directory(&path).to_path_buf(), path }
            }
            _ => WriteError::Other { path, source },
        }
    }
}

/// Writes `content` to a temporary file beside `path` and renames it. Devices and pipes are written
/// directly.
///
/// # Errors
/// If it cannot be written; an earlier file at `path` is left as it was.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), WriteError> {
    let mut output = Output::create(path.as_ref())?;
    output.write(content.as_ref())?;
    output.finish()
}

/// A file that is being written. If it is dropped, nothing remains of it.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    sink: Sink,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Sink {
    Beside(NamedTempFile),
    Direct(File),
}

/// The size of the write buffer.
const BUFFER: usize = 1 << 16;

impl Output {
    pub(crate) fn create(path: &Path) -> Result<Output, WriteError> {
        let failed = |error| WriteError::new(path, error);
        // A device such as /dev/stdout cannot be replaced.
        let special =
            path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir());
        let sink = if special {
            Sink::Direct(OpenOptions::new().write(true).open(path).map_err(failed)?)
        } else if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        } else {
            let mut builder = tempfile::Builder::new();
            builder.prefix(".").suffix(".tmp");
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                // The permissions of any new file: restricted by the umask only.
                builder.permissions(std::fs::Permissions::from_mode(0o666));
            }
            Sink::Beside(builder.tempfile_in(directory(path)).map_err(failed)?)
        };
        Ok(Output { path: path.to_path_buf(), sink, buffer: Vec::with_capacity(BUFFER) })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BUFFER { Ok(()) } else { self.drain() }
    }

    /// Renames the file to its path.
    pub(crate) fn finish(mut self) -> Result<(), WriteError> {
        self.drain()?;
        let failed = |error| WriteError::new(&self.path, error);
        match self.sink {
            Sink::Direct(_) => Ok(()),
            Sink::Beside(file) => {
                // Otherwise a crash may leave an empty file under the new name.
                file.as_file().sync_all().map_err(failed)?;
                file.persist(&self.path).map(drop).map_err(|error| failed(error.error))
            }
        }
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        let file = match &mut self.sink {
            Sink::Beside(file) => file.as_file_mut(),
            Sink::Direct(file) => file,
        };
        let written = file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| WriteError::new(&self.path, error))
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("table.csv");
        write(&path, "old").unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write(&vec![b'x'; 2 * BUFFER]).unwrap();
        drop(output);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            std::fs::read_dir(place.path()).unwrap().count(),
            1,
            "nothing temporary is left"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named() {
        let error = write("/dev/full", "x").unwrap_err();
        assert!(
            matches!(&error, WriteError::Full { path } if path == Path::new("/dev/full")),
            "{error:?}"
        );
        let text = error.to_string();
        assert_eq!(
            text,
            "cannot write /dev/full: no space left on the device; free some, or choose another \
             place"
        );
    }

    #[test]
    fn a_missing_directory_is_named() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("no/table.csv");
        let text = write(&path, "x").unwrap_err().to_string();
        assert!(
            text.contains("no/table.csv") && text.ends_with("/no does not exist; create it first"),
            "{text}"
        );
        let text = write(place.path(), "x").unwrap_err().to_string();
        assert!(text.contains("is a directory"), "{text}");
    }
}
