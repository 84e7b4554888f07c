//! The background gateway of Harp (Kokku et al., "A multipath background network architecture") as
//! a state machine.
//!
//! Two gateways stand between hosts that know nothing of them. Segments of background connections
//! travel from one gateway to the other over several paths. Where they enter, the gateway decides
//! how much each path carries, and tells the sending host by the receive window in what returns to
//! it. Where they leave, the other one puts them in order, and reports delays and losses.
//!
//! A [`Gateway`] is one gateway's end of all connections with one other gateway, in both
//! directions. It sees the [`Meta`] of segments and answers with [`Edits`]; the bytes stay with the
//! caller, in a type that implements [`Carried`].

#![no_std]

extern crate alloc;

mod admission;
mod arrivals;
mod config;
mod connection;
mod detector;
mod entry;
mod exit;
mod gateway;
mod liveness;
mod pairs;
mod paths;
mod pieces;
mod position;

use wire::harp::{Report, Stamp};
use wire::tcp::Meta;

pub use arrivals::{Arrivals, Waits};
pub use config::{Config, Sharing};
pub use detector::PathQueue;
pub use gateway::Gateway;
pub use paths::PathView;
pub use policy::cc::PathFalls;

/// The number of a connection, given by the caller; both gateways use the same.
pub type Flow = u32;

/// What is known of the windows that a host announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Its SYN was not seen: windows of the connection cannot be told, and are not changed.
    #[default]
    Unseen,
    /// Its SYN had no option: no window of the connection is scaled.
    Absent,
    /// The shift in its SYN, which counts if the other host's SYN has one too.
    Shift(u8),
}

/// A packet that passes through a gateway.
pub trait Carried {
    /// Its headers.
    fn meta(&self) -> Meta;
}

/// What a gateway changes in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The window field.
    pub window: Option<u16>,
}

/// What travels between two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<T> {
    /// A segment with payload, over the path in the stamp.
    Data(Stamp, T),
    /// A segment without payload.
    Return(T),
    /// A probe of a path that is choked.
    Probe(Stamp),
    /// What the other side saw arrive.
    Report(Report),
}

/// What a gateway puts out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// A segment for the host on this side.
    Inside(Flow, T, Edits),
    /// A message for the other gateway, over this path. Without a stamp it is the direct one, 0,
    /// unless that is silent and another one is not.
    Outside(Flow, u8, Message<T>),
    /// A segment of a host on this side, by the route that it would have without gateways: the
    /// other gateway is silent, or there are too many connections.
    Normal(Flow, T),
}
