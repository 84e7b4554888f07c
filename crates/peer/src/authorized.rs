//! Whom a host knows by key, and what each of them may do there.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use units::Rate;

use crate::Fingerprint;

/// A host that may send here, get from here, or both, without a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub fingerprint: Fingerprint,
    /// What it is called here; may be empty.
    pub name: String,
    /// What it may do.
    pub may: May,
    /// What it sees in the place of the directory that is served, or that receives; below that if
    /// it is relative.
    pub directory: Option<PathBuf>,
    /// Upper bound of the rate of everything that it gets, and of everything that it sends.
    pub max: Option<Rate>,
}

/// What a peer may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum May {
    /// Get what is offered.
    Get,
    /// Send here.
    #[default]
    Send,
    /// Either.
    Both,
}

impl Peer {
    /// Whether it may get what is offered.
    #[must_use]
    pub fn may_get(&self) -> bool {
        matches!(self.may, May::Get | May::Both)
    }

    /// Whether it may send here.
    #[must_use]
    pub fn may_send(&self) -> bool {
        matches!(self.may, May::Send | May::Both)
    }

    /// Its directory, where others have `default`.
    #[must_use]
    pub fn directory_below(&self, default: &Path) -> PathBuf {
        self.directory.as_ref().map_or_else(|| default.to_path_buf(), |own| default.join(own))
    }
}

impl From<Fingerprint> for Peer {
    /// A host that may send here.
    fn from(fingerprint: Fingerprint) -> Peer {
        Peer { fingerprint, name: String::new(), may: May::Send, directory: None, max: None }
    }
}

impl FromStr for May {
    type Err = String;

    /// `get`, `send` or `both`.
    fn from_str(text: &str) -> Result<May, String> {
        match text {
            "get" => Ok(May::Get),
            "send" => Ok(May::Send),
            "both" => Ok(May::Both),
            _ => Err(format!("'{text}' is not get, send or both")),
        }
    }
}

impl std::fmt::Display for May {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            May::Get => "get",
            May::Send => "send",
            May::Both => "both",
        })
    }
}
