//! The two lists of trust: receivers that this host knows by name, and senders that may send here without a token.
//!
//! Both are text files of a line a peer, `NAME FINGERPRINT` and `FINGERPRINT [NAME]`, with `#` for comments, so that they can
//! be written by hand as well.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use net::{Error, Fingerprint};

use crate::dirs::Dirs;

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Hosts to send to.
    Receivers,
    /// Hosts that may send here.
    Senders,
}

/// A peer on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// A receiver's host, as given to `--to`; a sender's label, which may be empty.
    pub(crate) name: String,
    /// Its key.
    pub(crate) fingerprint: Fingerprint,
}

impl List {
    fn path(self, dirs: &Dirs) -> PathBuf {
        match self {
            List::Receivers => dirs.known_receivers(),
            List::Senders => dirs.authorized_peers(),
        }
    }

    /// Everyone on the list; nobody if there is no file.
    ///
    /// # Errors
    /// [`Error::Usage`] with the line that can't be understood.
    pub(crate) fn load(self, dirs: &Dirs) -> Result<Vec<Peer>, Error> {
        let path = self.path(dirs);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(system("read", &path, error)),
        };
        let mut peers = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if let Some(peer) = self.parse(line) {
                let at = |reason| Error::Usage(format!("{}, line {}: {reason}", path.display(), number + 1));
                peers.push(peer.map_err(at)?);
            }
        }
        Ok(peers)
    }

    /// Puts `peer` on the list, in place of one of the same name (receivers) or key (senders).
    ///
    /// # Errors
    /// Those of reading and writing the file.
    pub(crate) fn add(self, dirs: &Dirs, peer: Peer) -> Result<(), Error> {
        let mut peers = self.load(dirs)?;
        match self {
            List::Receivers => peers.retain(|known| known.name != peer.name),
            List::Senders => peers.retain(|known| known.fingerprint != peer.fingerprint),
        }
        peers.push(peer);
        self.store(dirs, &peers)
    }

    /// Takes everyone of this name or fingerprint off the list; how many there were.
    ///
    /// # Errors
    /// Those of reading and writing the file.
    pub(crate) fn remove(self, dirs: &Dirs, which: &str) -> Result<usize, Error> {
        let peers = self.load(dirs)?;
        let (gone, stay): (Vec<Peer>, Vec<Peer>) =
            peers.into_iter().partition(|peer| peer.name == which || peer.fingerprint.to_string() == which);
        if !gone.is_empty() {
            self.store(dirs, &stay)?;
        }
        Ok(gone.len())
    }

    /// One line; `None` for an empty one or a comment.
    fn parse(self, line: &str) -> Option<Result<Peer, String>> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let second = words.next();
        if words.next().is_some() {
            return Some(Err("more than a name and a fingerprint".into()));
        }
        let (name, fingerprint) = match (self, second) {
            (List::Receivers, Some(fingerprint)) => (first, fingerprint),
            (List::Receivers, None) => return Some(Err("a receiver needs a host and a fingerprint".into())),
            (List::Senders, name) => (name.unwrap_or_default(), first),
        };
        Some(fingerprint.parse().map(|fingerprint| Peer { name: name.to_string(), fingerprint }))
    }

    /// Writes the whole list aside and renames, so that a reader never sees half of it.
    fn store(self, dirs: &Dirs, peers: &[Peer]) -> Result<(), Error> {
        let path = self.path(dirs);
        let mut text = match self {
            List::Receivers => String::from("# HOST FINGERPRINT, written by 'anabranch keys trust receiver'\n"),
            List::Senders => String::from("# FINGERPRINT [NAME], written by 'anabranch keys trust sender'\n"),
        };
        for Peer { name, fingerprint } in peers {
            let line = match self {
                List::Receivers => format!("{name} {fingerprint}"),
                List::Senders => format!("{fingerprint} {name}"),
            };
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let folder = path.parent().expect("the lists lie in the configuration folder");
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|e| system("make the folder of", &path, e))?;
        let aside = path.with_extension(format!("new-{}", std::process::id()));
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.and_then(|()| fs::rename(&aside, &path)).map_err(|e| system("write", &path, e))
    }
}

fn system(action: &str, path: &Path, source: io::Error) -> Error {
    Error::System { action: format!("{action} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back() {
        let fingerprint = net::Identity::generate().unwrap().fingerprint();
        let line = format!("  nas.example {fingerprint}  # the one in the cellar");
        assert_eq!(List::Receivers.parse(&line), Some(Ok(Peer { name: "nas.example".into(), fingerprint })));
        let sender = List::Senders.parse(&fingerprint.to_string());
        assert_eq!(sender, Some(Ok(Peer { name: String::new(), fingerprint })));
        assert_eq!(List::Senders.parse("# nobody"), None);
        assert!(List::Receivers.parse("nas.example").unwrap().is_err());
        assert!(List::Receivers.parse(&format!("a b {fingerprint}")).unwrap().is_err());
    }
}
