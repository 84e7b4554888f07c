//! A source: a demand, a few paths, and the rate control over them.

use netsim::Out;
use overlay::{Config, Controller, ProbeResult};
use units::{Bytes, Rate, Seed, Span, Time};

use super::bucket::Bucket;
use super::hop::Hop;
use super::packet::OverlayPacket;

/// The first report that counts: the one before covers the opening of the connections.
const FIRST: u64 = 2;

/// A source. Until its first rates are known, it writes packets round-robin to the paths that
/// accept them. From then on each path has a rate, which is set anew when the reports of an
/// interval have arrived.
#[derive(Clone, Debug)]
pub struct Source {
    demand: Rate,
    paths: Vec<SourcePath>,
    control: Control,
    /// A control interval.
    period: Span,
    /// Payload of a packet.
    packet: Bytes,
    /// A path with this many bytes unsent is not written to.
    ahead: Bytes,
    opens: Option<Time>,
    /// The next deadline.
    next: Option<Time>,
}

#[derive(Clone, Debug)]
struct SourcePath {
    hop: Hop,
    bucket: Bucket,
    /// Payload received at the ends of the last two reported intervals.
    received: [Bytes; 2],
}

/// The state of the rate control.
#[derive(Clone, Debug)]
enum Control {
    /// Round-robin over the paths with one bucket; `turn` is the next path.
    RoundRobin {
        bucket: Bucket,
        turn: usize,
        config: Config,
        seed: Seed,
    },
    Rates(Controller),
}

/// The configuration of a source, and its seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceConfig {
    pub(super) demand: Rate,
    pub(super) control: Config,
    /// Whether it begins with max-min rates; otherwise with zero.
    pub(super) is_max_min: bool,
    pub(super) period: Span,
    pub(super) packet: Bytes,
    pub(super) ahead: Bytes,
    pub(super) opens: Time,
    pub(super) seed: Seed,
}

impl Source {
    pub(super) fn new(config: &SourceConfig, hops: Vec<Hop>) -> Source {
        let &SourceConfig { demand, control, is_max_min, period, packet, ahead, opens, seed } =
            config;
        let path =
            |hop| SourcePath { hop, bucket: Bucket::new(packet), received: [Bytes::ZERO; 2] };
        let mut paths: Vec<SourcePath> = hops.into_iter().map(path).collect();
        let control = if is_max_min {
            let mut bucket = Bucket::new(packet);
            bucket.set(opens, demand);
            Control::RoundRobin { bucket, turn: 0, config: control, seed }
        } else {
            let mut controller = Controller::new(control, demand, &vec![0.0; paths.len()], seed);
            controller.handle_interval(None);
            set(opens, &mut paths, &controller);
            Control::Rates(controller)
        };
        Source {
            demand,
            paths,
            control,
            period,
            packet,
            ahead,
            opens: Some(opens),
            next: Some(opens),
        }
    }

    /// Payload written to each path's first hop.
    pub fn written(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(|path| path.hop.written())
    }

    /// Payload that each path's relay has acknowledged.
    pub fn acked(&self) -> impl Iterator<Item = Bytes> {
        self.paths.iter().map(|path| path.hop.acked())
    }

    /// The rate set on each path, y, in bit/s; nothing before the first rates.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        match &self.control {
            Control::RoundRobin { .. } => Vec::new(),
            Control::Rates(controller) => controller.rates().collect(),
        }
    }

    /// A packet has arrived: a segment of the first hop of the path with this number, or a report
    /// about the path.
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        number: u32,
        packet: &OverlayPacket,
        out: &mut Out<OverlayPacket>,
    ) {
        let path = number as usize % self.paths.len();
        match packet {
            // An acknowledgement may make room for packets that wait.
            OverlayPacket::Tcp { segment, .. } => self.paths[path].hop.handle_segment(now, segment),
            OverlayPacket::Report { interval, received, .. } => {
                self.paths[path].received = [self.paths[path].received[1], *received];
                // Reports of one interval travel together; the last path's completes them.
                if path + 1 == self.paths.len() && *interval >= FIRST {
                    self.handle_interval(now);
                }
            }
        }
        self.go_on(now, out);
    }

    pub(super) fn handle_deadline(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        if self.opens.is_some_and(|at| at <= now) {
            self.opens = None;
            for path in &mut self.paths {
                path.hop.open(now);
            }
        }
        for path in &mut self.paths {
            path.hop.handle_deadline(now);
        }
        self.go_on(now, out);
    }

    #[inline]
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.next
    }

    /// Writes and sends as much as possible.
    #[inline]
    fn go_on(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        self.write(now);
        for path in &mut self.paths {
            path.hop.send(now, out);
        }
        self.rearm();
    }

    /// The reports of an interval are complete.
    fn handle_interval(&mut self, now: Time) {
        let rate = |path: &SourcePath| {
            (path.received[1] - path.received[0]).as_f64() * 8.0 / self.period.as_secs_f64()
        };
        match &mut self.control {
            Control::RoundRobin { config, seed, .. } => {
                let measured: Vec<f64> = self.paths.iter().map(rate).collect();
                // More than the demand may arrive: packets of the interval before were queued.
                let excess = (measured.iter().sum::<f64>() / self.demand.as_f64()).max(1.0);
                let initial: Vec<f64> = measured.iter().map(|rate| rate / excess).collect();
                let mut controller = Controller::new(*config, self.demand, &initial, *seed);
                controller.handle_interval(None);
                set(now, &mut self.paths, &controller);
                self.control = Control::Rates(controller);
            }
            Control::Rates(controller) => {
                let see = |probed: usize| ProbeResult {
                    received: rate(&self.paths[probed]),
                    overloaded: false,
                    arrived: 1.0,
                };
                let seen = controller.probed().map(see);
                controller.handle_interval(seen);
                set(now, &mut self.paths, controller);
            }
        }
    }

    /// Writes as many packets as buckets and paths allow.
    #[inline]
    fn write(&mut self, now: Time) {
        let (packet, ahead) = (self.packet, self.ahead);
        match &mut self.control {
            Control::RoundRobin { bucket, turn, .. } => {
                bucket.fill(now);
                while bucket.has_packet() {
                    let count = self.paths.len();
                    let accepts = |at: &usize| self.paths[*at].accepts(ahead);
                    let Some(at) = (0..count).map(|step| (*turn + step) % count).find(accepts)
                    else {
                        break;
                    };
                    self.paths[at].hop.write(packet);
                    bucket.take();
                    *turn = (at + 1) % count;
                }
            }
            Control::Rates(_) => {
                for path in &mut self.paths {
                    path.bucket.fill(now);
                    while path.bucket.has_packet() && path.accepts(ahead) {
                        path.hop.write(packet);
                        path.bucket.take();
                    }
                }
            }
        }
    }

    /// Sets the next deadline. A path that accepts nothing needs none: an acknowledgement will
    /// come.
    #[inline]
    fn rearm(&mut self) {
        let hops = self.paths.iter().filter_map(|path| path.hop.poll_deadline());
        let mut next = hops.chain(self.opens).min();
        let mut note = |at: Option<Time>| next = next.into_iter().chain(at).min();
        match &self.control {
            Control::RoundRobin { bucket, .. } => {
                if self.paths.iter().any(|path| path.accepts(self.ahead)) {
                    note(bucket.due());
                }
            }
            Control::Rates(_) => {
                for path in self.paths.iter().filter(|path| path.accepts(self.ahead)) {
                    note(path.bucket.due());
                }
            }
        }
        self.next = next;
    }
}

impl SourcePath {
    #[inline]
    fn accepts(&self, ahead: Bytes) -> bool {
        self.hop.is_open() && self.hop.unsent() < ahead
    }
}

/// Sets the rates of a new interval; unused tokens expire.
fn set(now: Time, paths: &mut [SourcePath], controller: &Controller) {
    for (path, rate) in paths.iter_mut().zip(controller.rates()) {
        path.bucket.set(now, Rate::from_bits_f64(rate));
    }
}
