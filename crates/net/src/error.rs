//! Refusals of the local system.

use std::io;

/// The system refused something that everything depends on: sockets, interfaces.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {source}")]
pub struct Error {
    /// What was being done to what, as the rest of a sentence that begins with "cannot".
    pub action: String,
    /// The kernel's answer.
    pub source: io::Error,
}
