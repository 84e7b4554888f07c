//! What a route says to a relay on its way, beside the packets of its connection; and what the
//! sockets of a side that listens say to relays over which peers come.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use units::Time;
use wire::relay::LabelPair;

/// The talk of one route with the relay that it leads over: the relay learns the labels of the
/// connection some other way, and the route's address from the datagrams of the preamble. Bit 6 of
/// their octet 0 is 0, by which they are told from packets. Times are of the endpoint's clock; no
/// call may block.
pub trait Preamble: fmt::Debug + Send + Sync {
    /// Paths of the connection have these labels, whatever route they lead over; those that are
    /// known may be among them.
    fn handle_labels(&self, labels: &[LabelPair]);

    /// Paths with these labels have ended: packets with them need to get nowhere any more.
    fn handle_retired(&self, labels: &[LabelPair]);

    /// The route has another socket, and so another address.
    fn handle_reopened(&self);

    /// A datagram arrived that is none of the connection's.
    fn handle_datagram(&self, now: Time, from: SocketAddr, datagram: &[u8]);

    /// The next datagram to send.
    fn poll_transmit(&self, now: Time) -> Option<Vec<u8>>;

    /// Whether the route's socket takes datagrams from other addresses than the route's own.
    fn takes_others(&self) -> bool {
        false
    }

    /// Where its datagrams go; `None`: where the route's packets go.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Where the route's packets go from now on; `None`: to its own remote address. When there is
    /// another answer than before, the route's paths are proven again.
    fn remote(&self) -> Option<SocketAddr> {
        None
    }

    /// When there is something to send, or something may have happened elsewhere.
    fn poll_deadline(&self, now: Time) -> Time;

    /// Whether the relay knows the address, and the labels.
    fn is_open(&self) -> bool;

    /// Why the relay is of no use at present, as a clause; `None`: it is, or may be soon.
    fn failure(&self) -> Option<String>;
}

/// The preamble of one route. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Lead(pub Arc<dyn Preamble>);

impl PartialEq for Lead {
    fn eq(&self, other: &Lead) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A relay by way of which peers reach the sockets of a side that listens.
#[derive(Clone, Debug)]
pub struct ListeningLead {
    /// What is said to it.
    pub lead: Lead,
    /// Its address.
    pub relay: SocketAddr,
    /// The local address from which it is said; `None`: the system chooses.
    pub source: Option<IpAddr>,
}
