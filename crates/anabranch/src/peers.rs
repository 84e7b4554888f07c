//! The two lists of trusted keys: known hosts to send to or get from, and peers that may send here,
//! or get from here, without a token.
//!
//! Both are editable text files with a peer on each line, `NAME FINGERPRINT` (with `[NAME]:PORT`
//! for one port alone) or `FINGERPRINT [NAME] [KEY=VALUE]…` with words of the services, and `#` for
//! comments.

use std::convert::Infallible;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use events::Events;
use files::Error;
use peer::private::{Guard, check_private, create_fresh, open_regular};
use peer::{AuthorizedPeers, Fingerprint, Remote, Rights, RightsKey};
use tokio::time::sleep;

use crate::dirs::{Dirs, is_absent};
use crate::sanitize::clean;

mod receiver;

pub(crate) use receiver::ReceiverName;

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Hosts to send to, or get from.
    Receivers,
    /// Hosts that may send here, or get from here.
    Senders,
}

/// A peer on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// A [`ReceiverName`]; a sender's label, which may be empty.
    pub(crate) name: String,
    /// The peer's key.
    pub(crate) fingerprint: Fingerprint,
    /// A sender's permissions; default for a receiver.
    pub(crate) rights: Rights,
}

/// The words of rights that services read, in the order in which they are written.
pub(crate) fn rights_keys() -> impl Iterator<Item = &'static RightsKey> {
    let [may, max, relay_at] = &peer::rights::RIGHTS;
    let (files, tunnel) = (&files::rights::RIGHTS, &tunnel::rights::RIGHTS);
    let services = tunnel.iter().chain(&relay::rights::RIGHTS).chain(&gateway::rights::RIGHTS);
    [may].into_iter().chain(files).chain([max]).chain(services).chain([relay_at])
}

/// Sets a right from `key=value`; `None` if there is no such key.
pub(crate) fn set_right(rights: &mut Rights, word: &str) -> Option<Result<(), String>> {
    let (key, value) = word.split_once('=')?;
    let key = rights_keys().find(|known| known.key == key)?;
    Some(rights.set(key, value).map_err(|why| format!("{}=: {why}", key.key)))
}

/// The words of rights, each behind a space.
pub(crate) fn words(rights: &Rights) -> String {
    let words = rights_keys().filter_map(|key| Some((key.key, rights.word(key.key)?)));
    words.fold(String::new(), |text, (key, value)| format!("{text} {key}={value}"))
}

/// The forms of all words.
fn forms() -> Vec<String> {
    rights_keys().map(|key| format!("{}={}", key.key, key.form)).collect()
}

impl From<Peer> for peer::Peer {
    fn from(Peer { name, fingerprint, rights }: Peer) -> peer::Peer {
        peer::Peer { fingerprint, name, rights }
    }
}

impl List {
    fn path(self, dirs: &Dirs) -> PathBuf {
        match self {
            List::Receivers => dirs.known_receivers(),
            List::Senders => dirs.authorized_peers(),
        }
    }

    /// The peers on the list; empty if there is no file.
    ///
    /// # Errors
    /// [`Error::usage`] with the number of an invalid line; [`Error::System`] if others may change
    /// the file.
    pub(crate) fn load(self, dirs: &Dirs) -> Result<Vec<Peer>, Error> {
        let path = self.path(dirs);
        let read = |mut file: fs::File| {
            check_private(&file, &path, Guard::Trusted)?;
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        };
        let text = match open_regular(&path).and_then(read) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(system("use", &path, error)),
        };
        let mut peers = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if let Some(peer) = self.parse(line) {
                let at = |reason| {
                    Error::usage(format!("{}, line {}: {reason}", path.display(), number + 1))
                };
                peers.push(peer.map_err(at)?);
            }
        }
        Ok(peers)
    }

    /// Adds `peer`, or replaces the one with the same name (receivers) or key (senders).
    ///
    /// # Errors
    /// [`Error::usage`] if no line would be read back as this peer; errors of reading and writing
    /// the file.
    pub(crate) fn add(self, dirs: &Dirs, peer: Peer) -> Result<(), Error> {
        if self.parse(&self.line(&peer)).as_ref() != Some(&Ok(peer.clone())) {
            return Err(Error::usage(format!(
                "{} cannot hold '{}': a name or folder there is one word of UTF-8 without '#', \
                 and a name has no '='",
                self.path(dirs).display(),
                clean(&self.line(&peer)),
            )));
        }
        let mut peers = self.load(dirs)?;
        match self {
            List::Receivers => peers.retain(|known| known.name != peer.name),
            List::Senders => peers.retain(|known| known.fingerprint != peer.fingerprint),
        }
        peers.push(peer);
        self.store(dirs, &peers)
    }

    /// Removes the peers with this name or fingerprint, and gives their number.
    ///
    /// # Errors
    /// Errors of reading and writing the file.
    pub(crate) fn remove(self, dirs: &Dirs, which: &str) -> Result<usize, Error> {
        let peers = self.load(dirs)?;
        let (gone, stay): (Vec<Peer>, Vec<Peer>) = peers
            .into_iter()
            .partition(|peer| peer.name == which || peer.fingerprint.to_string() == which);
        if !gone.is_empty() {
            self.store(dirs, &stay)?;
        }
        Ok(gone.len())
    }

    /// Parses a line; `None` for an empty one or a comment.
    fn parse(self, line: &str) -> Option<Result<Peer, String>> {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let mut second = words.next();
        let mut rights = Rights::default();
        let (name, fingerprint) = match self {
            List::Receivers => {
                let Some(fingerprint) = second else {
                    return Some(Err("a receiver needs a host and a fingerprint".into()));
                };
                if words.next().is_some() {
                    return Some(Err("unexpected text after the fingerprint".into()));
                }
                // As it is looked up: in the usual spelling.
                let name = first.parse::<ReceiverName>().map(|name| name.to_string());
                (name.unwrap_or_else(|_| first.to_string()), fingerprint)
            }
            List::Senders => {
                let mut name = "";
                let mut position = 0;
                while let Some(word) = second.take().or_else(|| words.next()) {
                    match set_right(&mut rights, word) {
                        Some(Ok(())) => {}
                        Some(Err(why)) => return Some(Err(why)),
                        None if position == 0 => name = word,
                        None => {
                            let (last, forms) = (forms().pop(), forms());
                            let others = forms[..forms.len() - 1].join(", ");
                            let why = format!(
                                "'{word}' is no option; the options are {others} and {}",
                                last.unwrap_or_default()
                            );
                            return Some(Err(why));
                        }
                    }
                    position += 1;
                }
                (name.to_string(), first)
            }
        };
        Some(fingerprint.parse().map(|fingerprint| Peer { name, fingerprint, rights }))
    }

    /// The line of a peer.
    fn line(self, Peer { name, fingerprint, rights }: &Peer) -> String {
        match self {
            List::Receivers => format!("{name} {fingerprint}"),
            List::Senders if name.is_empty() => format!("{fingerprint}{}", words(rights)),
            List::Senders => format!("{fingerprint} {name}{}", words(rights)),
        }
    }

    /// Writes the list to a temporary file and renames it, so that a reader never sees half of it.
    fn store(self, dirs: &Dirs, peers: &[Peer]) -> Result<(), Error> {
        let path = self.path(dirs);
        let mut text = match self {
            List::Receivers => String::from(
                "# HOST FINGERPRINT or [HOST]:PORT FINGERPRINT, written by 'anabranch keys \
                     trust receiver'\n",
            ),
            List::Senders => format!(
                "# FINGERPRINT [NAME] [{}], written by 'anabranch keys trust sender'\n",
                forms().join("] [")
            ),
        };
        for peer in peers {
            text.push_str(&self.line(peer));
            text.push('\n');
        }
        let folder = path.parent().expect("the lists lie in the configuration folder");
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|e| unwritable(&path, e))?;
        let temporary = path.with_extension(format!("new-{}", std::process::id()));
        let written = create_fresh(&temporary)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.and_then(|()| fs::rename(&temporary, &path)).map_err(|e| unwritable(&path, e))
    }
}

/// The key of a receiver on the list: that of its port, or else that of its host.
pub(crate) fn key_of(receivers: &[Peer], to: &Remote) -> Option<Fingerprint> {
    let find = |name: &ReceiverName| {
        let name = name.to_string();
        receivers.iter().find(|peer| peer.name == name)
    };
    let names = [ReceiverName::at_port(to), ReceiverName::of_host(to)];
    names.iter().find_map(find).map(|peer| peer.fingerprint)
}

/// The authorized peers of a host that listens, as long as it does.
pub(crate) struct Authorized {
    pub(crate) peers: AuthorizedPeers,
    dirs: Dirs,
    /// What the file was when it was read last.
    seen: Option<FileVersion>,
}

/// What changes when a file is replaced or written: its inode, size and times.
type FileVersion = (u64, u64, [(i64, i64); 2]);

/// The interval at which the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Authorized {
    /// Reads the list.
    ///
    /// # Errors
    /// As [`List::load`].
    pub(crate) fn load(dirs: &Dirs) -> Result<Authorized, Error> {
        let seen = version(&List::Senders.path(dirs));
        let peers = AuthorizedPeers::new(authorized_peers(dirs)?);
        Ok(Authorized { peers, dirs: dirs.clone(), seen })
    }

    /// Runs `listening`, and meanwhile takes over changes of the file within a second.
    pub(crate) async fn follow<T>(
        mut self,
        events: Events,
        listening: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            ended = listening => ended,
            never = self.keep_looking(&events) => match never {},
        }
    }

    async fn keep_looking(&mut self, events: &Events) -> Infallible {
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(text) = self.look() {
                events.notice(text);
            }
        }
    }

    /// Takes over a change of the file. Returns a message about it.
    fn look(&mut self) -> Option<String> {
        let path = List::Senders.path(&self.dirs);
        let found = version(&path);
        if found == self.seen {
            return None;
        }
        self.seen = found;
        Some(match authorized_peers(&self.dirs) {
            Ok(peers) => {
                let count = peers.len();
                self.peers.replace(peers);
                format!("{} has changed: {count} hosts are authorized by key", path.display())
            }
            Err(error) => format!("{error}; the list that was read before still counts"),
        })
    }
}

fn authorized_peers(dirs: &Dirs) -> Result<Vec<peer::Peer>, Error> {
    Ok(List::Senders.load(dirs)?.into_iter().map(Into::into).collect())
}

fn version(path: &Path) -> Option<FileVersion> {
    let file = fs::metadata(path).ok()?;
    let times = [(file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec())];
    Some((file.ino(), file.size(), times))
}

fn unwritable(path: &Path, source: io::Error) -> Error {
    let action = format!(
        "write {} (make its folder writable, or set ANABRANCH_HOME to one that is)",
        path.display()
    );
    Error::system(action, source)
}

fn system(action: &str, path: &Path, source: io::Error) -> Error {
    Error::system(format!("{action} {}", path.display()), source)
}

#[cfg(test)]
mod tests;
