//! A stream on the disk, so that it can be sent again after an interruption.
//!
//! `NAME.stream` has its bytes, `NAME.stream-state` a few lines of text: when it began, which tells
//! it from others of its name, and its size once its end was seen. Both are this user's own: what
//! another user put in their place is neither written to nor sent.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use peer::private::open_own;
use rustix::fs::{FlockOperation, flock};

use crate::Error;

/// The first line of the state.
const HEADING: &str = "anabranch stream 1";
/// The longest state, in bytes; a longer one is something else.
const MOST_STATE: u64 = 256;

/// A stream on the disk.
pub(crate) struct StreamSpool {
    data: File,
    data_path: PathBuf,
    /// Locked as long as the spool is open.
    state: File,
    state_path: PathBuf,
}

/// What the state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpoolState {
    began: i64,
    size: Option<u64>,
}

impl StreamSpool {
    /// Begins the spool of a stream in the folder `folder`, which is made if it is missing. A
    /// stream of that name whose end was not seen is replaced.
    ///
    /// # Errors
    /// If there is a complete stream of that name, which was not sent, or the disk fails.
    pub(crate) fn create(folder: &Path, name: &OsStr, began: i64) -> Result<StreamSpool, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| failed("make the folder", folder, source))?;
        let spool = StreamSpool::open_files(folder, name, true)?;
        if let Some(SpoolState { size: Some(_), .. }) = spool.read_state()? {
            let text = format!(
                "{} has a complete stream of that name, which was not sent: send it with \
                 'anabranch send --spool {} --name {}', or remove it",
                folder.display(),
                folder.display(),
                name.display()
            );
            return Err(Error::usage(text));
        }
        let heading = format!("{HEADING}\nbegan {began}\n");
        let emptied = spool.state.set_len(0).and_then(|()| spool.data.set_len(0));
        emptied
            .and_then(|()| spool.state.write_all_at(heading.as_bytes(), 0))
            .map_err(|source| failed("write", &spool.state_path, source))?;
        Ok(spool)
    }

    /// Opens the spool of a complete stream: also when it began, and its size.
    ///
    /// # Errors
    /// If there is none, or the disk fails.
    pub(crate) fn open(folder: &Path, name: &OsStr) -> Result<(StreamSpool, i64, u64), Error> {
        let spool = StreamSpool::open_files(folder, name, false)?;
        let length = spool.data.metadata().map(|found| found.len());
        let length = length.map_err(|source| failed("read", &spool.data_path, source))?;
        match spool.read_state()? {
            Some(SpoolState { began, size: Some(size) }) if size == length => {
                Ok((spool, began, size))
            }
            _ => Err(Error::usage(format!(
                "the end of the stream in {} was not seen, so that it is not complete: run the \
                 program that writes it again, and send that",
                spool.data_path.display()
            ))),
        }
    }

    fn open_files(folder: &Path, name: &OsStr, create: bool) -> Result<StreamSpool, Error> {
        let path = |suffix: &str| {
            let mut file = name.to_owned();
            file.push(suffix);
            folder.join(file)
        };
        let open = |path: &Path| {
            open_own(path, create).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => Error::usage(format!(
                    "there is no stream {} in {}",
                    name.display(),
                    folder.display()
                )),
                _ => failed("use the spool", path, source),
            })
        };
        let (data_path, state_path) = (path(".stream"), path(".stream-state"));
        let state = open(&state_path)?;
        flock(&state, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
            let action =
                format!("use {} while another 'anabranch send' does", state_path.display());
            Error::system(action, errno.into())
        })?;
        Ok(StreamSpool { data: open(&data_path)?, data_path, state, state_path })
    }

    /// Appends bytes at `at`, the end.
    pub(super) fn append(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.data.write_all_at(bytes, at)
    }

    /// Reads bytes from `at`.
    pub(super) fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), Error> {
        let read = self.data.read_exact_at(bytes, at);
        read.map_err(|source| Error::Source { path: self.data_path.clone(), source })
    }

    /// The stream has ended with `size` bytes: from here on it survives the process, and a power
    /// loss.
    pub(super) fn finish(&self, size: u64) -> io::Result<()> {
        self.data.sync_all()?;
        let end = self.state.metadata()?.len();
        self.state.write_all_at(format!("size {size}\n").as_bytes(), end)?;
        self.state.sync_all()
    }

    /// Removes a stream that was sent.
    pub(crate) fn remove(&self) {
        // The data last: a state without data is refused, and replaced.
        let _ = fs::remove_file(&self.state_path);
        let _ = fs::remove_file(&self.data_path);
    }

    /// Lets another process have it: this one is done with it.
    pub(crate) fn unlock(&self) {
        let _ = flock(&self.state, FlockOperation::Unlock);
    }

    /// The file with the stream's bytes, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.data_path
    }

    /// Reads the state; `None` if it is new, or no state.
    fn read_state(&self) -> Result<Option<SpoolState>, Error> {
        let mut text = String::new();
        let read = (&self.state).take(MOST_STATE).read_to_string(&mut text);
        match read {
            Ok(_) => Ok(SpoolState::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            Err(source) => Err(failed("read", &self.state_path, source)),
        }
    }
}

impl SpoolState {
    fn parse(text: &str) -> Option<SpoolState> {
        // The last line may be torn.
        let (text, _) = text.rsplit_once('\n')?;
        let mut lines = text.lines();
        lines.next().filter(|line| *line == HEADING)?;
        let began = lines.next()?.strip_prefix("began ")?.parse().ok()?;
        let size = lines.next().and_then(|line| line.strip_prefix("size ")?.parse().ok());
        Some(SpoolState { began, size })
    }
}

fn failed(action: &str, path: &Path, source: io::Error) -> Error {
    Error::system(format!("{action} {}", path.display()), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_is_its_owners_and_follows_no_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = std::env::temp_dir().join(format!("anabranch-spool-{}", std::process::id()));
        let name = OsStr::new("db.sql");
        let spool = StreamSpool::create(&folder, name, 1).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&folder), mode(&spool.data_path), mode(&spool.state_path)),
            (0o700, 0o600, 0o600)
        );
        let (data, state) = (spool.data_path.clone(), spool.state_path.clone());
        assert!(StreamSpool::create(&folder, name, 2).is_err(), "it is in use");
        drop(spool);
        for path in [data, state] {
            fs::remove_file(&path).unwrap();
            let other = folder.join("other");
            fs::write(&other, b"mine").unwrap();
            symlink(&other, &path).unwrap();
            assert!(StreamSpool::create(&folder, name, 2).is_err(), "{}", path.display());
            assert_eq!(fs::read(&other).unwrap(), b"mine");
            fs::remove_file(&path).unwrap();
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_another_user_prepared_is_no_spool() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("anabranch-planted-{}", std::process::id()));
        let name = OsStr::new("db.sql");
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = |what: &str| {
            let created = StreamSpool::create(&folder, name, 1).map(drop);
            let opened = StreamSpool::open(&folder, name).map(drop);
            for error in [created.expect_err(what), opened.expect_err(what)] {
                assert_eq!(error.exit_code(), 10, "{what}: {error}");
            }
        };
        drop(StreamSpool::create(&folder, name, 1).unwrap());
        let (data, state) = (folder.join("db.sql.stream"), folder.join("db.sql.stream-state"));
        // A complete one, for `open`.
        fs::write(&state, "anabranch stream 1\nbegan 1\nsize 0\n").unwrap();
        StreamSpool::open(&folder, name).expect("it is complete");
        for path in [&data, &state] {
            set_mode(path, 0o666);
            refused("others read it");
            set_mode(path, 0o600);
            let aside = folder.join("aside");
            fs::rename(path, &aside).unwrap();
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, path, fifo, 0o600.into(), 0).unwrap();
            refused("a pipe, which is not waited for");
            fs::remove_file(path).unwrap();
            fs::hard_link(&aside, path).unwrap();
            refused("it has another name");
            fs::remove_file(&aside).unwrap();
        }
        set_mode(&folder, 0o777);
        refused("others may put another one in its place");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_torn_state_is_that_of_a_stream_without_an_end() {
        let whole = "anabranch stream 1\nbegan -5\nsize 12345\n";
        let state = SpoolState { began: -5, size: Some(12_345) };
        assert_eq!(SpoolState::parse(whole), Some(state));
        let begun = whole.find("size").unwrap();
        for cut in 0..whole.len() {
            let expected = (cut >= begun).then_some(SpoolState { size: None, ..state });
            assert_eq!(SpoolState::parse(&whole[..cut]), expected, "cut at {cut}");
        }
        assert_eq!(SpoolState::parse("anabranch stream 2\nbegan 1\n"), None);
    }
}
