//! Everything that ends a transfer, sorted by who must act; each has a documented exit code.

use std::io;
use std::path::PathBuf;

use units::Bytes;

/// Why a transfer ended without success. The text names the thing and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no session with the other side.
    #[error(transparent)]
    Peer(#[from] peer::Error),
    /// A file to be sent is not there or not readable.
    #[error("cannot read {path}: {source}", path = path.display())]
    Source {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// What is asked of a server is not there, or not readable there.
    #[error("the server cannot give it: {reason}")]
    Unavailable {
        /// In its words.
        reason: String,
    },
    /// The file to be sent changed while it was being sent.
    #[error("{path} changed while it was being sent; run the same command again to transfer it as \
             it is now", path = path.display())]
    SourceChanged {
        /// Which.
        path: PathBuf,
    },
    /// The sender gave up.
    #[error(
        "the sender gave up: {reason}; what arrived is kept, run the same commands again to go on \
         from there"
    )]
    Stopped {
        /// In its words.
        reason: String,
    },
    /// The network failed and stayed so; what arrived is kept.
    #[error(
        "every path was lost ({why}); {done} of {total} are safe at the receiver: run the same \
         command again to go on from there"
    )]
    Interrupted {
        /// The last failures.
        why: String,
        /// What is journaled.
        done: Bytes,
        /// Of how much.
        total: Bytes,
    },
    /// The caps of the paths' interfaces are reached, and no other path is left; what arrived is
    /// kept.
    #[error(
        "no path may carry more: {why}; {done} of {total} are safe at the receiver: the same \
         command goes on from there once there is another path, a higher cap or a new month"
    )]
    UsedUp {
        /// Which paths, and their caps.
        why: String,
        /// What is journaled.
        done: Bytes,
        /// Of how much.
        total: Bytes,
    },
    /// The bytes that arrived are not those that were sent, repeatedly.
    #[error("{what} does not match its BLAKE3 hash ({detail}); the target was not touched")]
    Integrity {
        /// Which file or block.
        what: String,
        /// How it was found.
        detail: String,
    },
    /// The receiving disk refused.
    #[error(
        "cannot {action} {path}: {source}; what arrived so far is kept: {} and run the same \
         commands again to go on from there",
        remedy(source),
        path = path.display()
    )]
    Disk {
        /// "write", "rename", …
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The receiver's disk or its contents stand in the way; seen from the sender.
    #[error("the receiver cannot take it: {reason}")]
    Receiver {
        /// In its words.
        reason: String,
    },
    /// The receiving disk is too small.
    #[error("{need} are needed at {path} but only {free} are free; make room and run the same \
             command again", path = path.display())]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// What the transfer needs.
        need: Bytes,
        /// What there is.
        free: Bytes,
    },
    /// The target is already there.
    #[error("{path} exists already at the receiver; --overwrite replaces it", path = path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// Something of another kind is where an entry belongs.
    #[error("there is {found} at {path}, where {what} belongs; nothing follows or replaces it: \
             move it away, or send to another folder", path = path.display())]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// What belongs there.
        what: &'static str,
        /// What is there.
        found: &'static str,
    },
}

impl Error {
    /// The call makes no sense as it stands.
    pub fn usage(text: impl Into<String>) -> Error {
        Error::Peer(peer::Error::Usage(text.into()))
    }

    /// The local system refused something that everything depends on; `action` completes "cannot".
    pub fn system(action: impl Into<String>, source: io::Error) -> Error {
        Error::Peer(peer::Error::System { action: action.into(), source })
    }

    /// The other side refused, or is refused.
    pub fn refused(reason: impl Into<String>) -> Error {
        Error::Peer(peer::Error::Refused { reason: reason.into() })
    }

    /// The other side does not speak our protocol as written.
    pub fn protocol(text: impl Into<String>) -> Error {
        Error::Peer(peer::Error::Protocol(text.into()))
    }

    /// The process's exit code, as the manual page documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Peer(error) => error.exit_code(),
            Error::Source { .. } | Error::Unavailable { .. } => 3,
            Error::Interrupted { .. } | Error::Stopped { .. } => 6,
            Error::SourceChanged { .. } | Error::Integrity { .. } => 7,
            Error::Disk { .. }
            | Error::Receiver { .. }
            | Error::NoSpace { .. }
            | Error::Exists { .. }
            | Error::InTheWay { .. } => 8,
            Error::UsedUp { .. } => 11,
        }
    }
}

/// What whoever owns a disk can do about an error of it.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room",
        io::ErrorKind::ReadOnlyFilesystem => "make it writable",
        io::ErrorKind::PermissionDenied => "allow it",
        _ => "mend that",
    }
}
