//! The peers that a host knows by key, and their permissions.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use units::Rate;

use crate::Fingerprint;

/// A host that may send here, get from here, or both, without a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub fingerprint: Fingerprint,
    /// Its name here; may be empty.
    pub name: String,
    /// Its permission.
    pub may: May,
    /// Its own directory, in place of this host's; a relative path is below this host's.
    pub directory: Option<PathBuf>,
    /// Upper bound of its total rate, in each direction.
    pub max: Option<Rate>,
}

/// The permission of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum May {
    /// Get files from here.
    Get,
    /// Send files here.
    #[default]
    Send,
    /// Get and send.
    Both,
}

impl Peer {
    /// Whether it may get files from here.
    #[must_use]
    pub fn may_get(&self) -> bool {
        matches!(self.may, May::Get | May::Both)
    }

    /// Whether it may send files here.
    #[must_use]
    pub fn may_send(&self) -> bool {
        matches!(self.may, May::Send | May::Both)
    }

    /// Its directory; `default` if it has none of its own.
    #[must_use]
    pub fn directory_below(&self, default: &Path) -> PathBuf {
        self.directory.as_ref().map_or_else(|| default.to_path_buf(), |own| default.join(own))
    }
}

impl From<Fingerprint> for Peer {
    /// A host that may send here, without a name or a bound.
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
