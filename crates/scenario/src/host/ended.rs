//! What is kept of an end of a flow that is over.

use netsim::{Out, Route};
use tcp::TimeWait;
use units::{Bytes, Span, Time};
use wire::tcp::Segment;

use crate::host::{EndedPath, Gaps, Request, connection};
use crate::packet::{Ecn, Packet};

/// An end of a flow that is over: its counters, and what still answers for it. A scenario may have
/// a hundred thousand flows, of which few live at a time.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// The state of the sender of a TCP connection.
    pub(crate) sender: Option<EndedSender>,
    /// Packets with data sent, those sent again included.
    pub(crate) sent: u64,
    /// Payload that arrived; of UDP, bytes on the wire.
    pub(crate) arrived: Bytes,
    /// Packets received with a mark (ECN).
    pub(crate) marked: u64,
    /// Datagrams received, and the sum of their delays.
    pub(crate) datagrams: (u64, Span),
    pub(crate) requests: Box<[Request]>,
    /// The times without bytes in order, where they are measured.
    pub(crate) gaps: Option<Box<Gaps>>,
    /// The route, the number and the rest of a TCP connection.
    pub(crate) rest: Option<(Route, u32, TimeWait)>,
    /// The paths of a striped connection.
    pub(crate) paths: Box<[EndedPath]>,
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
    /// Answers a segment that was repeated or delayed.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        segment: &Segment,
        ecn: Ecn,
        out: &mut Out<Packet>,
    ) {
        self.marked += u64::from(ecn == Ecn::Marked);
        let Some((route, number, rest)) = &self.rest else { return };
        if let Some(transmit) = rest.answer(now, segment) {
            out.send(*route, connection::packet(*number, &transmit));
        }
    }
}
