//! The datagrams of preambles, before and after the handshake.

use std::net::SocketAddr;

use units::Time;
use wire::bind::BindDatagram;

use super::sockets::{SocketKey, Sockets};
use crate::Route;
use crate::preamble::Lead;
use crate::socket::Outgoing;

/// What became of a route's preamble so far.
#[derive(Debug, Default)]
pub(super) struct LeadState {
    pub(super) is_open: bool,
    /// As [`Preamble::remote`](crate::Preamble::remote) last said.
    pub(super) remote: Option<SocketAddr>,
    pub(super) failure: Option<String>,
}

/// Whether a datagram is for a preamble.
pub(super) fn is_of_preamble(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| BindDatagram::may_begin_with(*first))
}

/// Sends what a preamble has to say.
pub(super) fn serve_preamble(
    now: Time,
    (route, lead): (&Route, &Lead),
    socket: SocketKey,
    sockets: &Sockets,
) {
    while let Some(bytes) = lead.0.poll_transmit(now) {
        let outgoing = Outgoing {
            to: lead.0.address().unwrap_or(route.remote),
            source: None,
            ecn: None,
            is_lower_effort: false,
            bytes: &bytes,
            segment: bytes.len(),
        };
        // It is repeated without an answer.
        if let Err(error) = sockets.send(socket, &outgoing) {
            tracing::debug!(route = route.name, %error, "the relay cannot be asked");
        }
    }
}
