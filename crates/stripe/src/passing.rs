//! Datagrams of others at the listening sockets.

use std::fmt;

use crate::arrivals::Arrived;

/// What passes on datagrams that arrive at an endpoint's listening sockets and belong to none of
/// its connections: a relay at the same port. It is called by the endpoint's thread, and may not
/// block.
pub trait Passing: fmt::Debug + Send {
    /// Datagrams arrived at the listening socket of this number. Whether they were its own; the
    /// others are the endpoint's.
    fn pass(&mut self, socket: usize, arrived: &Arrived<'_>) -> bool;
}
