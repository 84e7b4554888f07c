//! The failures that end a feed.

use std::io;
use std::path::PathBuf;

use crate::framing::FramingError;

/// Why a feed ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// There is no way to the collector, or it does not let this host in.
    #[error(transparent)]
    Peer(#[from] peer::Error),
    /// What is to be sent is not there, or may not be read.
    #[error("{}: {source}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// What is to be sent, or its spool, fails while it is read.
    #[error("{}: {source}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A socket for records cannot be opened.
    #[error("--listen {at}: {source}")]
    Listen {
        /// Where it was to be.
        at: String,
        /// The system's reason.
        source: io::Error,
    },
    /// What is to be sent is not made of records.
    #[error("{label}: {error}")]
    Framing {
        /// Where they come from.
        label: String,
        /// What is wrong.
        error: FramingError,
    },
    /// The collector lacks records that it had, and that this host no longer has.
    #[error("{0}")]
    Lost(String),
    /// What is asked for makes no sense.
    #[error("{0}")]
    Usage(String),
}

impl FeedError {
    /// The process's exit code, as the manual page documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            FeedError::Peer(error) => error.exit_code(),
            FeedError::Missing { .. } => 3,
            FeedError::Source { .. } => 7,
            FeedError::Listen { .. } => 10,
            FeedError::Framing { .. } | FeedError::Lost(_) => 9,
            FeedError::Usage(_) => 2,
        }
    }
}
