//! A source: the driver of an [`overlay::Source`], which has the demand, the draws, and the rate
//! control.

use netsim::Out;
use overlay::{Bucket, Output, Pace, PathReport, SourceConfig};
use units::{Bytes, PathId, Rate, Seed, Span, Time};

use super::hop::Hop;
use super::packet::{Numbering, OverlayPacket};
use super::producer::Producer;

/// A source. It opens and closes paths as its core says, and writes to them at the rates that the
/// core sets, or in turns to those that accept a packet.
#[derive(Clone, Debug)]
pub struct Source {
    core: overlay::Source,
    /// One for each candidate.
    places: Vec<CandidatePlace>,
    /// The places with a path, ascending.
    live: Vec<usize>,
    /// The places of the paths that are written to, in the order of the core; where data may be
    /// lacking, the one that is probed comes first.
    used: Vec<usize>,
    /// The bucket of all paths while data goes in turns.
    bucket: Bucket,
    /// The index in `used` of the path whose turn is next.
    turn: usize,
    /// What it produces; `None` if it has data at any time.
    producer: Option<Producer>,
    report: Assembly,
    wiring: Wiring,
    /// A control interval.
    period: Span,
    /// Payload of a packet.
    packet: Bytes,
    /// A path with this many bytes unsent is not written to.
    ahead: Bytes,
    opens: Option<Time>,
    leaves: Option<Time>,
    /// The next deadline.
    next: Option<Time>,
}

/// A candidate.
#[derive(Clone, Debug)]
struct CandidatePlace {
    hop: Hop,
    bucket: Bucket,
    path: Option<PathId>,
    /// How often it was opened.
    opened: u32,
}

/// The packets of a report that have arrived.
#[derive(Clone, Debug, Default)]
struct Assembly {
    interval: u64,
    arrived: u16,
    entries: Vec<PathReport>,
}

/// The numbers of a source's paths and connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wiring {
    /// The number of its first place.
    pub(super) first: u32,
    pub(super) paths: Numbering,
    pub(super) connections: Numbering,
}

/// The configuration of a source, and its seed.
#[derive(Clone, Debug)]
pub(super) struct SourceSetup {
    pub(super) core: SourceConfig,
    /// What it knows of its candidates.
    pub(super) capacities: Vec<Rate>,
    pub(super) producer: Option<Producer>,
    pub(super) period: Span,
    pub(super) ahead: Bytes,
    pub(super) opens: Time,
    pub(super) leaves: Option<Time>,
    pub(super) seed: Seed,
}

impl Source {
    /// A source whose candidates begin with these hops.
    ///
    /// # Panics
    ///
    /// If it has fewer candidates than paths, or none.
    pub(super) fn new(setup: SourceSetup, wiring: Wiring, hops: Vec<Hop>) -> Source {
        let SourceSetup { core, capacities, producer, period, ahead, opens, leaves, seed } = setup;
        let packet = core.packet;
        let place =
            |hop| CandidatePlace { hop, bucket: Bucket::new(packet), path: None, opened: 0 };
        Source {
            core: overlay::Source::new(core, &capacities, seed)
                .expect("a source has a candidate for each path"),
            places: hops.into_iter().map(place).collect(),
            live: Vec::new(),
            used: Vec::new(),
            bucket: Bucket::new(packet),
            turn: 0,
            producer,
            report: Assembly::default(),
            wiring,
            period,
            packet,
            ahead,
            opens: Some(opens),
            leaves,
            next: Some(opens),
        }
    }

    /// The rate control, the draws, and all that the source knows.
    #[must_use]
    pub fn core(&self) -> &overlay::Source {
        &self.core
    }

    /// All that it has produced; nothing for a source that has data at any time.
    #[must_use]
    pub fn produced(&self) -> Bytes {
        self.producer.as_ref().map_or(Bytes::ZERO, Producer::produced)
    }

    /// Payload written to the first hop of each candidate since its path was last opened.
    pub fn written(&self) -> impl Iterator<Item = Bytes> {
        self.places.iter().map(|place| place.hop.written())
    }

    /// Payload of these that has been acknowledged.
    pub fn acked(&self) -> impl Iterator<Item = Bytes> {
        self.places.iter().map(|place| place.hop.acked())
    }

    /// The rate set on each path, y, in bit/s; nothing before the first rates.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.core.rates().map_or(Vec::new(), Iterator::collect)
    }

    /// A packet has arrived: a segment of a first hop, or a part of a report.
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        packet: &OverlayPacket,
        out: &mut Out<OverlayPacket>,
    ) {
        match *packet {
            OverlayPacket::Tcp { connection, ref segment, .. } => {
                let is_it = |place: &&mut CandidatePlace| place.hop.connection() == connection;
                // An acknowledgement may make room for packets that wait.
                if let Some(place) = self.places.iter_mut().find(is_it) {
                    place.hop.handle_segment(now, segment);
                }
            }
            OverlayPacket::Report { path, interval, received, of, capacity } => {
                let (number, opened) = self.wiring.paths.split(path);
                let candidate = (number - self.wiring.first) as usize;
                let place = &self.places[candidate];
                if capacity > Rate::ZERO {
                    self.core.handle_capacity(now, candidate, capacity);
                }
                if self.report.interval != interval {
                    self.report = Assembly { interval, ..Assembly::default() };
                }
                self.report.arrived += 1;
                if let Some(path) = place.path.filter(|_| opened + 1 == place.opened) {
                    self.report.entries.push(PathReport { path, received });
                }
                if self.report.arrived == of {
                    self.handle_report(now);
                }
            }
        }
        self.go_on(now, out);
    }

    pub(super) fn handle_deadline(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        if self.opens.is_some_and(|at| at <= now) {
            self.opens = None;
            self.core.handle_start(now);
            self.obey(now);
        }
        if self.leaves.is_some_and(|at| at <= now) {
            self.leaves = None;
            self.produce(now);
            self.producer = None;
            self.core.handle_stop(now);
            self.obey(now);
        }
        self.core.handle_deadline(now);
        for &at in &self.live {
            self.places[at].hop.handle_deadline(now);
        }
        self.go_on(now, out);
    }

    #[inline]
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.next
    }

    /// A report is complete.
    fn handle_report(&mut self, now: Time) {
        self.produce(now);
        let stamp = Time::ZERO + self.period * self.report.interval;
        self.core
            .handle_report(now, stamp, &self.report.entries)
            .expect("the receiver counts what was written");
        self.obey(now);
    }

    /// Does what the core wants.
    fn obey(&mut self, now: Time) {
        let mut is_new = false;
        while let Some(output) = self.core.poll_output() {
            is_new |= !matches!(output, Output::Pace);
            match output {
                Output::Open { path, candidate } => {
                    let connections = self.wiring.connections;
                    let place = &mut self.places[candidate];
                    if place.opened > 0 {
                        let (hop, _) = connections.split(place.hop.connection());
                        place.hop.renew(connections.join(hop, place.opened));
                    }
                    place.opened += 1;
                    place.path = Some(path);
                    place.hop.open(now);
                }
                Output::Close(path) => {
                    if let Some(place) =
                        self.places.iter_mut().find(|place| place.path == Some(path))
                    {
                        place.path = None;
                    }
                }
                Output::Pace => self.set_rates(now),
                // The intervals of a run are all of one length.
                Output::Drain(_)
                | Output::Resume(_)
                | Output::Interval
                | Output::Judged { .. }
                | Output::TakenBack
                | Output::Silent => {}
            }
        }
        if is_new {
            self.live =
                (0..self.places.len()).filter(|&at| self.places[at].path.is_some()).collect();
            self.used = self.core.paths().map(|path| path.candidate).collect();
        }
    }

    /// Sets the rates of a new interval; unused tokens expire.
    fn set_rates(&mut self, now: Time) {
        match self.core.pace() {
            Pace::Nothing => {}
            Pace::Turns(rate) => self.bucket.set(now, rate),
            Pace::Rates => {
                for path in self.core.paths() {
                    self.places[path.candidate].bucket.set(now, path.rate);
                }
                if self.producer.is_some() {
                    let mut paths: Vec<_> = self.core.paths().collect();
                    paths.sort_by_key(|path| !path.is_probed);
                    self.used = paths.into_iter().map(|path| path.candidate).collect();
                }
            }
        }
    }

    fn produce(&mut self, now: Time) {
        if let Some(producer) = &mut self.producer {
            let new = producer.take(now);
            if new > Bytes::ZERO {
                self.core.handle_produced(now, new);
            }
        }
    }

    /// Writes and sends as much as possible.
    #[inline]
    fn go_on(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        self.produce(now);
        self.write(now);
        for &at in &self.live {
            self.places[at].hop.send(now, out);
        }
        self.rearm();
    }

    #[inline]
    fn has_data(&self) -> bool {
        self.producer.is_none() || self.core.backlog() >= self.packet
    }

    /// Writes as many packets as buckets and paths allow.
    #[inline]
    fn write(&mut self, now: Time) {
        match self.core.pace() {
            Pace::Nothing => {}
            Pace::Turns(_) => {
                self.bucket.fill(now);
                let count = self.used.len();
                while self.bucket.has_packet() && self.has_data() {
                    let turn = self.turn;
                    let mut turns = (0..count).map(|step| (turn + step) % count);
                    let accepts = |at: &usize| self.places[self.used[*at]].accepts(self.ahead);
                    let Some(at) = turns.find(accepts) else { break };
                    self.write_to(now, self.used[at]);
                    self.bucket.take();
                    self.turn = (at + 1) % count;
                }
            }
            Pace::Rates => {
                for index in 0..self.used.len() {
                    let at = self.used[index];
                    self.places[at].bucket.fill(now);
                    while self.places[at].bucket.has_packet()
                        && self.places[at].accepts(self.ahead)
                        && self.has_data()
                    {
                        self.write_to(now, at);
                        self.places[at].bucket.take();
                    }
                }
            }
        }
    }

    #[inline]
    fn write_to(&mut self, now: Time, at: usize) {
        let place = &mut self.places[at];
        place.hop.write(self.packet);
        if let Some(path) = place.path {
            self.core.handle_written(now, path, self.packet);
        }
    }

    /// Sets the next deadline. A path that accepts nothing needs none: an acknowledgement will
    /// come.
    #[inline]
    fn rearm(&mut self) {
        let hops = self.live.iter().filter_map(|&at| self.places[at].hop.poll_deadline());
        let own = [self.opens, self.leaves, self.core.poll_deadline()];
        let mut next = hops.chain(own.into_iter().flatten()).min();
        let mut note = |at: Option<Time>| next = next.into_iter().chain(at).min();
        if self.has_data() {
            let mut open = self.used.iter().map(|&at| &self.places[at]);
            match self.core.pace() {
                Pace::Nothing => {}
                Pace::Turns(_) => {
                    if open.any(|place| place.accepts(self.ahead)) {
                        note(self.bucket.due());
                    }
                }
                Pace::Rates => {
                    for place in open.filter(|place| place.accepts(self.ahead)) {
                        note(place.bucket.due());
                    }
                }
            }
        } else {
            note(self.producer.as_ref().and_then(Producer::due));
        }
        self.next = next;
    }
}

impl CandidatePlace {
    #[inline]
    fn accepts(&self, ahead: Bytes) -> bool {
        self.hop.is_open() && self.hop.unsent() < ahead
    }
}
