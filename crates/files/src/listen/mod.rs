//! The listening side, for both directions of the data.
//!
//! [`receive`] has a sink, [`serve`] a source. Both are services of a [`peer::host::Host`], alone
//! or beside others.

mod receive;
mod serve;
#[cfg(test)]
mod testing;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peer::host::{Carriers, Host};
use peer::metrics::{Registry, register_budget};
use peer::places::Places;
use peer::{Conn, ListenOptions, Peer};
use rustix::io::Errno;
use wire::session::SessionFrame;

use crate::rights::{DIR, PeerDirectory, directory_of};
use crate::{Error, beneath};
use events::Events;

pub use receive::{Receiving, receive};
#[cfg(test)]
pub(crate) use receive::{Stalls, receive_unless_stalled};
pub use serve::{Serving, serve};

/// Numbers of transfers, for services of one host whose events one observer reads.
#[derive(Clone, Debug, Default)]
pub struct TransferNumbers(Arc<AtomicU32>);

impl TransferNumbers {
    /// The next number, from 1 on.
    pub(crate) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Opens the sockets of a host with one service.
///
/// # Errors
/// [`peer::Error::System`], with the address that the kernel refused.
fn open(options: &ListenOptions, events: &Events) -> Result<Host, Error> {
    let stripe = stripe::Options::default();
    Ok(Host::bind(options.clone(), Carriers::Both, &stripe, events.clone())?)
}

/// Answers the last ping of a connection, and tells its peer of addresses that this host got.
fn answer_ping(conn: &mut Conn, pong: Option<u64>) {
    if let Some(number) = pong {
        conn.push(&SessionFrame::Pong(number));
    }
    conn.announce_changes();
}

/// Registers places of work on behalf of peers. `what` is the subject.
fn register_places(registry: &mut Registry, name: &str, what: &str, places: &Arc<Places>) {
    let (places, most) = (Arc::clone(places), places.most() as u64);
    register_budget(registry, name, what, None, most, move || places.count() as u64);
}

/// The place of a peer's directory.
fn place_of(peer: &Peer) -> Result<PeerDirectory<'_>, Error> {
    directory_of(peer).map_err(|why| Error::usage(format!("{}: {why}", of_peer(peer))))
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
    format!("dir={} of {}", peer.rights.word(DIR).unwrap_or_default(), peer.label())
}
