//! A host that waits at relays, over UDP: its listening sockets bind their addresses there, each
//! local address as a route of its own, and peers are told the addresses that the relays saw.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use net::interfaces::discover_remote;
use stripe::{Endpoint, Lead, ListeningLead};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::WaitingRelay;
use crate::dial::resolve;
use crate::listen::own::OwnAddresses;

/// The local addresses that are bound at one relay, at most.
const MOST_SOURCES: usize = 8;
/// The time between looks at the relays' addresses; other addresses of this host count at once.
const LOOK: Duration = Duration::from_secs(10);
/// The same while a relay has no address.
const LOOK_SOON: Duration = Duration::from_secs(2);

/// The addresses under which each relay knows the listening sockets.
type Seen = Vec<Vec<SocketAddr>>;

/// What relays know of the listening sockets, as long as these are bound there.
#[derive(Clone, Debug)]
pub(super) struct Awaiting {
    seen: watch::Receiver<Seen>,
    /// The local addresses that are bound.
    sources: watch::Receiver<Vec<IpAddr>>,
    _keeping: Arc<Keeping>,
}

#[derive(Debug)]
struct Keeping(AbortHandle);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Awaiting {
    /// Binds the sockets of `endpoint` at these relays, from the local addresses that are among
    /// `named`, if any are.
    pub(super) fn begin(
        endpoint: &Arc<Endpoint>,
        relays: Vec<WaitingRelay>,
        named: &[SocketAddr],
        own: &OwnAddresses,
    ) -> Awaiting {
        let (seen, seen_by) = watch::channel(vec![Vec::new(); relays.len()]);
        let (bound, sources) = watch::channel(Vec::new());
        let named = named.iter().map(SocketAddr::ip).collect();
        let (endpoint, own) = (Arc::downgrade(endpoint), own.clone());
        let keeping = tokio::spawn(keep(endpoint, relays, (named, own), (seen, bound)));
        let keeping = Arc::new(Keeping(keeping.abort_handle()));
        Awaiting { seen: seen_by, sources, _keeping: keeping }
    }

    /// The addresses that relays see, each once.
    pub(super) fn seen(&mut self) -> Vec<SocketAddr> {
        let mut all: Vec<SocketAddr> = Vec::new();
        for address in self.seen.borrow_and_update().iter().flatten() {
            if !all.contains(address) {
                all.push(*address);
            }
        }
        all
    }

    /// Waits until relays see other addresses, for ever once that cannot be.
    pub(super) async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The local addresses that are bound.
    pub(super) fn sources(&self) -> Vec<IpAddr> {
        self.sources.borrow().clone()
    }
}

/// Keeps the sockets bound.
async fn keep(
    endpoint: Weak<Endpoint>,
    relays: Vec<WaitingRelay>,
    (named, own): (Vec<IpAddr>, OwnAddresses),
    (seen, bound): (watch::Sender<Seen>, watch::Sender<Vec<IpAddr>>),
) {
    let seen = Arc::new(seen);
    let mut following = JoinSet::new();
    for (number, relay) in relays.iter().enumerate() {
        following.spawn(follow(number, relay.leading.seen(), Arc::clone(&seen)));
    }
    let mut changes = own.changes();
    let mut leads: BTreeMap<(usize, SocketAddr, IpAddr), Lead> = BTreeMap::new();
    loop {
        let (mut wanted, mut is_whole) = (BTreeSet::new(), true);
        for (number, relay) in relays.iter().enumerate() {
            let places = places(relay, &named).await;
            is_whole &= !places.is_empty();
            wanted.extend(places.into_iter().map(|(relay, local)| (number, relay, local)));
        }
        leads.retain(|place, _| wanted.contains(place));
        for place in wanted {
            if !leads.contains_key(&place)
                && let Some(lead) = relays[place.0].leading.lead()
            {
                leads.insert(place, lead);
            }
        }
        let Some(endpoint) = endpoint.upgrade() else { return };
        let listening = |((_, relay, local), lead): (&(usize, SocketAddr, IpAddr), &Lead)| {
            ListeningLead { lead: lead.clone(), relay: *relay, source: Some(*local) }
        };
        endpoint.listen_over(leads.iter().map(listening).collect());
        drop(endpoint);
        let sources: BTreeSet<IpAddr> = leads.keys().map(|(_, _, local)| *local).collect();
        bound.send_replace(sources.into_iter().collect());
        let pause = if is_whole { LOOK } else { LOOK_SOON };
        // An error: the host is closed, and this with it.
        let _ = timeout(pause, changes.changed()).await;
    }
}

/// The addresses of a relay, one of each family, each with the local addresses that reach it.
async fn places(relay: &WaitingRelay, named: &[IpAddr]) -> Vec<(SocketAddr, IpAddr)> {
    let addresses = resolve(&relay.dial).await.unwrap_or_default();
    let first = |is_v4| addresses.iter().find(move |address| address.is_ipv4() == is_v4);
    let mut places = Vec::new();
    for address in [first(true), first(false)].into_iter().flatten().copied() {
        let asked = spawn_blocking(move || discover_remote(address)).await;
        let Ok(Ok(found)) = asked else { continue };
        let locals = found.usable.into_iter().map(|local| local.address);
        let locals = locals.filter(|local| named.is_empty() || named.contains(local));
        places.extend(locals.take(MOST_SOURCES).map(|local| (address, local)));
    }
    places
}

/// Notes what one relay sees.
async fn follow(
    number: usize,
    mut of_relay: watch::Receiver<BTreeMap<u8, SocketAddr>>,
    seen: Arc<watch::Sender<Seen>>,
) {
    loop {
        let now: Vec<SocketAddr> = of_relay.borrow_and_update().values().copied().collect();
        tracing::debug!(relay = number, ?now, "addresses seen by a relay");
        seen.send_if_modified(|all| std::mem::replace(&mut all[number], now.clone()) != now);
        if of_relay.changed().await.is_err() {
            return;
        }
    }
}
