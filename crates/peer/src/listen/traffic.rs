//! Bytes by peer and path, over TCP and over UDP.
//!
//! A connection counts once its peer is admitted, with what it moved before: strangers have no row.
//! Rows stay when a peer is removed, because counters never go back; their number is bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use stripe::{Carried, Connection};

use super::display_address;
use crate::carrier::Stream;

/// Peers with rows of their own; further ones share those of [`OTHER`].
const PEERS: usize = 1_024;
/// Paths of a peer with rows of their own; further ones share those of [`OTHER`].
const PATHS: usize = 32;
/// The peer, or the path, of whatever has no row of its own.
const OTHER: &str = "other";

/// The carrier of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CarrierKind {
    /// A connection of TCP, or of another carrier with ordered bytes.
    Tcp,
    /// A route of a striped connection.
    Udp,
}

impl CarrierKind {
    pub(crate) fn of(stream: &dyn Stream) -> CarrierKind {
        if stream.peer_key().is_some() { CarrierKind::Udp } else { CarrierKind::Tcp }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            CarrierKind::Tcp => "tcp",
            CarrierKind::Udp => "udp",
        }
    }
}

/// Bytes of both directions.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Moved {
    pub(crate) fn add(&self, sent: u64, received: u64) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

/// What each peer moved over each path. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Traffic(Arc<Mutex<TrafficState>>);

type Rows = BTreeMap<(String, CarrierKind), Arc<Moved>>;

#[derive(Default)]
struct TrafficState {
    peers: BTreeMap<String, Rows>,
    followed: BTreeMap<u64, Followed>,
    next: u64,
}

/// A striped connection whose counters are read.
struct Followed {
    connection: Connection,
    peer: String,
    /// What is counted already.
    seen: Vec<Carried>,
}

impl TrafficState {
    /// The row of a peer's path; of none: of its further ones.
    fn row(&mut self, peer: &str, path: Option<IpAddr>, carrier: CarrierKind) -> Arc<Moved> {
        let is_full = self.peers.len() >= PEERS && !self.peers.contains_key(peer);
        let rows = self.peers.entry(if is_full { OTHER } else { peer }.to_string()).or_default();
        let path = path.map(|path| display_address(SocketAddr::new(path, 0)));
        let paths = rows.keys().filter(|(_, of)| *of == carrier).count();
        let path = path.filter(|path| paths < PATHS || rows.contains_key(&(path.clone(), carrier)));
        let path = path.unwrap_or_else(|| OTHER.to_string());
        Arc::clone(rows.entry((path, carrier)).or_default())
    }

    /// Counts what a striped connection has moved since the last time.
    fn sample(&mut self, number: u64) {
        let Some(mut followed) = self.followed.remove(&number) else { return };
        let stats = followed.connection.recent_stats();
        for carried in &stats.carried {
            let before = followed.seen.iter().find(|seen| seen.remote == carried.remote);
            let before = before.map_or((0, 0), |seen| (seen.sent.0, seen.received.0));
            let (sent, received) = (carried.sent.0 - before.0, carried.received.0 - before.1);
            if (sent, received) != (0, 0) {
                self.row(&followed.peer, carried.remote, CarrierKind::Udp).add(sent, received);
            }
        }
        followed.seen.clone_from(&stats.carried);
        self.followed.insert(number, followed);
    }
}

impl Traffic {
    /// The row of a peer's path.
    pub(crate) fn row(&self, peer: &str, path: IpAddr, carrier: CarrierKind) -> Arc<Moved> {
        self.state().row(peer, Some(path), carrier)
    }

    /// Counts what the routes of a striped connection move, until the result is dropped.
    pub(crate) fn follow(&self, connection: &Connection, peer: String) -> Following {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let (connection, seen) = (connection.clone(), Vec::new());
        state.followed.insert(number, Followed { connection, peer, seen });
        drop(state);
        Following { traffic: self.clone(), number }
    }

    fn state(&self) -> MutexGuard<'_, TrafficState> {
        self.0.lock().expect("no panic while held")
    }
}

/// A striped connection that is counted.
pub(crate) struct Following {
    traffic: Traffic,
    number: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut state = self.traffic.state();
        state.sample(self.number);
        let followed = state.followed.remove(&self.number);
        drop(state);
        drop(followed);
    }
}

impl Collector for Traffic {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut state = self.state();
        let followed: Vec<u64> = state.followed.keys().copied().collect();
        for number in followed {
            state.sample(number);
        }
        let help = "What connections with known peers moved, by peer and path, with protocol \
                    overhead";
        let mut metric =
            encoder.encode_descriptor("path", help, Some(&Unit::Bytes), MetricType::Counter)?;
        for (peer, rows) in &state.peers {
            for ((path, carrier), moved) in rows {
                let (sent, received) = moved.get();
                for (direction, bytes) in [("sent", sent), ("received", received)] {
                    let labels = [
                        ("peer", peer.as_str()),
                        ("path", path),
                        ("carrier", carrier.name()),
                        ("direction", direction),
                    ];
                    ConstCounter::new(bytes).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    /// Whatever addresses peers come from, and however often the list changes.
    #[test]
    fn rows_are_bounded() {
        let traffic = Traffic::default();
        for peer in 0..2 * PEERS {
            traffic.row(&format!("peer-{peer}"), address(1), CarrierKind::Tcp).add(1, 2);
        }
        for path in 0..1_000 {
            traffic.row("peer-0", address(path), CarrierKind::Tcp).add(1, 2);
            traffic.row("peer-0", address(path), CarrierKind::Udp).add(1, 2);
            traffic.row("late", address(path), CarrierKind::Udp).add(1, 2);
        }
        let state = traffic.state();
        assert_eq!(state.peers.len(), PEERS + 1, "one for all others");
        assert!(state.peers.values().all(|rows| rows.len() <= 2 * (PATHS + 1)));
        let rows = || state.peers.values().flat_map(BTreeMap::values);
        let sent: u64 = rows().map(|moved| moved.get().0).sum();
        assert_eq!(sent, 2 * PEERS as u64 + 3_000, "and nothing is lost");
    }
}
