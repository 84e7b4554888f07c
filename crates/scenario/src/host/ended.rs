//! What is kept of an end of a flow that is over.

use netsim::{Out, Route};
use tcp::TimeWait;
use units::{Bytes, Span, Time};
use wire::tcp::Segment;

use crate::host::{Request, connection};
use crate::packet::Packet;

/// An end of a flow that is over: its counters, and what still answers for it. A scenario may have
/// a hundred thousand flows, of which few live at a time.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The counters of the sender; `None` of a receiver and of UDP.
    pub(crate) sender: Option<EndedSender>,
    /// Payload received; of UDP, bytes on the wire.
    pub(crate) received: Bytes,
    /// Datagrams received, and the sum of their delays.
    pub(crate) datagrams: (u64, Span),
    pub(crate) requests: Box<[Request]>,
    /// The route, the number and the rest of a TCP connection.
    pub(crate) rest: Option<(Route, u32, TimeWait)>,
}

/// The last state of a sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedSender {
    pub(crate) window: Bytes,
    pub(crate) rtt: Option<Span>,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
}

impl Ended {
    /// The end of a UDP flow.
    pub(crate) fn datagrams(received: Bytes, datagrams: (u64, Span), done: &[Request]) -> Ended {
        Ended { sender: None, received, datagrams, requests: done.into(), rest: None }
    }

    /// Answers a segment that was repeated or delayed.
    pub(crate) fn handle_segment(&self, now: Time, segment: &Segment, out: &mut Out<Packet>) {
        let Some((route, number, rest)) = &self.rest else { return };
        if let Some(transmit) = rest.answer(now, segment) {
            out.send(*route, connection::packet(*number, &transmit));
        }
    }
}
