//! What the simulator asks of packets and hosts.

use link::{Place, Pool};
use units::{Bytes, Time};

use crate::Route;
use crate::net::Leg;

/// A packet: what its headers say, without payload bytes. Packets are copied at each hop, so
/// [`crate::Sim`] takes types of at most 64 bytes.
pub trait Packet: Copy {
    /// Its size on the wire, headers included.
    fn size(&self) -> Bytes;

    /// A number that stands for its content in the [digest](crate::Digest) of the run. It must not
    /// depend on the machine or the process: no addresses, no `std` hasher.
    fn digest(&self) -> u64;

    /// Whether a queue may mark it instead of dropping it (ECT, RFC 3168).
    fn is_ecn_capable(&self) -> bool {
        false
    }

    /// A queue marked it: congestion experienced (CE, RFC 3168). Called at the end of the link,
    /// before anybody sees the packet there.
    fn mark(&mut self) {}

    /// Which flow it is of, for queues that treat flows apart; any numbers.
    fn flow(&self) -> u64 {
        0
    }
}

/// A host: a state machine without sockets, clock or randomness of its own.
///
/// After each call the simulator takes the packets out of [`Out`] and looks at the deadline; before
/// the first, at [`Time::ZERO`], at the deadline only. A deadline in the past is one at once.
pub trait Host<P> {
    /// A packet has come.
    fn handle_packet(&mut self, now: Time, packet: P, out: &mut Out<P>);

    /// When [`Host::handle_deadline`] wants to be called next; asked after each call of the other
    /// two. It may move in either direction: a later one costs nothing, an earlier one an event.
    fn poll_deadline(&self) -> Option<Time>;

    /// The deadline has come. It must move on: a host whose deadline stays at one instant for
    /// [a million calls](crate::Sim::run_until) is a bug that would hang the simulation.
    fn handle_deadline(&mut self, now: Time, out: &mut Out<P>);
}

/// Where a host puts packets to be sent.
#[derive(Clone, Debug)]
pub struct Out<P> {
    /// The simulation's packets under way are here too, so that one is written once where it stays.
    pub(crate) packets: Pool<P, Leg>,
    /// Which of them are to be sent, and along which route, in their order.
    pub(crate) sent: Vec<(Route, Place)>,
}

impl<P: Copy> Out<P> {
    /// Without packets. Tests of a host make their own; a simulation brings one.
    #[must_use]
    pub fn new() -> Out<P> {
        Out { packets: Pool::new(), sent: Vec::new() }
    }

    /// Sends `packet` along `route`, which must begin at this host, behind those sent before.
    #[inline]
    pub fn send(&mut self, route: Route, packet: P) {
        self.put(route, packet);
    }

    /// As [`Out::send`]; the packet can still be changed where it is.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "or the packet is put together elsewhere, and read back before it is written"
    )]
    pub fn put(&mut self, route: Route, packet: P) -> &mut P {
        let place = self.packets.insert(packet, Leg::default());
        self.sent.push((route, place));
        self.packets.get_mut(place)
    }

    /// Takes out all packets, in the order in which they were sent.
    pub fn drain(&mut self) -> impl Iterator<Item = (Route, P)> + '_ {
        let Out { packets, sent } = self;
        sent.drain(..).map(|(route, place)| (route, packets.remove(place)))
    }

    /// Whether nothing is to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

impl<P: Copy> Default for Out<P> {
    fn default() -> Out<P> {
        Out::new()
    }
}
