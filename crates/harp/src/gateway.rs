//! A gateway: its connections, and the paths to one other gateway.

mod deadlines;
mod views;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use units::{Bytes, Span, Time};
use wire::harp::{Report, Stamp};
use wire::tcp::{Flags, Meta};

use crate::arrivals::Arrivals;
use crate::connection::Halves;
use crate::detector::{Detector, capacity, round_trip, weight};
use crate::exit::{HeardPaths, Released};
use crate::liveness::Liveness;
use crate::paths::Paths;
use crate::pieces::PieceCount;
use crate::{Carried, Config, Edits, Flow, Message, Output, Scale, Sharing};

/// A connection without segments for this long has no share of a site's windows.
const INACTIVE: Span = Span::from_secs(1);

/// One gateway's end of all connections with one other gateway.
#[derive(Clone, Debug)]
pub struct Gateway<T> {
    config: Config,
    connections: BTreeMap<Flow, Relayed<T>>,
    /// What all connections share, in [`Sharing::Site`].
    site: Option<Ends>,
    outputs: VecDeque<Output<T>>,
    /// The deadlines of connections.
    agenda: BTreeSet<(Time, Flow)>,
    /// Connections with packets that are held back.
    held: BTreeSet<Flow>,
    /// The connection whose held packet left last: all have their turn.
    turn: Flow,
    sweep_at: Option<Time>,
    liveness: Liveness,
    /// Connections with a share of a site's windows, as of the last count.
    active: (Time, usize),
    arrivals: Arrivals,
    /// The paths that there are, if they come and go.
    present: Option<u8>,
    /// When something last came over each path of the other gateway, likewise.
    heard: Option<[Option<Time>; wire::harp::MOST_PATHS]>,
    pieces: PieceCount,
    /// The paths over which nothing seems to arrive, a bit for each, and when one was added last.
    doubted: (u8, Option<Time>),
}

/// A path of the other gateway, where they come and go, is gone after so much silence.
const HEARD: Span = Span::from_secs(10);

/// The ends of the paths: windows where packets enter, delays where they leave.
#[derive(Clone, Debug)]
struct Ends {
    paths: Paths,
    detector: Detector,
}

impl Ends {
    fn new(now: Time, config: &Config) -> Ends {
        let detector = Detector::new(config);
        Ends { paths: Paths::new(now, config), detector }
    }

    /// What the other gateway saw.
    fn handle_entries(&mut self, (now, at): (Time, Time), report: &Report) {
        for entry in report.entries() {
            let path = usize::from(entry.path);
            if path >= self.paths.count() {
                continue;
            }
            let rtt = round_trip(at, *entry);
            if let Some(rtt) = rtt {
                self.paths.handle_rtt(path, rtt);
            }
            if let Some(rate) = capacity(*entry) {
                self.paths.handle_capacity(path, rate);
            }
            self.paths.handle_late(now, path, weight(*entry), rtt);
        }
        for path in 0..self.paths.count() {
            if report.queued & (1 << path) != 0 {
                self.paths.handle_queue(now, path);
            }
            if report.open & (1 << path) != 0 {
                self.paths.handle_open(now, path);
            }
        }
    }
}

/// A connection of hosts that know nothing of gateways.
#[derive(Clone, Debug)]
struct Relayed<T> {
    halves: Halves<T>,
    /// Its own, in [`Sharing::Connection`].
    own: Option<Ends>,
    /// Its deadline on the agenda.
    due: Option<Time>,
}

impl<T: Carried> Gateway<T> {
    /// A gateway without connections.
    #[must_use]
    pub fn new(now: Time, config: &Config) -> Gateway<T> {
        let most = u8::try_from(wire::harp::MOST_PATHS).unwrap_or(u8::MAX);
        let config = Config { paths: config.paths.clamp(1, most), ..*config };
        let site = (config.sharing == Sharing::Site).then(|| Ends::new(now, &config));
        Gateway {
            config,
            connections: BTreeMap::new(),
            site,
            outputs: VecDeque::new(),
            agenda: BTreeSet::new(),
            held: BTreeSet::new(),
            turn: 0,
            sweep_at: None,
            liveness: Liveness::new(&config),
            active: (now, 1),
            arrivals: Arrivals::default(),
            present: None,
            heard: None,
            pieces: PieceCount::default(),
            doubted: (0, None),
        }
    }

    /// The paths that there are from now on, a bit for each, where they come and go. The other
    /// gateway may number its own in another way: those of which nothing came for a while have no
    /// say in what is lost.
    pub fn set_paths(&mut self, now: Time, mask: u8) {
        self.heard.get_or_insert_default();
        self.liveness.set_present(mask);
        for Relayed { halves, own, .. } in self.connections.values_mut() {
            let Some(ends) = own.as_mut().or(self.site.as_mut()) else { continue };
            halves.sending.land(!mask, &mut ends.paths);
            if let Some(own) = own {
                own.paths.set_present(now, mask);
            }
        }
        if let Some(site) = &mut self.site {
            site.paths.set_present(now, mask);
        }
        self.present = Some(mask);
    }

    /// The other gateway's path of this number is another one from now on: it is as long as it is,
    /// and its packets are not late because the one before was shorter.
    pub fn renew_path(&mut self, number: u8) {
        let number = usize::from(number);
        if let Some(site) = &mut self.site {
            return site.detector.renew(number);
        }
        for own in self.connections.values_mut().filter_map(|relayed| relayed.own.as_mut()) {
            own.detector.renew(number);
        }
    }

    /// Something has come over this side's path of this number. The numbers in what comes are the
    /// other gateway's, where paths come and go.
    pub fn handle_delivery(&mut self, now: Time, path: u8) {
        self.liveness.handle_delivery(now, path);
    }

    /// Something with the other gateway's number of a path has come.
    fn note_stamp(&mut self, now: Time, path: u8) {
        match self.heard {
            Some(_) => self.note_heard(now, path),
            None => self.liveness.handle_delivery(now, path),
        }
    }

    fn is_silent(&self, now: Time) -> bool {
        self.liveness.is_silent(now, || self.shortest_rtt())
    }

    fn shortest_rtt(&self) -> Option<Span> {
        self.site.as_ref()?.paths.shortest_rtt()
    }

    /// The paths of the other gateway that have a say in what is lost, a bit for each.
    fn heard_paths(&self, now: Time) -> HeardPaths {
        let Some(heard) = &self.heard else { return HeardPaths { mask: u8::MAX, are_all: true } };
        let is_new = |at: &Option<Time>| at.is_some_and(|at| now < at + HEARD);
        let new = (0..).zip(heard).filter(|(_, at)| is_new(at));
        let mask = new.fold(0_u8, |mask, (path, _)| mask | 1 << path);
        let present = self.present.map_or(0, u8::count_ones);
        HeardPaths { mask, are_all: mask.count_ones() >= present }
    }

    fn note_heard(&mut self, now: Time, path: u8) {
        let heard = self.heard.as_mut().and_then(|heard| heard.get_mut(usize::from(path)));
        if let Some(at) = heard {
            *at = Some(now);
        }
    }

    /// A segment of a host on this side.
    pub fn handle_inside(&mut self, now: Time, flow: Flow, packet: T) {
        if !self.has_room(now, flow) {
            self.outputs.push_back(Output::Normal(flow, packet));
            return;
        }
        let meta = packet.meta();
        let holds = self.config.holds;
        let is_dead = self.is_dead(now);
        self.liveness.handle_sent(now, flow);
        let return_path = self.liveness.return_path();
        let (halves, ends, outputs) = self.parts(now, flow);
        halves.note(now, 0, &meta);
        if meta.flags.has(Flags::SYN) {
            halves.sending.handle_open(&meta, &mut ends.paths);
        }
        if is_dead {
            halves.sending.handle_elsewhere(&meta, &mut ends.paths);
            outputs.push_back(Output::Normal(flow, packet));
            return;
        }
        let report = ends.detector.report(now);
        if !report.is_empty() {
            outputs.push_back(Output::Outside(flow, return_path, Message::Report(report)));
        }
        if meta.len == 0 {
            outputs.push_back(Output::Outside(flow, return_path, Message::Return(packet)));
        } else if let Some((packet, path)) =
            halves.sending.handle_data(now, packet, &mut ends.paths, holds)
        {
            let stamp = ends.paths.data_stamp(now, path);
            outputs.push_back(Output::Outside(flow, stamp.path, Message::Data(stamp, packet)));
        }
        self.rearm(now, flow);
    }

    /// A message of the other gateway, which arrived with a mark (ECN) or without.
    pub fn handle_outside(&mut self, now: Time, flow: Flow, message: Message<T>, is_marked: bool) {
        self.handle_arrival(now, now, flow, message, is_marked);
    }

    /// The same of a message that has arrived at `at` and waited for its turn: delays are measured
    /// to then.
    pub fn handle_arrival(
        &mut self,
        now: Time,
        at: Time,
        flow: Flow,
        message: Message<T>,
        is_marked: bool,
    ) {
        let at = at.min(now);
        if matches!(&message, Message::Report(report) if report.is_deaf) {
            self.liveness.handle_deaf(now);
            self.doubt(now, self.present.unwrap_or(0));
        } else if self.config.probes_answer || !matches!(message, Message::Probe(_)) {
            self.liveness.handle_heard();
        }
        if !self.has_room(now, flow) {
            if let Message::Data(_, packet) | Message::Return(packet) = message {
                self.outputs.push_back(Output::Inside(flow, packet, Edits::default()));
            }
            return;
        }
        match message {
            Message::Data(stamp, packet) => {
                self.handle_data((now, at), flow, &stamp, packet, is_marked);
            }
            Message::Return(packet) => {
                self.note_outside(now, flow, &packet.meta());
                self.pass(flow, packet);
            }
            Message::Probe(stamp) => self.handle_probe((now, at), flow, &stamp),
            Message::Report(report) => self.handle_report((now, at), flow, &report),
        }
        self.release(now, flow);
    }

    /// What is to leave; drained after each other call.
    pub fn poll_output(&mut self) -> Option<Output<T>> {
        self.outputs.pop_front()
    }

    /// Tells what the SYNs of a connection said that another gateway has seen, or the kernel: that
    /// of the host on this side first. SYNs that this gateway has seen itself count for more.
    pub fn restore(&mut self, now: Time, flow: Flow, scales: [Scale; 2]) {
        if !self.has_room(now, flow) {
            return;
        }
        let (halves, _, _) = self.parts(now, flow);
        for (known, told) in halves.scales.iter_mut().zip(scales) {
            if *known == Scale::Unseen {
                *known = told;
            }
        }
    }

    fn handle_data(
        &mut self,
        (now, at): (Time, Time),
        flow: Flow,
        stamp: &Stamp,
        packet: T,
        is_marked: bool,
    ) {
        if stamp.path >= self.config.paths {
            return;
        }
        self.note_stamp(now, stamp.path);
        let heard = self.heard_paths(now);
        let return_path = self.liveness.return_path();
        self.note_outside(now, flow, &packet.meta());
        let (halves, ends, outputs) = self.parts(now, flow);
        let len = packet.meta().len;
        let is_late = ends.detector.handle_data(at, stamp, len, is_marked);
        let srtt = Span::from_micros(u64::from(stamp.srtt));
        halves.receiving.handle_srtt(usize::from(stamp.path), srtt);
        let ready = halves.receiving.handle_data(now, usize::from(stamp.path), packet);
        let lost = halves.receiving.poll_lost(now, srtt, heard);
        if let Some(lost) = lost {
            let report = Report { lost, ..ends.detector.report(now) };
            outputs.push_back(Output::Outside(flow, return_path, Message::Report(report)));
        }
        let Arrivals { packets, late, waited, lost: gaps, .. } = &mut self.arrivals;
        *packets += 1;
        *late += u64::from(is_late);
        *waited += u64::from(ready.is_none());
        *gaps += u64::from(lost.is_some());
        if let Some(packet) = ready {
            self.pass(flow, packet);
        }
    }

    fn handle_probe(&mut self, (now, at): (Time, Time), flow: Flow, stamp: &Stamp) {
        if stamp.path >= self.config.paths {
            return;
        }
        self.note_stamp(now, stamp.path);
        let return_path = self.liveness.return_path();
        if self.site.is_some() {
            for relayed in self.connections.values_mut() {
                relayed.halves.receiving.handle_probe(usize::from(stamp.path));
            }
        }
        let (halves, ends, outputs) = self.parts(now, flow);
        halves.receiving.handle_probe(usize::from(stamp.path));
        ends.detector.handle_probe(at, stamp);
        let report = ends.detector.report(now);
        outputs.push_back(Output::Outside(flow, return_path, Message::Report(report)));
    }

    fn handle_report(&mut self, (now, at): (Time, Time), flow: Flow, report: &Report) {
        for entry in report.entries() {
            self.liveness.handle_delivery(now, entry.path);
        }
        let (halves, ends, _) = self.parts(now, flow);
        ends.handle_entries((now, at), report);
        if report.lost.1 == 0 {
            return;
        }
        let mask = halves.sending.handle_lost(now, report.lost, &mut ends.paths);
        for path in (0..ends.paths.count()).filter(|path| mask & (1 << path) != 0) {
            ends.paths.handle_missing(now, path);
        }
    }

    /// A segment of the host on the other side has arrived, and acknowledges something.
    fn note_outside(&mut self, now: Time, flow: Flow, meta: &Meta) {
        let (halves, ends, _) = self.parts(now, flow);
        halves.note(now, 1, meta);
        if meta.flags.has(Flags::SYN) {
            halves.receiving.handle_open(meta);
            if let Some(mss) = meta.mss {
                halves.sending.set_mss(Bytes(u64::from(mss)), &mut ends.paths);
            }
        }
        halves.sending.handle_ack(now, meta, &mut ends.paths);
    }

    /// Hands a segment to the host on this side.
    fn pass(&mut self, flow: Flow, packet: T) {
        let share = self.share(flow);
        let Some(Relayed { halves, .. }) = self.connections.get_mut(&flow) else { return };
        let meta = packet.meta();
        // The window of a SYN is never scaled.
        let is_syn = meta.flags.has(Flags::SYN);
        let scale = if is_syn { Some(0) } else { halves.far_scale() };
        let edits = scale.map(|scale| halves.sending.edits(&meta, scale, share));
        let edits = edits.unwrap_or_default();
        self.outputs.push_back(Output::Inside(flow, packet, edits));
    }

    /// Lets leave what waits no longer: those of the receiving half that are in order or waited
    /// long enough, and held packets of the sending half.
    fn release(&mut self, now: Time, flow: Flow) {
        while let Some(Relayed { halves, .. }) = self.connections.get_mut(&flow)
            && let Some(Released { packet, waited, is_expired }) = halves.receiving.poll_ready(now)
        {
            self.arrivals.waits.count(waited, is_expired);
            self.pass(flow, packet);
        }
        self.release_held(now, flow);
        if self.site.is_some() && !self.held.is_empty() {
            // What arrived made room for every connection of a site.
            let turn = self.turn;
            let after = self.held.range(turn.saturating_add(1)..);
            let order: Vec<Flow> = after.chain(self.held.range(..=turn)).copied().collect();
            for other in order {
                if other != flow && !self.release_held(now, other) {
                    break;
                }
            }
        }
    }

    /// Lets held packets of a connection leave. Returns whether all of them did.
    fn release_held(&mut self, now: Time, flow: Flow) -> bool {
        let Gateway { connections, site, outputs, turn, .. } = self;
        let mut are_gone = true;
        if let Some(Relayed { halves, own, .. }) = connections.get_mut(&flow)
            && let Some(ends) = own.as_mut().or(site.as_mut())
        {
            while let Some((packet, path)) = halves.sending.poll_held(now, &mut ends.paths) {
                let stamp = ends.paths.data_stamp(now, path);
                outputs.push_back(Output::Outside(flow, stamp.path, Message::Data(stamp, packet)));
                *turn = flow;
            }
            are_gone = !halves.sending.has_held();
        }
        self.rearm(now, flow);
        are_gone
    }

    /// Puts the deadline of a connection on the agenda.
    fn rearm(&mut self, now: Time, flow: Flow) {
        let Gateway { connections, site, agenda, held, .. } = self;
        let Some(Relayed { halves, own, due }) = connections.get_mut(&flow) else { return };
        let probe = own.as_ref().and_then(|ends| ends.paths.poll_deadline());
        let packet = own
            .as_ref()
            .or(site.as_ref())
            .and_then(|ends| halves.sending.poll_deadline(now, &ends.paths));
        let next = halves.receiving.poll_deadline().into_iter().chain(probe).chain(packet).min();
        if next != *due {
            if let Some(at) = *due {
                agenda.remove(&(at, flow));
            }
            agenda.extend(next.map(|at| (at, flow)));
            *due = next;
        }
        if halves.sending.has_held() {
            held.insert(flow);
        } else {
            held.remove(&flow);
        }
    }

    /// What a connection may have in flight, bytes.
    fn share(&mut self, flow: Flow) -> f64 {
        let Some(Relayed { halves, own, .. }) = self.connections.get(&flow) else { return 0.0 };
        if let Some(own) = own {
            return own.paths.total();
        }
        let Some(site) = &self.site else { return 0.0 };
        let (total, now) = (site.paths.total(), halves.seen_at);
        // Counted at most once in a hundredth of the time that makes inactive.
        if now.since(self.active.0).as_nanos() >= INACTIVE.as_nanos() / 100 {
            let is_active = |relayed: &&Relayed<T>| {
                relayed.halves.sending.is_busy() && now < relayed.halves.seen_at + INACTIVE
            };
            self.active = (now, self.connections.values().filter(is_active).count());
        }
        #[expect(clippy::cast_precision_loss, reason = "there are fewer connections than 2^53")]
        let active = self.active.1.max(1) as f64;
        total / active
    }

    /// Whether the connection is known, or one more may be. What has no room takes the route that
    /// it would have without gateways.
    fn has_room(&mut self, now: Time, flow: Flow) -> bool {
        if self.connections.len() < self.config.most_connections
            || self.connections.contains_key(&flow)
        {
            return true;
        }
        // Those that are over may not keep others out, but looking for them takes its time.
        if self.sweep_at.is_none_or(|at| at <= now) {
            self.sweep(now);
        }
        self.connections.len() < self.config.most_connections
    }

    /// A connection, which is new if it is unknown, with the ends of its paths.
    fn parts(
        &mut self,
        now: Time,
        flow: Flow,
    ) -> (&mut Halves<T>, &mut Ends, &mut VecDeque<Output<T>>) {
        let Gateway { config, connections, site, outputs, sweep_at, present, pieces, .. } = self;
        sweep_at.get_or_insert(now + deadlines::SWEEP);
        let is_site = site.is_some();
        let ends = || {
            let mut ends = Ends::new(now, config);
            if let Some(mask) = *present {
                ends.paths.set_present(now, mask);
            }
            ends
        };
        let Relayed { halves, own, .. } = connections.entry(flow).or_insert_with(|| Relayed {
            halves: Halves::new(now, config, pieces.clone()),
            own: (!is_site).then(ends),
            due: None,
        });
        let ends = own.as_mut().or(site.as_mut()).expect("a connection has its own, or the site's");
        (halves, ends, outputs)
    }
}
