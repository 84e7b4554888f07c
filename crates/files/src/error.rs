//! The errors that end a transfer, grouped by the party that must act; each has a documented exit
//! code.

use std::io;
use std::path::PathBuf;

use events::Failed;
use units::{Bytes, Span};

/// The error that ended a transfer. The text names the cause and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No session with the other side could be opened.
    #[error(transparent)]
    Peer(#[from] peer::Error),
    /// A file to be sent does not exist or is not readable.
    #[error("cannot read {path}: {source}", path = path.display())]
    Source {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file that a server was asked for does not exist or is not readable there.
    #[error("the server cannot send it: {reason}")]
    Unavailable {
        /// The other side's message.
        reason: String,
    },
    /// No file is left to be sent.
    #[error("there is nothing there: no file is left by --include, --exclude and --files-from")]
    NothingSelected,
    /// The file to be sent changed while it was being sent.
    #[error("{path} changed while it was being sent; run the same command again to transfer it as \
             it is now", path = path.display())]
    SourceChanged {
        /// Path of the file.
        path: PathBuf,
    },
    /// The sender gave up.
    #[error(
        "the sender gave up: {reason}; what arrived is kept, run the same commands again to go on \
         from there"
    )]
    Stopped {
        /// The other side's message.
        reason: String,
    },
    /// The sender kept its connections open and sent nothing for this long.
    #[error(
        "the sender sent no data for {}; what arrived is kept, run the same commands again to go \
         on \
         from there",
        .silence.brief()
    )]
    Stalled {
        /// The time since its last data.
        silence: Span,
    },
    /// No sender came for this long.
    #[error(
        "no sender came within {}: is the address that the sender uses one of this host's, and may \
         it be reached through the firewall? --timeout is the wait",
        .waited.brief()
    )]
    NobodyCame {
        /// The wait.
        waited: Span,
    },
    /// The sender left in the midst of a transfer, and did not come back for this long.
    #[error(
        "the sender left, and did not come back within {}; what arrived is kept, run the same \
         commands again to go on from there",
        .waited.brief()
    )]
    SenderGone {
        /// The wait.
        waited: Span,
    },
    /// No path was open, or nothing arrived over those that were, for longer than the patience;
    /// received data are kept.
    #[error(
        "every path was lost or stands still ({why}); {done} of {total} are safe at the receiver: \
         run the same command again to go on from there"
    )]
    Interrupted {
        /// The last failures.
        why: String,
        /// Bytes journaled at the sink.
        done: Bytes,
        /// Bytes of all files.
        total: Bytes,
    },
    /// The data caps of the paths' interfaces are reached, and no other path is left; received data
    /// are kept.
    #[error(
        "no path may carry more: {why}; {kept}: the same command goes on from there once there is \
         another path, a higher cap or a new month",
        kept = kept(*done, *total)
    )]
    UsedUp {
        /// The paths and their caps.
        why: String,
        /// Bytes journaled at the sink; unknown as long as both sides have not agreed.
        done: Option<Bytes>,
        /// Bytes of all files.
        total: Bytes,
    },
    /// Received bytes repeatedly differ from those that were sent.
    #[error("{what} does not match its BLAKE3 hash ({detail}); the target was not touched")]
    Integrity {
        /// The file or block.
        what: String,
        /// How the mismatch was found.
        detail: String,
    },
    /// An operation on the receiving disk failed.
    #[error(
        "cannot {action} {path}: {source}; what arrived so far is kept: {} and run the same \
         commands again to go on from there",
        remedy(source),
        path = path.display()
    )]
    Disk {
        /// The failed operation: "write", "rename", …
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Standard output, or whatever takes the file in its place, takes no more.
    #[error(
        "cannot write to the output: {source}; what was written before is the beginning of the \
             file and no more"
    )]
    Output {
        /// The operating system's error.
        source: io::Error,
    },
    /// The receiver's disk or existing files prevent the transfer, as the sender sees it.
    #[error("the receiver cannot take it: {reason}")]
    Receiver {
        /// The other side's message.
        reason: String,
    },
    /// The receiving disk has too little space.
    #[error("{need} are needed at {path} but only {free} are free; make room and run the same \
             command again", path = path.display())]
    NoSpace {
        /// Path on the receiving side.
        path: PathBuf,
        /// Bytes that the transfer needs.
        need: Bytes,
        /// Bytes that are free.
        free: Bytes,
    },
    /// The target exists already.
    #[error(
        "{path} exists already at the receiver; --overwrite replaces it",
        path = path.display()
    )]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// `--delete` would remove most files of the target.
    #[error(
        "--delete would remove {doomed} of the {all} files at {path} that it compares; if that is \
         meant, --force-delete does it", path = path.display()
    )]
    TooMuchToDelete {
        /// Path on the receiving side.
        path: PathBuf,
        /// The number of files that would be removed.
        doomed: usize,
        /// The number of files that were compared.
        all: usize,
    },
    /// Everything in a folder would be deleted: its source is empty, as a disk that is not mounted.
    #[error(
        "--delete would remove everything in {path}, because its source is empty; if that is \
         meant, --force-delete does it", path = path.display()
    )]
    NothingLeft {
        /// Path on the receiving side.
        path: PathBuf,
    },
    /// An entry of another kind is at the target's path.
    #[error("there is {found} at {path}, where {what} belongs; nothing follows or replaces it: \
             move it away, or send to another folder", path = path.display())]
    InTheWay {
        /// Path on the receiving side.
        path: PathBuf,
        /// The kind of the entry.
        what: &'static str,
        /// The kind of the existing file.
        found: &'static str,
    },
}

impl Error {
    /// An error in the caller's options.
    pub fn usage(text: impl Into<String>) -> Error {
        Error::Peer(peer::Error::Usage(text.into()))
    }

    /// A failed operation of the local system that the whole transfer depends on; `action`
    /// completes "cannot".
    pub fn system(action: impl Into<String>, source: io::Error) -> Error {
        Error::Peer(peer::Error::System { action: action.into(), source })
    }

    /// A refusal by the other side, or of it.
    pub fn refused(reason: impl Into<String>) -> Error {
        Error::Peer(peer::Error::Refused { reason: reason.into() })
    }

    /// A violation of the protocol by the other side.
    pub fn protocol(text: impl Into<String>) -> Error {
        Error::Peer(peer::Error::Protocol(text.into()))
    }

    /// The process's exit code, as the manual page documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Peer(error) => error.exit_code(),
            Error::NothingSelected => 2,
            Error::Source { .. } | Error::Unavailable { .. } => 3,
            Error::NobodyCame { .. } => 5,
            Error::Interrupted { .. }
            | Error::Stopped { .. }
            | Error::Stalled { .. }
            | Error::SenderGone { .. } => 6,
            Error::SourceChanged { .. } | Error::Integrity { .. } => 7,
            Error::Disk { .. }
            | Error::Output { .. }
            | Error::Receiver { .. }
            | Error::NoSpace { .. }
            | Error::Exists { .. }
            | Error::TooMuchToDelete { .. }
            | Error::NothingLeft { .. }
            | Error::InTheWay { .. } => 8,
            Error::UsedUp { .. } => 11,
        }
    }
}

impl From<&Error> for Failed {
    fn from(error: &Error) -> Failed {
        Failed { exit_code: error.exit_code(), text: error.to_string() }
    }
}

/// What is safe at the receiver.
fn kept(done: Option<Bytes>, total: Bytes) -> String {
    match done {
        Some(done) => format!("{done} of {total} are safe at the receiver"),
        None => "what arrived before is kept".into(),
    }
}

/// Advice to the owner of a disk that returned `error`.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room",
        io::ErrorKind::ReadOnlyFilesystem => "make it writable",
        io::ErrorKind::PermissionDenied => "allow it",
        _ => "mend that",
    }
}
