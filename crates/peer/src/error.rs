//! The failures of a session between peers, sorted by who must act; each has a documented exit
//! code.

use std::io;
use std::path::PathBuf;

use crate::{Fingerprint, KeySource};

/// The reason why there is no session with a peer. The text names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call is wrong: options contradict each other, or name things that do not exist.
    #[error("{0}")]
    Usage(String),
    /// The host that answered does not hold the key of the token or the pin.
    #[error(
        "the host at {address} has another key than {known_from} ({found}); is the address \
         right? {remedy}nothing was sent",
        remedy = remedy(*known_from, host)
    )]
    WrongPeer {
        /// The host and its port, as this side was told to find it.
        host: String,
        /// Its address.
        address: String,
        /// The key that answered.
        found: Fingerprint,
        /// The source of the key that it should have.
        known_from: KeySource,
    },
    /// The other side refused the session.
    #[error("the other side refused: {reason}")]
    Refused {
        /// The reason, in its words.
        reason: String,
    },
    /// The other side has no room for the session now.
    #[error("the other side is busy: {reason}")]
    Busy {
        /// The reason, in its words.
        reason: String,
    },
    /// No host has the name.
    #[error("there is no host {host}: {why}; check the name, or give an address")]
    UnknownHost {
        /// The name.
        host: String,
        /// The answer of the system's resolver.
        why: String,
    },
    /// No path could be used.
    #[error("no usable path to {to}: {why}")]
    NoPath {
        /// The remote host or address.
        to: String,
        /// The attempts, and the failure of each.
        why: String,
    },
    /// The other side broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// This host has no key yet, and none can be kept where it belongs. A session by token does not
    /// need one that lasts.
    #[error(
        "cannot keep a key for this host at {path}: {source}; make that folder writable, or set \
         ANABRANCH_HOME to one that is (transfers by token need no lasting key)",
        path = path.display()
    )]
    NoKey {
        /// The place of the key.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The local system refused something that every session needs: sockets, keys, configuration.
    #[error("cannot {action}: {source}")]
    System {
        /// The refused action, as the rest of a sentence that begins with "cannot".
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// The process's exit code, as the manual page documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) | Error::UnknownHost { .. } => 2,
            Error::WrongPeer { .. } | Error::Refused { .. } => 4,
            Error::NoPath { .. } | Error::Busy { .. } => 5,
            Error::Protocol(_) => 9,
            Error::NoKey { .. } | Error::System { .. } => 10,
        }
    }
}

/// What to do about a host with another key.
fn remedy(known_from: KeySource, host: &str) -> String {
    match known_from {
        KeySource::Token => String::new(),
        KeySource::Trusted => format!(
            "if the host was set up anew, 'anabranch keys' there shows its key, and 'anabranch \
             keys trust receiver {host} FINGERPRINT' here replaces the old one; "
        ),
    }
}

impl From<net::Error> for Error {
    fn from(net::Error { action, source }: net::Error) -> Error {
        Error::System { action, source }
    }
}
