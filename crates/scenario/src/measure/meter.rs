//! What becomes of each packet: losses, and one-way delays if they are wanted.

use netsim::{Event, HostId, Loss, Trace};
use units::{Span, Time};

use super::distribution::SpanDistribution;
use crate::build::{Built, Ends};
use crate::packet::Packet;
use crate::samples::{SenderSample, Watch};

/// Counts by connection and by flow, of packets with data from a flow's sender.
pub(crate) struct PacketCounts {
    /// The sender of each connection.
    senders: Vec<HostId>,
    /// The flow of each connection.
    flows: Vec<u32>,
    /// By flow: the gateways nearer to its sender and to its receiver, and the receiver; empty if
    /// there are no gateways.
    through: Vec<Option<[HostId; 3]>>,
    /// By connection.
    lost: Vec<u64>,
    /// By window, then by flow; empty if delays are not measured.
    delays: Vec<Vec<Delays>>,
    /// By flow: the delay of the packet that arrived last.
    last: Vec<Option<Span>>,
    /// The windows that are open.
    open: Vec<usize>,
}

/// The delays of a flow's packets that arrived in one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delays {
    pub(crate) times: SpanDistribution,
    /// The differences of consecutive delays: their sum in nanoseconds, and their number.
    variation: u64,
    variations: u64,
}

impl Delays {
    /// The mean difference of consecutive delays in milliseconds; `None` below two packets.
    pub(crate) fn jitter(&self) -> Option<f64> {
        let sum = Span::from_nanos(self.variation).as_secs_f64() * 1e3;
        (self.variations > 0).then(|| sum / super::float(self.variations))
    }
}

impl PacketCounts {
    /// Counts for this number of windows; none of delays if it is zero.
    pub(crate) fn new(built: &Built, windows: usize) -> PacketCounts {
        let flows = built.flows.len();
        let connections = &built.connections;
        let through = |ends: &Ends| {
            let through = ends.through?;
            let gateways = built.gateways[through.gateway]?;
            let [near, far] = through.sides().map(|side| gateways[side].0);
            Some([near, far, ends.to.0])
        };
        let has_gateways = !built.gateways.is_empty();
        PacketCounts {
            through: built.flows.iter().filter(|_| has_gateways).map(through).collect(),
            senders: connections.iter().map(|(flow, _)| built.flows[*flow].from.0).collect(),
            flows: connections
                .iter()
                .map(|(flow, _)| u32::try_from(*flow).expect("fewer than 2^32 flows"))
                .collect(),
            lost: vec![0; connections.len()],
            delays: (0..windows).map(|_| vec![Delays::default(); flows]).collect(),
            last: vec![None; if windows > 0 { flows } else { 0 }],
            open: Vec::new(),
        }
    }

    /// The lost packets of a connection.
    pub(crate) fn lost(&self, connection: usize) -> u64 {
        self.lost[connection]
    }

    /// The delays of a flow in a window; `None` if they are not measured.
    pub(crate) fn delays(&self, window: usize, flow: usize) -> Option<&Delays> {
        Some(&self.delays.get(window)?[flow])
    }

    /// Sets the windows that are open from now on.
    pub(crate) fn open(&mut self, windows: impl Iterator<Item = usize>) {
        self.open.clear();
        self.open.extend(windows);
    }

    /// The gateways of a connection and its receiver.
    fn through(&self, connection: usize) -> Option<[HostId; 3]> {
        *self.through.get(self.flows[connection] as usize)?
    }

    fn handle_loss(&mut self, loss: &Loss<'_, Packet>) {
        let connection = loss.packet.connection() as usize;
        let is_onward = |[near, far, _]: [HostId; 3]| {
            loss.from == if loss.packet.is_between_gateways() { near } else { far }
        };
        let is_of_sender = self.senders[connection] == loss.from
            || self.through(connection).is_some_and(is_onward);
        if is_of_sender && loss.packet.has_data() {
            self.lost[connection] += 1;
        }
    }

    fn handle_arrival(&mut self, at: Time, host: HostId, packet: &Packet, mut delay: Span) {
        let connection = packet.connection() as usize;
        if self.senders[connection] == host || !packet.has_data() {
            return;
        }
        if let Some([_, _, receiver]) = self.through(connection) {
            // The packet that arrives left the gateway; the segment has the sender's clock.
            let Packet::Tcp { segment, .. } = packet else { return };
            if host != receiver {
                return;
            }
            delay = since(segment.timestamp, at);
        }
        let flow = self.flows[connection] as usize;
        let before = self.last[flow].replace(delay);
        for window in &self.open {
            let delays = &mut self.delays[*window][flow];
            delays.times.add(delay);
            if let Some(before) = before {
                let (less, more) = (delay.min(before), delay.max(before));
                delays.variation += (more - less).as_nanos();
                delays.variations += 1;
            }
        }
    }
}

/// The time since a stamp of TCP, in whole microseconds.
fn since(stamp: u32, now: Time) -> Span {
    #[expect(clippy::cast_possible_truncation, reason = "stamps wrap")]
    let now = (now.as_nanos() / 1_000) as u32;
    Span::from_micros(u64::from(now.wrapping_sub(stamp)))
}

/// Another watch, with counts beside it. `DELAYS`: whether delays are measured.
pub(crate) struct Meter<'a, W, const DELAYS: bool> {
    pub(crate) watch: &'a mut W,
    pub(crate) counts: PacketCounts,
}

impl<W: Watch, const DELAYS: bool> Trace<Packet> for Meter<'_, W, DELAYS> {
    const IS_ON: bool = W::IS_ON || DELAYS;
    const SEES_LOSSES: bool = true;

    fn record(&mut self, at: Time, event: Event<'_, Packet>) {
        if DELAYS && let Event::Delivered { host, packet, sent_at } = event {
            self.counts.handle_arrival(at, host, packet, at - sent_at);
        }
        if W::IS_ON {
            self.watch.record(at, event);
        }
    }

    fn record_loss(&mut self, at: Time, loss: Loss<'_, Packet>) {
        self.counts.handle_loss(&loss);
        if W::SEES_LOSSES {
            self.watch.record_loss(at, loss);
        }
    }
}

impl<W: Watch, const DELAYS: bool> Watch for Meter<'_, W, DELAYS> {
    const WANTS_SAMPLES: bool = W::WANTS_SAMPLES;

    fn sample(&mut self, at: Time, flow: usize, sample: &SenderSample) {
        self.watch.sample(at, flow, sample);
    }
}
