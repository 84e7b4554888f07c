//! The listening side, for both directions of the data.
//!
//! [`receive`] has a sink, [`serve`] a source. Both are services behind a
//! [`peer::listen::Acceptor`].

mod receive;
mod serve;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use peer::carrier::Listener;
use peer::listen::display_address;
use peer::{Peer, PeerDirectory};
use rustix::io::Errno;
use tokio::net::TcpListener;

use crate::{Error, Event, beneath};

pub use receive::receive;
#[cfg(test)]
pub(crate) use receive::{Stalls, receive_unless_stalled};
pub use serve::serve;

/// The notice that a connection was refused.
fn refused(from: SocketAddr, reason: &str, unreported: u64) -> Event {
    let before = match unreported {
        0 => String::new(),
        count => format!(" ({count} others before it)"),
    };
    Event::Notice { text: format!("{} was refused: {reason}{before}", display_address(from)) }
}

/// The place of a peer's directory.
fn place_of(peer: &Peer) -> Result<PeerDirectory<'_>, Error> {
    peer.place().map_err(|why| Error::usage(format!("{}: {why}", of_peer(peer))))
}

/// The error for a peer's directory at `path` below `shared`.
fn cannot_open(peer: &Peer, shared: &OwnedFd, path: &[u8], errno: Errno) -> Error {
    let peer = of_peer(peer);
    match beneath::first_link(shared, path) {
        Some(link) => Error::usage(format!(
            "{peer}: {} is a symbolic link, and below a folder that peers share no link is \
             followed: put a folder in its place, or write an absolute path",
            String::from_utf8_lossy(link)
        )),
        None => Error::system(format!("open {peer}"), errno.into()),
    }
}

/// A peer's directory in messages, as in the list of authorized peers.
fn of_peer(peer: &Peer) -> String {
    let directory = peer.directory.clone().unwrap_or_default();
    let whose = if peer.name.is_empty() { peer.fingerprint.to_string() } else { peer.name.clone() };
    format!("dir={} of {whose}", directory.display())
}

/// Listening sockets as the acceptor takes them.
fn boxed(listeners: Vec<TcpListener>) -> Vec<Box<dyn Listener>> {
    listeners.into_iter().map(|listener| Box::new(listener) as Box<dyn Listener>).collect()
}
