//! What leads the routes of one striped connection through several relays, one behind the other.
//!
//! Each relay has an association with the next one's address, the last one with the destination,
//! and all have the labels of the connection's paths. What binds at a relay passes those in front
//! of it, under its number of the association as a label. It sees one address, that of the relay in
//! front of it, whichever interface of this host a datagram left by: so one route is bound there.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use peer::Leading;
use peer::carrier::BoxFuture;
use stripe::{Lead, Preamble};
use tokio::sync::watch;
use units::Time;
use wire::relay::LabelPair;

use super::ClientLeading;

/// The associations with relays of a chain.
#[derive(Debug)]
pub(super) struct ChainLeading {
    /// With the relay that this host reaches.
    first: ClientLeading,
    behind: Arc<Behind>,
}

/// Those behind it, in their order.
#[derive(Debug)]
struct Behind(Mutex<Vec<Hop>>);

#[derive(Debug)]
struct Hop {
    leading: ClientLeading,
    /// Its one route.
    lead: Lead,
    /// The number of its association that the relays in front of it have as a label.
    passed: Option<u64>,
}

impl ChainLeading {
    /// Through relays in this order; `None`: there is none, or one is of no use for a further
    /// connection.
    pub(super) fn new(all: Vec<ClientLeading>) -> Option<ChainLeading> {
        let mut all = all.into_iter();
        let first = all.next()?;
        let hop = |leading: ClientLeading| {
            let lead = leading.lead()?;
            Some(Hop { leading, lead, passed: None })
        };
        let hops = all.map(hop).collect::<Option<Vec<Hop>>>()?;
        Some(ChainLeading { first, behind: Arc::new(Behind(Mutex::new(hops))) })
    }
}

impl Leading for ChainLeading {
    fn lead(&self) -> Option<Lead> {
        let (first, behind) = (self.first.lead()?, Arc::clone(&self.behind));
        Some(Lead(Arc::new(ChainLead { first, behind })))
    }

    fn seen(&self) -> watch::Receiver<BTreeMap<u8, SocketAddr>> {
        self.first.seen()
    }

    fn in_front(
        &self,
        relay: SocketAddr,
        local: IpAddr,
        device: Option<String>,
    ) -> BoxFuture<'_, Option<String>> {
        self.first.in_front(relay, local, device)
    }
}

/// The preamble of one route.
#[derive(Debug)]
struct ChainLead {
    first: Lead,
    behind: Arc<Behind>,
}

impl Behind {
    fn hops(&self) -> MutexGuard<'_, Vec<Hop>> {
        self.0.lock().expect("no panic while held")
    }

    fn each(&self, mut tell: impl FnMut(&dyn Preamble)) {
        self.hops().iter().for_each(|hop| tell(&*hop.lead.0));
    }
}

impl ChainLead {
    /// Lets what binds at each relay pass those in front of it.
    fn pass_numbers(&self, hops: &mut [Hop]) {
        for number in 0..hops.len() {
            let (in_front, rest) = hops.split_at_mut(number);
            let hop = &mut rest[0];
            let granted = hop.leading.granted();
            if granted == hop.passed {
                continue;
            }
            let before = hop.passed.map(both_ways);
            hop.passed = granted;
            let in_front =
                || std::iter::once(&self.first).chain(in_front.iter().map(|hop| &hop.lead));
            for lead in in_front() {
                if let Some(before) = before {
                    lead.0.handle_retired(&[before]);
                }
                if let Some(granted) = granted {
                    lead.0.handle_labels(&[both_ways(granted)]);
                }
            }
        }
    }
}

/// A label that leads in both directions, as that of a handshake does.
fn both_ways(label: u64) -> LabelPair {
    LabelPair { to: label, from: label }
}

impl Preamble for ChainLead {
    fn handle_labels(&self, labels: &[LabelPair]) {
        self.first.0.handle_labels(labels);
        self.behind.each(|lead| lead.handle_labels(labels));
    }

    fn handle_retired(&self, labels: &[LabelPair]) {
        self.first.0.handle_retired(labels);
        self.behind.each(|lead| lead.handle_retired(labels));
    }

    fn handle_reopened(&self) {
        self.first.0.handle_reopened();
        self.behind.each(|lead| lead.handle_reopened());
    }

    fn handle_datagram(&self, now: Time, from: SocketAddr, datagram: &[u8]) {
        // Each takes what has its number.
        self.first.0.handle_datagram(now, from, datagram);
        self.behind.each(|lead| lead.handle_datagram(now, from, datagram));
    }

    fn poll_transmit(&self, now: Time) -> Option<Vec<u8>> {
        let mut hops = self.behind.hops();
        self.pass_numbers(&mut hops);
        if let Some(datagram) = self.first.0.poll_transmit(now) {
            return Some(datagram);
        }
        let mut is_open = self.first.0.is_open();
        for hop in hops.iter() {
            // What is sent to one behind a relay that does not know the way is lost.
            if !is_open {
                return None;
            }
            if let Some(datagram) = hop.lead.0.poll_transmit(now) {
                return Some(datagram);
            }
            is_open = hop.lead.0.is_open();
        }
        None
    }

    fn poll_deadline(&self, now: Time) -> Time {
        let mut earliest = self.first.0.poll_deadline(now);
        let mut is_open = self.first.0.is_open();
        for hop in self.behind.hops().iter() {
            if !is_open {
                break;
            }
            earliest = earliest.min(hop.lead.0.poll_deadline(now));
            is_open = hop.lead.0.is_open();
        }
        earliest
    }

    fn is_open(&self) -> bool {
        let hops = self.behind.hops();
        self.first.0.is_open()
            && hops.iter().all(|hop| hop.passed.is_some() && hop.lead.0.is_open())
    }

    fn failure(&self) -> Option<String> {
        let of_first = self.first.0.failure();
        of_first.or_else(|| self.behind.hops().iter().find_map(|hop| hop.lead.0.failure()))
    }
}
