//! What the listening sockets say to the relays by way of which peers come.

use std::net::{IpAddr, SocketAddr};

use sys::datagram::unmapped;
use units::Time;

use crate::preamble::ListeningLead;

/// The relays by way of which peers reach the listening sockets.
#[derive(Debug, Default)]
pub(super) struct Reached {
    leads: Vec<ListeningLead>,
    due: Option<Time>,
}

impl Reached {
    /// These, in place of those before.
    pub(super) fn set(&mut self, leads: Vec<ListeningLead>) {
        self.leads = leads;
        self.due = None;
    }

    /// A datagram arrived that is none of a connection's.
    pub(super) fn handle_datagram(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        let from = unmapped(from);
        for one in self.leads.iter().filter(|one| one.relay == from) {
            one.lead.0.handle_datagram(now, from, datagram);
            self.due = Some(now);
        }
    }

    /// The next datagram to send: where to and from where, and its octets.
    #[expect(clippy::type_complexity, reason = "a datagram and its addresses")]
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
    ) -> Option<((SocketAddr, Option<IpAddr>), Vec<u8>)> {
        for one in &self.leads {
            if let Some(bytes) = one.lead.0.poll_transmit(now) {
                return Some(((one.relay, one.source), bytes));
            }
        }
        self.due = self.leads.iter().map(|one| one.lead.0.poll_deadline(now)).min();
        None
    }

    /// When there is something to send, or something may have happened elsewhere.
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.due
    }
}
