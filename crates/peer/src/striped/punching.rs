//! Ways through what translates and filters between two hosts that met at a relay.
//!
//! The side that dials sends from the socket of each direct route to the address of the other side,
//! which opens its own translator, and asks the relay what address that socket has outside. It
//! tells the other side these addresses, over the connection. That sends a few datagrams to each of
//! them from its listening sockets, which opens its own translator, and whose tag shows that they
//! are its own. If they come from another address than the one that was dialed, because the
//! translator there has another port for each destination, the route goes there.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use net::socket::unmapped;
use stripe::{Endpoint, Lead, Preamble};
use tokio::task::JoinSet;
use tokio::time::sleep;
use units::{Span, Time};
use wire::asked::{MOST_PUNCHED, PUNCH_SECRET, Punches};
use wire::bind::{BIND, BIND_TAG, BindDatagram, BindKind, COOKIE};
use wire::relay::LabelPair;

use crate::tags::TagKey;
use crate::{Error, random};

/// How long a route waits for the relay to say what address it has, before its paths are tried
/// without.
const UNSEEN: Span = Span::from_millis(500);
/// How soon there may be news of such a route.
const SELDOM: Span = Span::from_secs(1);
/// The waits before each of the datagrams to one address, in milliseconds.
const PAUSES: [u64; 10] = [0, 50, 50, 100, 100, 200, 300, 400, 800, 1_000];

/// What the datagrams are known by that the other side of one connection sends.
#[derive(Clone, Debug)]
pub(super) struct PunchKey {
    id: u64,
    secret: [u8; PUNCH_SECRET],
    tags: TagKey,
}

impl PunchKey {
    /// A random one.
    ///
    /// # Errors
    /// [`Error::System`] if the system has no random numbers.
    pub(super) fn generate() -> Result<PunchKey, Error> {
        let mut secret = [0; PUNCH_SECRET];
        secret[..16].copy_from_slice(&random()?);
        secret[16..].copy_from_slice(&random()?);
        let id = u64::from_be_bytes(*random()?.first_chunk().expect("it has 16"));
        Ok(PunchKey::of(id, secret))
    }

    fn of(id: u64, secret: [u8; PUNCH_SECRET]) -> PunchKey {
        PunchKey { id, secret, tags: TagKey::new(&secret) }
    }

    /// What is asked of the other side.
    pub(super) fn wish(&self, addresses: Vec<SocketAddr>) -> Punches {
        Punches { id: self.id, secret: self.secret, addresses }
    }

    fn datagram(&self) -> [u8; BIND] {
        let (kind, association, route) = (BindKind::Punch, self.id, 0);
        let (cookie, tag) = ([0; COOKIE], [0; BIND_TAG]);
        self.tags.tagged(BindDatagram { kind, association, route, cookie, tag }).octets()
    }

    fn is_own(&self, datagram: &[u8]) -> bool {
        BindDatagram::parse(datagram).is_ok_and(|punch| {
            punch.kind == BindKind::Punch
                && punch.association == self.id
                && self.tags.has_tagged(&punch)
        })
    }
}

/// The preamble of a direct route.
#[derive(Debug)]
pub(super) struct PunchedRoute {
    key: PunchKey,
    /// Where the route leads.
    dialed: SocketAddr,
    /// What asks the relay, and its address.
    asks: Option<(Lead, SocketAddr)>,
    state: Mutex<PunchedState>,
}

#[derive(Debug, Default)]
struct PunchedState {
    begun_at: Option<Time>,
    /// Whether the relay has not answered in time.
    is_late: bool,
    /// Where the other side's datagrams come from.
    heard_from: Option<SocketAddr>,
}

impl PunchedRoute {
    /// That of a route to an address; `asks` asks the relay with that address.
    pub(super) fn lead(
        key: &PunchKey,
        dialed: SocketAddr,
        asks: Option<(Lead, SocketAddr)>,
    ) -> Lead {
        let (key, state) = (key.clone(), Mutex::default());
        Lead(Arc::new(PunchedRoute { key, dialed, asks, state }))
    }

    fn state(&self) -> MutexGuard<'_, PunchedState> {
        self.state.lock().expect("no panic while held")
    }

    fn asks(&self) -> Option<&dyn Preamble> {
        self.asks.as_ref().map(|(lead, _)| &*lead.0)
    }
}

impl Preamble for PunchedRoute {
    fn handle_labels(&self, _: &[LabelPair]) {}

    fn handle_retired(&self, _: &[LabelPair]) {}

    fn handle_reopened(&self) {
        self.state().heard_from = None;
        if let Some(asks) = self.asks() {
            asks.handle_reopened();
        }
    }

    fn handle_datagram(&self, now: Time, from: SocketAddr, datagram: &[u8]) {
        if self.key.is_own(datagram) {
            let from = unmapped(from);
            // One from another interface of the host is for another route. The first one counts: a
            // translator has one port for this destination.
            if from.ip() == self.dialed.ip() {
                self.state().heard_from.get_or_insert(from);
            }
        } else if let Some((lead, relay)) = &self.asks
            && from == *relay
        {
            lead.0.handle_datagram(now, from, datagram);
        }
    }

    fn poll_transmit(&self, now: Time) -> Option<Vec<u8>> {
        let mut state = self.state();
        let begun = *state.begun_at.get_or_insert(now);
        state.is_late |= begun + UNSEEN <= now;
        drop(state);
        self.asks()?.poll_transmit(now)
    }

    fn takes_others(&self) -> bool {
        true
    }

    fn address(&self) -> Option<SocketAddr> {
        self.asks.as_ref().map(|(_, relay)| *relay)
    }

    fn remote(&self) -> Option<SocketAddr> {
        self.state().heard_from
    }

    fn poll_deadline(&self, now: Time) -> Time {
        let asked = self.asks().map(|asks| asks.poll_deadline(now));
        let state = self.state();
        let late =
            if state.is_late { now + SELDOM } else { state.begun_at.unwrap_or(now) + UNSEEN };
        asked.map_or(late, |asked| asked.min(late))
    }

    fn is_open(&self) -> bool {
        let is_seen = self.asks().is_none_or(Preamble::is_open);
        let state = self.state();
        is_seen || state.heard_from.is_some() || state.is_late
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

/// The addresses to which one peer has the listening sockets send.
#[derive(Debug, Default)]
struct AskedWays(BTreeSet<SocketAddr>);

impl AskedWays {
    /// Those of a wish that are new, and that there may be.
    fn take(&mut self, wish: &Punches, own: &[IpAddr]) -> Vec<SocketAddr> {
        let mut fresh = Vec::new();
        for address in &wish.addresses {
            let is_usable = address.port() != 0
                && !reach::is_protected(address.ip())
                && !own.contains(&address.ip());
            if is_usable && self.0.len() < MOST_PUNCHED && self.0.insert(*address) {
                fresh.push(*address);
            }
        }
        fresh
    }
}

/// The ways that one peer has opened.
pub(super) struct Ways {
    endpoint: Weak<Endpoint>,
    asked: AskedWays,
    sending: JoinSet<()>,
}

impl Ways {
    /// None yet, from the listening sockets of that endpoint.
    pub(super) fn new(endpoint: Weak<Endpoint>) -> Ways {
        Ways { endpoint, asked: AskedWays::default(), sending: JoinSet::new() }
    }

    /// Begins to send what a peer asks for, from each of its `own` addresses in turn.
    pub(super) fn open(&mut self, wish: &Punches, own: &[IpAddr]) {
        let datagram = PunchKey::of(wish.id, wish.secret).datagram();
        for address in self.asked.take(wish, own) {
            tracing::debug!(%address, "a way is opened");
            let sending = punch(self.endpoint.clone(), (address, own.to_vec()), datagram);
            self.sending.spawn(sending);
        }
    }
}

async fn punch(
    endpoint: Weak<Endpoint>,
    (address, mut sources): (SocketAddr, Vec<IpAddr>),
    datagram: [u8; BIND],
) {
    sources.retain(|source| source.is_ipv4() == address.is_ipv4());
    for (number, pause) in PAUSES.into_iter().enumerate() {
        sleep(Duration::from_millis(pause)).await;
        let Some(endpoint) = endpoint.upgrade() else { return };
        let source = sources.get(number % sources.len().max(1)).copied();
        endpoint.send_listening(address, source, datagram.to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn wish(addresses: &[&str]) -> Punches {
        PunchKey::of(7, [1; 32]).wish(addresses.iter().map(|text| address(text)).collect())
    }

    #[test]
    fn a_way_from_another_port_is_followed_if_it_is_the_peers() {
        let (key, dialed) = (PunchKey::of(7, [1; 32]), address("198.51.100.1:7707"));
        let lead = PunchedRoute::lead(&key, dialed, None);
        assert!(lead.0.is_open() && lead.0.remote().is_none());
        let other = address("198.51.100.1:40001");
        for forged in [PunchKey::of(7, [2; 32]), PunchKey::of(8, [1; 32])] {
            lead.0.handle_datagram(at(0), other, &forged.datagram());
            assert_eq!(lead.0.remote(), None);
        }
        lead.0.handle_datagram(at(0), other, &key.datagram());
        assert_eq!(lead.0.remote(), Some(other));
        // Whoever saw it and sends it again moves nothing.
        for elsewhere in ["203.0.113.9:1", "198.51.100.1:2"] {
            lead.0.handle_datagram(at(1), address(elsewhere), &key.datagram());
            assert_eq!(lead.0.remote(), Some(other));
        }
        lead.0.handle_reopened();
        assert_eq!(lead.0.remote(), None);
        lead.0.handle_datagram(at(2), address("203.0.113.9:1"), &key.datagram());
        assert_eq!(lead.0.remote(), None, "another host, or another interface of it");
        lead.0.handle_datagram(at(2), dialed, &key.datagram());
        assert_eq!(lead.0.remote(), Some(dialed));
    }

    #[test]
    fn a_peer_has_few_addresses_and_none_that_is_protected() {
        let own = [address("10.0.0.1:0").ip()];
        let mut asked = AskedWays::default();
        let good = wish(&["198.51.100.1:7", "192.168.1.2:7", "[2001:db8::1]:7"]);
        assert_eq!(asked.take(&good, &own).len(), 3);
        assert_eq!(asked.take(&good, &own), [], "each once");
        let bad = wish(&[
            "127.0.0.1:7",
            "169.254.169.254:80",
            "224.0.0.1:7",
            "255.255.255.255:7",
            "[::1]:7",
            "[fe80::1]:7",
            "[::ffff:127.0.0.1]:7",
            "0.0.0.0:7",
            "10.0.0.1:7",
            "198.51.100.1:0",
        ]);
        assert_eq!(asked.take(&bad, &own), []);
        let many: Vec<String> = (0..100).map(|port| format!("198.51.100.9:{}", port + 1)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(asked.take(&wish(&many), &own).len(), MOST_PUNCHED - 3);
        assert_eq!(PAUSES.len(), 10, "datagrams to each");
    }
}
