//! The traits of packets and hosts.

use units::{Bytes, Time};

use crate::pool::{NextHop, PacketId, Pool};
use crate::routes::Route;

/// A packet: the contents of its headers, without payload bytes. Packets are moved, so
/// [`Sim`](crate::Sim) takes types of at most 64 bytes; rare ones may have more behind a pointer.
pub trait Packet: Clone {
    /// Its size on the wire, headers included.
    fn size(&self) -> Bytes;

    /// A hash of its content for the [digest](crate::Digest) of the run. It must not
    /// depend on the machine or the process: no addresses, no `std` hasher.
    fn digest(&self) -> u64;

    /// Whether a queue may mark it instead of dropping it (ECT, RFC 3168).
    fn is_ecn_capable(&self) -> bool {
        false
    }

    /// Whether it is of a scalable congestion control, or marked: ECT(1) or CE (RFC 9331).
    fn is_scalable(&self) -> bool {
        false
    }

    /// Marks it: congestion experienced (CE, RFC 3168). Called at the far end of the link whose
    /// queue decided to mark, before the packet is traced or delivered.
    fn mark(&mut self) {}

    /// The flow that it belongs to, for queues that separate flows. Any numbers will do.
    fn flow(&self) -> u64 {
        0
    }
}

/// A host: a state machine without sockets, clock or randomness of its own.
///
/// After each call the simulator sends the packets in [`Out`] and polls the deadline. Before the
/// first call, at [`Time::ZERO`], it only polls the deadline. A deadline in the past is due at
/// once.
pub trait Host<P> {
    /// A packet has arrived.
    fn handle_packet(&mut self, now: Time, packet: P, out: &mut Out<P>);

    /// The time of the next call of [`Host::handle_deadline`]; polled after each call of the other
    /// two methods. It may move either way: moving it later is free, moving it earlier costs an
    /// event.
    fn poll_deadline(&self) -> Option<Time>;

    /// The deadline has come. It must move: a host whose deadline stays at one instant for
    /// [a million calls](crate::Sim::run_until) is a bug that would hang the simulation.
    fn handle_deadline(&mut self, now: Time, out: &mut Out<P>);
}

/// Where a host puts packets to be sent.
#[derive(Clone, Debug)]
pub struct Out<P> {
    /// The packets in flight are here too, so that a packet is written once, where it stays.
    pub(crate) packets: Pool<P>,
    /// The packets to be sent, each with its route, in order.
    pub(crate) sent: Vec<(Route, PacketId)>,
}

impl<P> Out<P> {
    /// An empty one, for tests of a host; a simulation brings its own.
    #[must_use]
    pub fn new() -> Out<P> {
        Out { packets: Pool::new(), sent: Vec::new() }
    }

    /// Sends `packet` along `route`, which must begin at this host.
    #[inline]
    pub fn send(&mut self, route: Route, packet: P) {
        self.put(route, packet);
    }

    /// As [`Out::send`]; the packet can still be changed through the reference.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "otherwise the packet is built on the stack and then copied"
    )]
    pub fn put(&mut self, route: Route, packet: P) -> &mut P {
        let id = self.packets.insert(packet, NextHop::default());
        self.sent.push((route, id));
        self.packets.get_mut(id)
    }

    /// Removes all packets, in the order in which they were sent.
    pub fn drain(&mut self) -> impl Iterator<Item = (Route, P)> + '_ {
        let Out { packets, sent } = self;
        sent.drain(..).map(|(route, id)| (route, packets.remove(id)))
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

impl<P> Default for Out<P> {
    fn default() -> Out<P> {
        Out::new()
    }
}
