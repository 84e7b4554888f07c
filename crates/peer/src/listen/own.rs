//! The addresses of this host as they change, and what peers are told of them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use net::interfaces::own_addresses;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::further_addresses;
use crate::carrier::Stream;

/// The interval of looks at the addresses of this host.
const LOOK: Duration = Duration::from_secs(1);

/// The addresses of this host at which others may reach it, looked at each second while anybody
/// follows them.
#[derive(Clone, Debug)]
pub(crate) struct OwnAddresses(watch::Receiver<Vec<IpAddr>>);

impl OwnAddresses {
    /// Follows the addresses of this host; needs a Tokio runtime.
    pub(crate) fn follow() -> OwnAddresses {
        let (sender, receiver) = watch::channel(own_addresses());
        tokio::spawn(look_on(sender));
        OwnAddresses(receiver)
    }

    /// A receiver to which the present addresses are known.
    pub(crate) fn changes(&self) -> watch::Receiver<Vec<IpAddr>> {
        let mut changes = self.0.clone();
        changes.mark_unchanged();
        changes
    }
}

/// Looks at the addresses until nobody can ask for them.
async fn look_on(sender: watch::Sender<Vec<IpAddr>>) {
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = sleep(LOOK) => {}
        }
        // The first receiver is the host's own.
        if sender.receiver_count() > 1
            && let Ok(own) = spawn_blocking(own_addresses).await
        {
            sender.send_if_modified(|known| {
                let is_new = *known != own;
                *known = own;
                is_new
            });
        }
    }
}

/// What the peer of one connection is told of this host's addresses when they change.
#[derive(Debug)]
pub(crate) struct Announcer {
    own: watch::Receiver<Vec<IpAddr>>,
    /// The addresses that were named to listen at; none: all.
    named: Vec<SocketAddr>,
}

impl Announcer {
    pub(crate) fn new(own: &OwnAddresses, named: &[SocketAddr]) -> Announcer {
        Announcer { own: own.changes(), named: named.to_vec() }
    }

    /// The addresses of this host for the peer of `stream`, if they have changed since the last
    /// call.
    pub(crate) fn changed(&mut self, stream: &dyn Stream) -> Option<Vec<SocketAddr>> {
        // Without a sender the host is closed.
        if !self.own.has_changed().unwrap_or(false) {
            return None;
        }
        self.own.mark_unchanged();
        let addresses = further_addresses(stream, &self.named);
        tracing::debug!(?addresses, "announces its addresses anew");
        (!addresses.is_empty()).then_some(addresses)
    }
}
