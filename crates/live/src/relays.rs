//! Relays of a scenario between real hosts: what the process of one is to do, and which of them a
//! path leads over.
//!
//! The front end has that process: it runs the product's relay in the namespace of one node, and
//! answers [`Answer::Relaying`](crate::Answer::Relaying) with its key. It learns with
//! [`Begin`](crate::Begin) the keys of the senders whose connections it carries. The senders learn
//! the relays' keys there, and use the relay's client, which is the front end's too
//! ([`crate::flow_end::RelayClient`]).

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The port of every relay, on all addresses of its node.
pub const RELAY_PORT: u16 = 7_707;

/// The relay of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayEnd {
    /// The flows whose senders may use it.
    pub flows: Vec<String>,
}

/// A relay on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayHop {
    /// Its address for this path: the one before, or the sender, reaches it over the path's links.
    pub at: Ipv4Addr,
    /// The index of its node among the hosts of the plan.
    pub node: usize,
}

/// The public key that a relay has made for the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayKey {
    /// The index of its node among the hosts of the plan.
    pub node: usize,
    /// The key's fingerprint.
    pub key: String,
}
