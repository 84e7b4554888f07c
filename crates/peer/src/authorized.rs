//! The peers that a host knows by key, and their permissions.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use reach::{ListenRights, Reach};
use tokio::sync::watch;
use units::Rate;
use wire::manifest::is_plain;

use crate::Fingerprint;

/// A host that needs no token here, and its rights.
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
    /// What it may reach through a tunnel.
    pub tunnel: Reach,
    /// Where it may have this host listen for a tunnel.
    pub listen: ListenRights,
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
    /// Neither.
    None,
}

/// The peers that a listening host knows by key. Clones share one list, which may change while the
/// host listens: a peer whose entry changes loses its connections at once, and has to be admitted
/// again.
#[derive(Clone, Debug)]
pub struct AuthorizedPeers(Arc<watch::Sender<Vec<Peer>>>);

impl AuthorizedPeers {
    /// These peers; the first entry of a key counts.
    #[must_use]
    pub fn new(peers: Vec<Peer>) -> AuthorizedPeers {
        AuthorizedPeers(Arc::new(watch::Sender::new(peers)))
    }

    /// The entry of a key.
    #[must_use]
    pub fn find(&self, key: Fingerprint) -> Option<Peer> {
        find(&self.0.borrow(), key).cloned()
    }

    /// All entries.
    #[must_use]
    pub fn all(&self) -> Vec<Peer> {
        self.0.borrow().clone()
    }

    /// Whether any entry fulfils a condition.
    pub fn any(&self, condition: impl FnMut(&Peer) -> bool) -> bool {
        self.0.borrow().iter().any(condition)
    }

    /// Puts another list in the place of this one.
    pub fn replace(&self, peers: Vec<Peer>) {
        self.0.send_replace(peers);
    }

    /// Waits until the entry of a key is no longer `entry`.
    pub async fn changed(&self, key: Fingerprint, entry: Option<&Peer>) {
        let mut list = self.0.subscribe();
        let differs = |list: &Vec<Peer>| find(list, key) != entry;
        list.wait_for(differs).await.expect("this holds the sender");
    }
}

impl Default for AuthorizedPeers {
    /// No peer.
    fn default() -> AuthorizedPeers {
        AuthorizedPeers::new(Vec::new())
    }
}

fn find(list: &[Peer], key: Fingerprint) -> Option<&Peer> {
    list.iter().find(|peer| peer.fingerprint == key)
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
        Peer {
            fingerprint,
            name: String::new(),
            may: May::Send,
            directory: None,
            max: None,
            tunnel: Reach::default(),
            listen: ListenRights::default(),
        }
    }
}

impl FromStr for May {
    type Err = String;

    /// `get`, `send`, `both` or `none`.
    fn from_str(text: &str) -> Result<May, String> {
        match text {
            "get" => Ok(May::Get),
            "send" => Ok(May::Send),
            "both" => Ok(May::Both),
            "none" => Ok(May::None),
            _ => Err(format!("'{text}' is not get, send, both or none")),
        }
    }
}

impl std::fmt::Display for May {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            May::Get => "get",
            May::Send => "send",
            May::Both => "both",
            May::None => "none",
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
