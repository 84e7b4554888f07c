//! Failures of the local system.

use std::io;

/// The kernel refused an action on sockets, interfaces or routes.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {source}")]
pub struct Error {
    /// The refused action, as the rest of a sentence that begins with "cannot".
    pub action: String,
    /// The kernel's answer.
    pub source: io::Error,
}
