//! The listening side, for both directions of the data.
//!
//! [`receive`] has a sink, [`serve`] a source. Both are services behind a
//! [`peer::listen::Acceptor`].

mod receive;
mod serve;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use peer::carrier::Listener;
use peer::listen::{Acceptor, Admitted, Service, reachable, refusal_text};
use peer::sockets::Sockets;
use peer::striped::{self, carrier::StripedListener};
use peer::{Identity, ListenOptions, Peer, PeerDirectory};
use rustix::io::Errno;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::{Error, Event, Events, beneath};

pub use receive::receive;
#[cfg(test)]
pub(crate) use receive::{Stalls, receive_unless_stalled};
pub use serve::serve;

/// The notice that a connection was refused.
fn refused(from: SocketAddr, reason: &str, unreported: u64) -> Event {
    Event::Notice { text: refusal_text(from, reason, unreported) }
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

/// The listening sockets of a host: TCP, and UDP at the same ports.
pub(super) struct Doors {
    tcp: Vec<TcpListener>,
    udp: Option<striped::UdpListener>,
}

/// How long the last words over UDP may take.
const FAREWELL: Duration = Duration::from_millis(500);

impl Doors {
    /// Opens the sockets. Without UDP, whose ports may be taken, the host listens at TCP alone.
    ///
    /// # Errors
    /// [`peer::Error::System`], with the address that the kernel refused.
    pub(super) fn open(options: &ListenOptions, events: &Events) -> Result<Doors, Error> {
        let Sockets { tcp, udp, notice } = Sockets::open(options, &stripe::Options::default())?;
        if let Some(text) = notice {
            let _ = events.send(Event::Notice { text });
        }
        let udp = match udp {
            Ok(udp) => Some(udp),
            Err(error) => {
                let text = format!("{error}: transfers use TCP alone");
                let _ = events.send(Event::Notice { text });
                None
            }
        };
        Ok(Doors { tcp, udp })
    }

    /// The addresses at which the host can be reached.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        reachable(&self.tcp)
    }

    /// Accepts connections at all of them, until the result is dropped.
    ///
    /// # Errors
    /// [`peer::Error::System`] if the library refuses the host's key.
    pub(super) fn accept<S: Service>(
        self,
        service: &Arc<S>,
        identity: &Identity,
    ) -> Result<Accepting<S>, Error> {
        let Doors { tcp, udp } = self;
        let admitted = Admitted::new(service.authorized());
        let boxed = |listener| Box::new(listener) as Box<dyn Listener>;
        let mut listeners: Vec<_> = tcp.into_iter().map(boxed).collect();
        let mut endpoint = None;
        if let Some(udp) = udp {
            endpoint = Some(udp.endpoint());
            listeners.push(Box::new(StripedListener::new(udp, admitted.clone())));
        }
        let service = Arc::clone(service);
        let acceptor = Acceptor::start_with(service, identity, listeners, admitted)?;
        Ok(Accepting { acceptor, endpoint })
    }
}

/// Accepts connections until it is dropped.
pub(super) struct Accepting<S> {
    acceptor: Acceptor<S>,
    endpoint: Option<Arc<stripe::Endpoint>>,
}

impl<S> Accepting<S> {
    /// Ends all connections. Peers over UDP are told, within half a second.
    pub(super) async fn close(self) {
        drop(self.acceptor);
        if let Some(endpoint) = self.endpoint {
            let _ = timeout(FAREWELL, endpoint.wait_idle()).await;
        }
    }
}
