//! Everything that keeps two peers apart, sorted by who must act; each has a documented exit code.

use std::io;

use crate::Fingerprint;

/// Why there is no session with a peer. The text names the thing and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call makes no sense as it stands.
    #[error("{0}")]
    Usage(String),
    /// Whoever answered does not hold the key that the token or the pin names.
    #[error(
        "the host at {address} has another key than the token says ({found}); is the address \
         right? nothing was sent"
    )]
    WrongPeer {
        /// Where.
        address: String,
        /// The key that answered.
        found: Fingerprint,
    },
    /// The other side refused us.
    #[error("the other side refused: {reason}")]
    Refused {
        /// In its words.
        reason: String,
    },
    /// No path could be used at all.
    #[error("no usable path to {to}: {why}")]
    NoPath {
        /// The target.
        to: String,
        /// What was tried and how each failed.
        why: String,
    },
    /// The other side does not speak our protocol as written.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// The local system refused something that everything depends on (sockets, keys,
    /// configuration).
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done to what.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// The process's exit code, as the manual page documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::WrongPeer { .. } | Error::Refused { .. } => 4,
            Error::NoPath { .. } => 5,
            Error::Protocol(_) => 9,
            Error::System { .. } => 10,
        }
    }
}

impl From<net::Error> for Error {
    fn from(net::Error { action, source }: net::Error) -> Error {
        Error::System { action, source }
    }
}
