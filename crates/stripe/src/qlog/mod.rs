//! Logs of connections in the format of qlog (draft-ietf-quic-qlog-main-schema, version 0.3, as a
//! JSON text sequence), which qvis and others show.
//!
//! The driver's thread notes events and hands them over in groups; a thread of the log makes them
//! text and writes it. `docs/udp.md` lists the events.

mod log;
mod text;
mod writer;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};

pub(crate) use log::{Log, PathEnds};

use log::Message;
use writer::{LogBounds, Writer};

/// Writes a log of each connection that has it in its [`Options::qlog`](crate::Options::qlog).
/// Copies are the same log.
///
/// A log has addresses, sizes, times and the kinds of packets, and neither data nor keys. What
/// cannot be written in time is left out, up to 65,536 events of a connection wait, and the log
/// says how many are missing. A failure to write ends that connection's log, and nothing else.
///
/// ```
/// use std::time::Duration;
///
/// use stripe::{Options, Qlog};
///
/// fn main() -> std::io::Result<()> {
///     let folder = std::env::temp_dir();
///     let qlog = Qlog::into_folder(&folder, |warning| eprintln!("{warning}"))?;
///     let options = Options { qlog: Some(qlog.clone()), ..Options::default() };
///     // Here are connections with these options, and `Endpoint::wait_idle` behind them.
///     qlog.flush(Duration::from_secs(1));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Qlog {
    writer: Sender<Message>,
}

/// Where the text of one connection goes.
pub type Sink = Box<dyn Write + Send>;

impl Qlog {
    /// Writes each connection's log into a new file of a folder, which only this user may read:
    /// `TIME-client-ID.sqlog` on the side that dialed, `TIME-server-ID.sqlog` on the other one,
    /// where a log begins once the peer is [admitted](crate::Connection::admit). The first failure
    /// to write is told to `warn`, from a thread of the log.
    ///
    /// A log ends at 1 GiB. For the 257th log, and beyond 4 GiB in all, the oldest ones of this
    /// process that are complete are removed.
    ///
    /// # Errors
    /// If it is no folder in which files can be made, or the system has no thread left.
    pub fn into_folder(folder: &Path, warn: impl FnMut(&str) + Send + 'static) -> io::Result<Qlog> {
        if !folder.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        let (folder, removed_from) = (folder.to_path_buf(), folder.to_path_buf());
        let open = move |name: &str| {
            let path = folder.join(name);
            create(&path).map(|file| Box::new(file) as Sink).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        };
        // Its name is random: it is this process's own, unless somebody else moved it.
        let remove = move |name: &str| drop(std::fs::remove_file(removed_from.join(name)));
        Qlog::start(Writer::new(
            Box::new(open),
            Box::new(remove),
            Box::new(warn),
            LogBounds::default(),
        ))
    }

    /// Writes each connection's log into what `open` makes for it, by the name that its file would
    /// have. Both functions are called in a thread of the log, and the writers block nobody else.
    /// A log ends at 1 GiB; that there are few is up to the caller.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn with(
        open: impl FnMut(&str) -> io::Result<Sink> + Send + 'static,
        warn: impl FnMut(&str) + Send + 'static,
    ) -> io::Result<Qlog> {
        let bounds = LogBounds { all: u64::MAX, files: usize::MAX, ..LogBounds::default() };
        Qlog::start(Writer::new(Box::new(open), Box::new(|_: &str| {}), Box::new(warn), bounds))
    }

    fn start(thread: Writer) -> io::Result<Qlog> {
        let (writer, messages) = mpsc::channel();
        std::thread::Builder::new().name("qlog".into()).spawn(move || thread.run(&messages))?;
        Ok(Qlog { writer })
    }

    /// Waits until what connections have handed over is written: everything of those that have
    /// ended ([`Endpoint::wait_idle`](crate::Endpoint::wait_idle)), and all but the last tenth of
    /// a second of others. Blocks, for `most` at most.
    pub fn flush(&self, most: Duration) {
        let (done, is_done) = mpsc::sync_channel(1);
        if self.writer.send(Message::Flush(done)).is_ok() {
            // A writer that takes longer is stuck in a system call.
            let _ = is_done.recv_timeout(most);
        }
    }
}

/// Makes a file that did not exist; a link in its place is not followed.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_are_private_and_new() {
        let folder = std::env::temp_dir().join(format!("qlog-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("new");
        let permissions = create(&path).unwrap().metadata().unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
        assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let link = folder.join("link");
        symlink(folder.join("target"), &link).unwrap();
        assert_eq!(create(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!folder.join("target").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_has_to_be_one() {
        for (path, kind) in [
            ("/nowhere/at/all", io::ErrorKind::NotFound),
            ("/proc/self/status", io::ErrorKind::NotADirectory),
        ] {
            let error = Qlog::into_folder(Path::new(path), |_| {}).unwrap_err();
            assert_eq!(error.kind(), kind, "{path}");
        }
    }
}
