//! The world around both gateways, byte by byte.

use std::collections::{BTreeMap, VecDeque};

use harp::{Config, Edits, Gateway, Message, Output, Sharing};
use units::{Span, Time};
use wire::tcp::{Flags, Meta};

use crate::heard::Heard;
use crate::{FLOW, MSS, Op, Packet, Setting};

/// The host repeats one of so many segments.
pub(crate) const REPEATED: usize = 8;

/// Two hosts, their gateways, and the model of what these should do.
pub(crate) struct World {
    setting: Setting,
    now: Time,
    /// What the far gateway's clock is ahead.
    step: Span,
    near: Gateway<Packet>,
    far: Gateway<Packet>,
    config: Config,
    numbers: u64,
    /// Messages on the way, by path, and those that return.
    there: Vec<VecDeque<(u32, Message<Packet>)>>,
    back: VecDeque<Message<Packet>>,
    /// Bytes sent by the host so far.
    sent: u64,
    /// The latest segments of new data: where each begins, and its length.
    segments: VecDeque<(u64, u16)>,
    /// Bytes under way in the model: the path that carries each, whether it counts, and since when.
    carried: BTreeMap<u64, (u8, bool, Time)>,
    /// When the near gateway last saw a segment, or let one leave.
    near_seen: Time,
    /// Whether what was in flight may have been forgotten before it let one leave.
    may_have_landed: bool,
    acked: u64,
    /// Packets that the near gateway has not put out yet.
    pub inside: Vec<Packet>,
    /// Packets that wait at the far gateway, with their arrival.
    pub waiting: Vec<(Packet, Time)>,
    /// `rcvnext` of the far gateway in the model.
    next: u64,
    srtt: [Span; 8],
    /// The last packet of the sender that took the route without gateways.
    normal: Option<Packet>,
    /// When each path delivered last, as either gateway knows.
    near_heard: Heard,
    far_heard: Heard,
    /// What the receiver has, and the right edge that it announced.
    received: BTreeMap<u64, u64>,
    announced: u64,
    /// The right edge that the host was told.
    told: u64,
}

impl World {
    pub(crate) fn new(setting: Setting) -> World {
        let mut config = Config::modern(setting.paths);
        config.holds = setting.holds;
        config.admission = None;
        if setting.is_site {
            config.sharing = Sharing::Site;
        }
        let now = Time::ZERO + Span::from_secs(4_000);
        let mut world = World {
            setting,
            now,
            step: Span::ZERO,
            near: Gateway::new(now, &config),
            far: Gateway::new(now, &config),
            config,
            numbers: 0,
            there: vec![VecDeque::new(); usize::from(setting.paths)],
            back: VecDeque::new(),
            sent: 0,
            segments: VecDeque::new(),
            carried: BTreeMap::new(),
            near_seen: Time::ZERO,
            may_have_landed: false,
            acked: 0,
            inside: Vec::new(),
            waiting: Vec::new(),
            next: 0,
            srtt: [Span::ZERO; 8],
            normal: None,
            near_heard: Heard::default(),
            far_heard: Heard::default(),
            received: BTreeMap::new(),
            announced: 0,
            told: 0,
        };
        world.handshake();
        world
    }

    fn far_now(&self) -> Time {
        let skewed = self.now.as_nanos() / 1_000_000 * u64::from(self.setting.skew);
        self.now + self.step + Span::from_nanos(skewed)
    }

    /// The shift of the receiver's windows.
    fn scale(&self) -> u8 {
        if self.setting.is_one_sided { 0 } else { self.setting.scale }
    }

    /// The position of a byte of the sender, counted from zero.
    fn position(&self, byte: u64) -> u32 {
        self.setting.first[0]
            .wrapping_add(1)
            .wrapping_add(u32::try_from(byte & 0xffff_ffff).unwrap())
    }

    fn byte(&self, position: u32) -> u64 {
        u64::from(position.wrapping_sub(self.setting.first[0].wrapping_add(1)))
    }

    fn packet(&mut self, meta: Meta) -> Packet {
        self.numbers += 1;
        Packet { number: self.numbers, meta }
    }

    fn handshake(&mut self) {
        let Setting { first, scale, is_one_sided, .. } = self.setting;
        let syn = Meta {
            seq: first[0],
            window: 60_000,
            flags: Flags::SYN,
            scale: (!is_one_sided).then_some(3),
            mss: Some(MSS),
            ..Meta::default()
        };
        let answer = Meta {
            seq: first[1],
            ack: first[0].wrapping_add(1),
            window: 60_000,
            flags: Flags::SYN.with(Flags::ACK),
            scale: Some(scale),
            mss: Some(MSS),
            ..Meta::default()
        };
        let packet = self.packet(syn);
        self.near_seen = self.now;
        self.near.handle_inside(self.now, FLOW, packet);
        let out = self.near.poll_output();
        assert_eq!(out, Some(Output::Outside(FLOW, 0, Message::Return(packet))));
        self.far.handle_outside(self.far_now(), FLOW, Message::Return(packet), false);
        // The windows of both SYNs are lowered to a packet a path: what is told stays.
        let first = MSS * u16::from(self.setting.paths);
        let window = Some(first);
        let passed = Output::Inside(FLOW, packet, Edits { window });
        assert_eq!(self.far.poll_output(), Some(passed));
        let packet = self.packet(answer);
        self.far_heard.sends(self.far_now());
        self.far.handle_inside(self.far_now(), FLOW, packet);
        assert_eq!(self.far.poll_output(), Some(Output::Outside(FLOW, 0, Message::Return(packet))));
        self.near_seen = self.now;
        self.near.handle_outside(self.now, FLOW, Message::Return(packet), false);
        let passed = Output::Inside(FLOW, packet, Edits { window });
        assert_eq!(self.near.poll_output(), Some(passed));
        self.told = u64::from(first);
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match *op {
            Op::Send(len) => {
                let from = self.sent;
                self.sent += u64::from(len);
                self.segments.push_front((from, len));
                self.segments.truncate(REPEATED);
                self.host_sends(from, len);
            }
            Op::Repeat { back } => {
                if let Some(&(from, len)) = self.segments.get(back) {
                    self.host_sends(from, len);
                }
            }
            Op::Resend { back, len } => {
                let from = self.sent.saturating_sub(u64::from(back));
                let len = u64::from(len).min(self.sent - from);
                if len > 0 {
                    self.host_sends(from, u16::try_from(len).unwrap());
                }
            }
            Op::Deliver { path, is_marked } => {
                let path = usize::from(path) % self.there.len();
                if let Some((_, message)) = self.there[path].pop_front() {
                    self.arrive_far(message, is_marked);
                }
            }
            Op::Drop { path } => {
                let path = usize::from(path) % self.there.len();
                self.there[path].pop_front();
            }
            Op::Return => {
                if let Some(message) = self.back.pop_front() {
                    self.arrive_near(message);
                }
            }
            Op::DropReturn => {
                self.back.pop_front();
            }
            Op::Ack { room } => self.host_acknowledges(room),
            Op::Tick { millis } => {
                self.now += Span::from_millis(u64::from(millis));
                for _ in 0..1_000 {
                    let due = |gateway: &Gateway<Packet>, now| {
                        gateway.poll_deadline().is_some_and(|at| at <= now)
                    };
                    let (is_near, is_far) =
                        (due(&self.near, self.now), due(&self.far, self.far_now()));
                    if is_near {
                        self.near.handle_deadline(self.now);
                    }
                    if is_far {
                        self.far.handle_deadline(self.far_now());
                    }
                    self.drain_near();
                    self.drain_far();
                    if !is_near && !is_far {
                        return;
                    }
                }
                panic!("a deadline does not move");
            }
            Op::Step { millis } => self.step += Span::from_millis(u64::from(millis)),
        }
    }

    fn host_sends(&mut self, from: u64, len: u16) {
        let flags = Flags::ACK;
        let ack = self.setting.first[1].wrapping_add(1);
        let meta =
            Meta { seq: self.position(from), ack, window: 100, len, flags, ..Meta::default() };
        let packet = self.packet(meta);
        // Bytes that are sent again count no more where they were.
        for byte in from..from + u64::from(len) {
            self.carried.remove(&byte);
        }
        self.inside.push(packet);
        let is_dead = self.near_heard.is_dead(self.now);
        self.near_heard.sends(self.now);
        self.near_seen = self.now;
        self.near.handle_inside(self.now, FLOW, packet);
        self.drain_near();
        assert_eq!(
            self.normal == Some(packet),
            is_dead,
            "packets take the route without gateways while the other one does not answer"
        );
    }

    fn drain_near(&mut self) {
        while let Some(output) = self.near.poll_output() {
            match output {
                Output::Outside(flow, path, message) => {
                    assert_eq!(flow, FLOW);
                    match message {
                        Message::Data(stamp, packet) => {
                            assert_eq!(stamp.path, path);
                            let place = self.inside.iter().position(|p| *p == packet);
                            self.inside.remove(place.expect("a segment passes once, unchanged"));
                            let from = self.byte(packet.meta.seq);
                            for byte in from..from + u64::from(packet.meta.len) {
                                if byte >= self.acked {
                                    self.may_have_landed |=
                                        self.now >= self.near_seen + Span::from_secs(1);
                                    self.near_seen = self.now;
                                    self.carried.insert(byte, (path, true, self.now));
                                }
                            }
                        }
                        Message::Probe(stamp) => assert_eq!(stamp.path, path),
                        Message::Report(_) | Message::Return(_) => {
                            assert_eq!(path, self.near_heard.return_path());
                        }
                    }
                    self.there[usize::from(path)].push_back((flow, message));
                }
                Output::Inside(_, packet, edits) => self.host_is_told(packet, edits),
                Output::Normal(_, packet) => {
                    assert!(self.near_heard.is_dead(self.now), "the other gateway answers");
                    let place = self.inside.iter().position(|p| *p == packet);
                    self.inside.remove(place.expect("a segment passes once, unchanged"));
                    self.normal = Some(packet);
                    let from = self.byte(packet.meta.seq);
                    self.receive(from, from + u64::from(packet.meta.len));
                }
            }
        }
        assert!(self.inside.len() <= 64, "so many are held at most: {:?}", self.inside);
    }

    fn arrive_far(&mut self, message: Message<Packet>, is_marked: bool) {
        self.far_heard.hears(self.far_now(), &message);
        if let Message::Data(stamp, packet) = message {
            self.waiting.push((packet, self.far_now()));
            self.srtt[usize::from(stamp.path)] = Span::from_micros(u64::from(stamp.srtt));
        }
        self.far.handle_outside(self.far_now(), FLOW, message, is_marked);
        self.drain_far();
    }

    fn drain_far(&mut self) {
        while let Some(output) = self.far.poll_output() {
            match output {
                Output::Inside(_, packet, _) if packet.meta.len > 0 => {
                    let place = self.waiting.iter().position(|(p, _)| *p == packet);
                    let (_, since) = self.waiting.remove(place.expect("it passes once"));
                    let from = self.byte(packet.meta.seq);
                    let end = from + u64::from(packet.meta.len);
                    let slowest = self.srtt.iter().max().unwrap();
                    let wait = match slowest.as_secs_f64() / 2.0 * self.config.reorder {
                        0.0 => 0.1,
                        wait => wait.min(1.0),
                    };
                    let waited = self.far_now().since(since).as_secs_f64();
                    assert!(
                        from <= self.next || waited >= wait - 1e-6,
                        "{from} is not {}, and waited {waited} s of {wait}",
                        self.next
                    );
                    self.next = self.next.max(end);
                    self.receive(from, end);
                }
                Output::Inside(..) => {}
                // The host gets it as it is; the near gateway does not see it.
                Output::Normal(..) => {
                    assert!(self.far_heard.is_dead(self.far_now()), "the other gateway answers");
                }
                Output::Outside(_, path, message) => {
                    match message {
                        Message::Probe(stamp) => assert_eq!(stamp.path, path),
                        _ => assert_eq!(path, self.far_heard.return_path(), "what returns"),
                    }
                    self.back.push_back(message);
                }
            }
        }
    }

    fn receive(&mut self, from: u64, end: u64) {
        let mut known = self.received.remove(&from).unwrap_or(from).max(end);
        while let Some((&start, &stop)) = self.received.range(from..=known).next() {
            self.received.remove(&start);
            known = known.max(stop);
        }
        self.received.insert(from, known);
    }

    /// The next byte that the receiver expects.
    fn expected(&self) -> u64 {
        let mut next = 0;
        for (from, end) in &self.received {
            if *from <= next {
                next = next.max(*end);
            }
        }
        next
    }

    fn host_acknowledges(&mut self, room: u32) {
        let (next, scale) = (self.expected(), self.scale());
        let most = u64::from(u16::MAX) << scale;
        // Receivers never move their edge to the left, and round up for that.
        let edge = self.announced.max(next + u64::from(room).min(most));
        let field = ((edge - next).div_ceil(1 << scale)).min(u64::from(u16::MAX));
        self.announced = self.announced.max(next + (field << scale));
        let meta = Meta {
            seq: self.setting.first[1].wrapping_add(1),
            ack: self.position(next),
            window: u16::try_from(field).unwrap(),
            flags: Flags::ACK,
            ..Meta::default()
        };
        let packet = self.packet(meta);
        self.far_heard.sends(self.far_now());
        self.far.handle_inside(self.far_now(), FLOW, packet);
        self.drain_far();
    }

    fn arrive_near(&mut self, message: Message<Packet>) {
        self.near_heard.hears(self.now, &message);
        match &message {
            Message::Return(packet) => {
                self.near_seen = self.now;
                let ack = self.byte(packet.meta.ack);
                if ack > self.acked {
                    self.acked = ack;
                    self.carried = self.carried.split_off(&ack);
                }
            }
            Message::Report(report) if report.lost.1 > 0 => {
                let from = self.byte(report.lost.0);
                let views = self.near.paths();
                for (_, (path, counts, since)) in
                    self.carried.range_mut(from..from + u64::from(report.lost.1))
                {
                    // The report itself may bring a shorter round trip: its echo comes first.
                    let echo = report.entries().iter().find(|entry| entry.path == *path);
                    let micros =
                        |at: Time| u32::try_from((at.as_nanos() / 1_000) & 0xffff_ffff).unwrap();
                    let known = views[usize::from(*path)].least_rtt;
                    let new = echo.map(|entry| micros(self.now).wrapping_sub(entry.echo));
                    let new = new.filter(|micros| *micros < u32::MAX / 2);
                    let new = new.map(|micros| Span::from_micros(u64::from(micros)));
                    let least = known.into_iter().chain(new).min().unwrap_or(Span::ZERO);
                    if self.now >= *since + least {
                        *counts = false;
                    }
                }
            }
            Message::Report(_) | Message::Data(..) | Message::Probe(_) => {}
        }
        self.near.handle_outside(self.now, FLOW, message, false);
        self.drain_near();
    }

    fn host_is_told(&mut self, packet: Packet, edits: Edits) {
        let (meta, scale) = (packet.meta, self.scale());
        let window = edits.window.unwrap_or(meta.window);
        let (told, theirs) = (u64::from(window) << scale, u64::from(meta.window) << scale);
        assert!(told <= theirs, "told {told}, the receiver has {theirs}");
        let packet_of_it = u64::from(MSS).min(theirs);
        assert!(told + (1 << scale) > packet_of_it, "told {told} of {theirs}, scale {scale}");
        let edge = self.byte(meta.ack) + told;
        let their_edge = self.byte(meta.ack) + theirs;
        let unit = 1 << scale;
        assert!(
            edge + unit > self.told.min(their_edge),
            "the edge was {} and is {edge}",
            self.told
        );
        self.told = self.told.max(edge);
    }

    /// The bytes that count as in flight, by path.
    fn counts(&self) -> [u64; 8] {
        let mut counts = [0_u64; 8];
        for (path, counted, _) in self.carried.values() {
            counts[usize::from(*path)] += u64::from(*counted);
        }
        counts
    }

    pub(crate) fn check(&mut self) {
        let views = self.near.paths();
        let found: Vec<u64> = views.iter().map(|view| view.in_flight.0).collect();
        // Nothing of a quiet connection is in flight. When exactly it is looked at, within a
        // second, is the gateway's business.
        let longest = views.iter().filter_map(|view| view.srtt).max().unwrap_or(Span::ZERO);
        let quiet = self.now.since(self.near_seen);
        let may = quiet >= Span::from_secs(1) || std::mem::take(&mut self.may_have_landed);
        let must = quiet >= Span::from_secs(2) + longest * 2;
        if must || may && found != self.counts()[..views.len()] {
            for (_, counts, since) in self.carried.values_mut() {
                *counts &= quiet == Span::ZERO && *since == self.now;
            }
        }
        let counts = self.counts();
        assert_eq!(found, counts[..views.len()], "in flight by path");
        assert!(views.iter().any(|view| !view.is_choked), "one path stays open");
    }
}
