//! The rights of peers that this crate's services read: in which direction files may flow is
//! [`May`](peer::May), and `dir=` is a folder of a peer's own.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use peer::{Peer, RightsKey};
use wire::manifest::is_plain;

/// The rights' words of this crate.
pub static RIGHTS: [RightsKey; 1] = [RightsKey {
    key: DIR,
    form: "PATH",
    spell: |text| {
        if text.is_empty() {
            return Err("expected a folder".into());
        }
        PeerDirectory::try_from(Path::new(text)).map(|_| Some(text.into()))
    },
}];

/// The key of a peer's own folder, in place of the host's.
pub const DIR: &str = "dir";

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

/// The place of a peer's directory.
///
/// # Errors
/// If its path is none of a [`PeerDirectory`].
pub(crate) fn directory_of(peer: &Peer) -> Result<PeerDirectory<'_>, String> {
    peer.rights.word(DIR).map_or(Ok(PeerDirectory::Shared), |path| Path::new(path).try_into())
}

#[cfg(test)]
mod tests {
    use peer::Fingerprint;

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
        assert_eq!(directory_of(&peer), Ok(PeerDirectory::Shared));
    }
}
