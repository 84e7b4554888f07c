//! One end of a pair of background gateways.

use std::sync::Arc;

use harp::{Arrivals, Carried, Config, Edits, Gateway, Message, Output, PathView};
use netsim::{Out, Route};
use units::{Bytes, Time};
use wire::harp::{DATA_HEADER, RETURN_HEADER};
use wire::tcp::{Flags, Meta, Segment};

use crate::packet::{Ecn, Header, OUTER_HEADERS, Packet};

/// The window scale of simulated hosts behind gateways, if their receive buffers need no larger.
const SCALE: u8 = 7;
/// The largest window scale (RFC 7323, section 2.3).
const LARGEST_SCALE: u8 = 14;

/// What both ends of a pair of gateways share. Arrays are of the entry's and the exit's side.
#[derive(Debug)]
pub(crate) struct GatewayPlan {
    pub(crate) config: Config,
    /// What tunnelling adds to a segment; `None` for the headers that it has.
    pub(crate) overhead: Option<Bytes>,
    /// By path: the route from the entry to the exit, and back.
    pub(crate) paths: Vec<[Route; 2]>,
    /// The route that packets would take without gateways, and back.
    pub(crate) normal: [Route; 2],
    /// The connections, in the order of their numbers.
    pub(crate) passengers: Vec<Passenger>,
}

/// A connection that goes through the gateways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passenger {
    /// Its number in the scenario.
    pub(crate) connection: u32,
    /// The routes from the gateways to its hosts.
    pub(crate) inside: [Route; 2],
    /// The initial sequence numbers of its hosts: what the lower 32 bits of a position are counted
    /// from.
    pub(crate) initial: [u32; 2],
    pub(crate) scale: u8,
    pub(crate) mss: u16,
}

impl Passenger {
    /// The window scale of hosts with this receive buffer.
    pub(crate) fn scale_for(buffer: Bytes) -> u8 {
        let fits = |scale: &u8| u16::try_from(buffer.0 >> scale).is_ok();
        (SCALE..LARGEST_SCALE).find(fits).unwrap_or(LARGEST_SCALE)
    }

    /// A segment of the host on one side as it is on the wire.
    fn meta(&self, side: usize, segment: &Segment) -> Meta {
        let is_syn = segment.flags.has(Flags::SYN);
        let scale = if is_syn { 0 } else { self.scale };
        Meta {
            seq: self.initial[side].wrapping_add(low(segment.seq)),
            ack: self.initial[1 - side].wrapping_add(low(segment.ack)),
            window: u16::try_from(segment.window >> scale).unwrap_or(u16::MAX),
            len: segment.len,
            flags: Flags(segment.flags.0 & !(Flags::COUNTERS.0 | Flags::AE.0)),
            scale: is_syn.then_some(self.scale),
            mss: is_syn.then_some(self.mss),
        }
    }

    /// Changes a segment as the gateway has decided. The window of a SYN has 16 bits in any case.
    fn edit(&self, segment: &mut Segment, edits: Edits) {
        let is_syn = segment.flags.has(Flags::SYN);
        if is_syn {
            segment.window = segment.window.min(u32::from(u16::MAX));
        }
        if let Some(window) = edits.window {
            segment.window = u32::from(window) << if is_syn { 0 } else { self.scale };
        }
    }
}

impl GatewayPlan {
    /// What tunnelling adds to a segment with payload.
    pub(crate) fn data_overhead(&self) -> Bytes {
        self.overhead.unwrap_or(Bytes((OUTER_HEADERS + DATA_HEADER) as u64))
    }

    /// What tunnelling adds to a segment without payload.
    pub(crate) fn return_overhead(&self) -> Bytes {
        self.overhead.unwrap_or(Bytes((OUTER_HEADERS + RETURN_HEADER) as u64))
    }
}

/// A segment in a gateway.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    meta: Meta,
    segment: Segment,
    /// Its size on the wire, outside of tunnels.
    bytes: u16,
    ecn: Ecn,
}

impl Carried for Parcel {
    fn meta(&self) -> Meta {
        self.meta
    }
}

/// One end of a pair of gateways.
#[derive(Clone, Debug)]
pub struct GatewayEnd {
    core: Gateway<Parcel>,
    plan: Arc<GatewayPlan>,
    /// 0 at the entry, 1 at the exit.
    side: usize,
}

impl GatewayEnd {
    /// The entry of these gateways, or the exit.
    pub(crate) fn new(plan: &Arc<GatewayPlan>, side: usize) -> GatewayEnd {
        let core = Gateway::new(Time::ZERO, &plan.config);
        GatewayEnd { core, plan: Arc::clone(plan), side }
    }

    pub(crate) fn plan(&self) -> &GatewayPlan {
        &self.plan
    }

    /// What it knows of each path towards the other end; nothing as long as it knows no connection.
    #[must_use]
    pub fn paths(&self) -> Vec<PathView> {
        self.core.paths()
    }

    /// What has arrived of the other end's.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        self.core.arrivals()
    }

    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        self.core.poll_deadline()
    }

    /// A packet of one of the connections has arrived.
    pub(crate) fn handle_packet(
        &mut self,
        now: Time,
        number: u32,
        packet: &Packet,
        out: &mut Out<Packet>,
    ) {
        let message = match *packet {
            Packet::Tcp { segment, bytes, ecn, .. } => {
                let parcel = self.parcel(number, self.side, segment, bytes, ecn);
                self.core.handle_inside(now, number, parcel);
                return self.forward(out);
            }
            Packet::Tunnelled { stamp, header, bytes, ecn, .. } => {
                let bytes = bytes - narrow(self.plan.data_overhead());
                let segment = header.segment();
                Message::Data(stamp, self.parcel(number, 1 - self.side, segment, bytes, ecn))
            }
            Packet::Returned { segment, bytes, ecn, .. } => {
                let bytes = bytes - narrow(self.plan.return_overhead());
                Message::Return(self.parcel(number, 1 - self.side, segment, bytes, ecn))
            }
            Packet::Forwarded { connection, segment, bytes, ecn } => {
                let inside = self.plan.passengers[number as usize].inside[self.side];
                return out.send(inside, Packet::Tcp { connection, bytes, ecn, segment });
            }
            Packet::Probe { stamp, .. } => Message::Probe(stamp),
            Packet::Report { report, .. } => Message::Report(report),
            Packet::Ptcp { .. } | Packet::Record { .. } | Packet::Udp { .. } => {
                unreachable!("the file's reader lets only TCP through gateways")
            }
        };
        self.core.handle_outside(now, number, message, packet.ecn() == Ecn::Marked);
        self.forward(out);
    }

    pub(crate) fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        if self.core.poll_deadline().is_some_and(|at| at <= now) {
            self.core.handle_deadline(now);
        }
        self.forward(out);
    }

    /// A segment of the host on this side.
    fn parcel(&self, number: u32, side: usize, segment: Segment, bytes: u16, ecn: Ecn) -> Parcel {
        let meta = self.plan.passengers[number as usize].meta(side, &segment);
        Parcel { meta, segment, bytes, ecn }
    }

    /// Sends what the gateway puts out.
    fn forward(&mut self, out: &mut Out<Packet>) {
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Inside(number, Parcel { mut segment, bytes, ecn, .. }, edits) => {
                    let passenger = &self.plan.passengers[number as usize];
                    passenger.edit(&mut segment, edits);
                    let connection = passenger.connection;
                    let packet = Packet::Tcp { connection, bytes, ecn, segment };
                    out.send(passenger.inside[self.side], packet);
                }
                Output::Outside(number, path, message) => {
                    let route = self.plan.paths[usize::from(path)][self.side];
                    out.send(route, self.packet(number, message));
                }
                Output::Normal(number, Parcel { segment, bytes, ecn, .. }) => {
                    let connection = self.plan.passengers[number as usize].connection;
                    let packet = Packet::Forwarded { connection, bytes, ecn, segment };
                    out.send(self.plan.normal[self.side], packet);
                }
            }
        }
    }

    /// The packet of a message to the other end.
    fn packet(&self, number: u32, message: Message<Parcel>) -> Packet {
        let connection = self.plan.passengers[number as usize].connection;
        match message {
            Message::Data(stamp, Parcel { segment, bytes, ecn, .. }) => {
                let bytes = bytes + narrow(self.plan.data_overhead());
                Packet::Tunnelled { connection, bytes, ecn, stamp, header: Header::of(&segment) }
            }
            Message::Return(Parcel { segment, bytes, ecn, .. }) => {
                let bytes = bytes + narrow(self.plan.return_overhead());
                Packet::Returned { connection, bytes, ecn, segment }
            }
            Message::Probe(stamp) => Packet::Probe { connection, stamp },
            Message::Report(report) => Packet::Report { connection, report },
        }
    }
}

/// The lower 32 bits of a position: the part in the header.
#[expect(clippy::cast_possible_truncation, reason = "it wraps by design")]
fn low(position: u64) -> u32 {
    position as u32
}

fn narrow(bytes: Bytes) -> u16 {
    u16::try_from(bytes.0).expect("the file's reader bounds it")
}

#[cfg(test)]
mod tests {
    use netsim::Topology;
    use units::Span;

    use super::*;

    const SEGMENT: Segment = Segment {
        seq: 1,
        ack: 1,
        window: 100_000,
        len: 1_448,
        flags: Flags::ACK,
        sack_count: 0,
        sack: [wire::tcp::SackBlock { from: 0, len: 0 }; 3],
        timestamp: 0,
        timestamp_echo: 0,
    };

    /// Of a connection whose numbers are about to wrap, with windows in units of 128 bytes.
    fn passenger() -> Passenger {
        let profile = link::Profile::new(units::Rate::mbit(1), Span::ZERO);
        let mut topology = Topology::new();
        for host in ["a", "b"] {
            topology.add_host(host).expect("the name is free");
        }
        topology.duplex("link", "a", "b", &profile).expect("the hosts exist");
        let route = topology.route("a", "b").expect("there is a link");
        let initial = [u32::MAX - 999, 7];
        Passenger { connection: 3, inside: [route; 2], initial, scale: 7, mss: 1_448 }
    }

    #[test]
    fn positions_wrap_and_windows_are_scaled() {
        let segment = Segment { seq: 1_001, ack: (1 << 32) + 5, window: 300_000, ..SEGMENT };
        let meta = passenger().meta(0, &segment);
        assert_eq!((meta.seq, meta.ack, meta.window, meta.len), (1, 12, 2_343, 1_448));
        assert_eq!((meta.scale, meta.mss), (None, None));
        // The host on the other side counts from its own number.
        let meta = passenger().meta(1, &segment);
        assert_eq!((meta.seq, meta.ack), (1_008, 5_u32.wrapping_sub(1_000)));
    }

    #[test]
    fn windows_of_syns_have_sixteen_bits() {
        let passenger = passenger();
        let mut syn = Segment { window: 1 << 26, flags: Flags::SYN, len: 0, ..SEGMENT };
        let meta = passenger.meta(0, &syn);
        assert_eq!((meta.window, meta.scale, meta.mss), (u16::MAX, Some(7), Some(1_448)));
        passenger.edit(&mut syn, Edits::default());
        assert_eq!(syn.window, 65_535);
        passenger.edit(&mut syn, Edits { window: Some(2_896) });
        assert_eq!(syn.window, 2_896, "not scaled");
        let mut segment = SEGMENT;
        passenger.edit(&mut segment, Edits::default());
        assert_eq!(segment, SEGMENT);
        passenger.edit(&mut segment, Edits { window: Some(23) });
        assert_eq!(segment.window, 23 << 7);
    }

    #[test]
    fn large_buffers_have_large_scales() {
        for (buffer, scale) in
            [(0, 7), (65_535 << 7, 7), (65_536 << 7, 8), (64 << 20, 11), (1 << 40, 14)]
        {
            assert_eq!(Passenger::scale_for(Bytes(buffer)), scale, "{buffer}");
        }
    }
}
