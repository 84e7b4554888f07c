//! The peers that a host knows by key, and their permissions.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use units::Rate;
use wire::manifest::is_plain;

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
    /// Its own directory, in place of this host's ([`PeerDirectory`]).
    pub directory: Option<PathBuf>,
    /// Upper bound of its total rate, in each direction.
    pub max: Option<Rate>,
}

/// The place of a peer's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerDirectory<'a> {
    /// This host's directory.
    Shared,
    /// A directory of the administrator's choice.
    Absolute(&'a Path),
    /// Below this host's directory, in which other peers may have changed anything: it must be
    /// reached through no link. A plain path, as that of a [manifest](is_plain).
    Below(Vec<u8>),
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

    /// The place of its directory.
    ///
    /// # Errors
    /// If its path is none of a [`PeerDirectory`].
    pub fn place(&self) -> Result<PeerDirectory<'_>, String> {
        self.directory.as_deref().map_or(Ok(PeerDirectory::Shared), PeerDirectory::try_from)
    }
}

impl<'a> TryFrom<&'a Path> for PeerDirectory<'a> {
    type Error = String;

    fn try_from(path: &'a Path) -> Result<PeerDirectory<'a>, String> {
        if path.is_absolute() {
            return Ok(PeerDirectory::Absolute(path));
        }
        let mut below = Vec::new();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => below.push(name.as_bytes()),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(
                        "'..' would lead out of the folder of 'receive' or 'serve': write \
                                an absolute path"
                            .into(),
                    );
                }
            }
        }
        let below = below.join(&b'/');
        if below.is_empty() {
            return Ok(PeerDirectory::Shared);
        }
        if !is_plain(&below) {
            return Err("a folder cannot have this name: it is too long, or that of a staging \
                        folder"
                .into());
        }
        Ok(PeerDirectory::Below(below))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_directory_is_plain_and_leads_down() {
        let place = |path| PeerDirectory::try_from(Path::new(path));
        let below = |path: &str| Ok(PeerDirectory::Below(path.into()));
        assert_eq!(
            place("/srv/../photos"),
            Ok(PeerDirectory::Absolute(Path::new("/srv/../photos")))
        );
        assert_eq!(place("photos/anna"), below("photos/anna"));
        assert_eq!(place("./photos//anna/"), below("photos/anna"));
        assert_eq!(place("."), Ok(PeerDirectory::Shared));
        for path in ["..", "../x", "a/../../x", "a/.."] {
            assert!(place(path).is_err_and(|why| why.contains("'..'")), "{path}");
        }
        assert!(place(".anabranch-partial/x").is_err());
        let peer = Peer::from(Fingerprint::from([1; 32]));
        assert_eq!(peer.place(), Ok(PeerDirectory::Shared));
    }
}
