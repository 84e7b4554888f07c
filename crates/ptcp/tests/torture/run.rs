//! One run: two ends, a network between them, a model of each stream and of the connection's end.

use std::collections::BTreeMap;
use std::rc::Rc;

use policy::cc;
use policy::sched::packet;
use ptcp::{Arrived, Config, Connection, Event, Restripe, Transmit};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use testnet::{Arrival, Dice, Endpoint, Fate, Network, Op};
use units::{Bytes, Span, Time};
use wire::ptcp::{Body, Packet};

use crate::ending::Ending;
use crate::model::{Incoming, Outgoing};
use crate::network::{self, Planned, at};
use crate::sealed::Sealing;

/// The time limit of a run.
const BOUND: Time = Time::from_nanos(900_000_000_000);
/// The ends, by index.
const CLIENT: usize = 0;
const SERVER: usize = 1;

pub(crate) struct Run {
    network: Network<End>,
    /// Whether the connection is closed before everything has arrived.
    is_cut_short: bool,
    /// The ends that close it otherwise.
    closers: &'static [usize],
}

/// What the application at an end does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Opens a path over each link.
    OpenPaths,
    Write {
        stream: u32,
        bytes: u64,
    },
    Finish {
        stream: u32,
    },
    Reset {
        stream: u32,
    },
    /// Replaces the first path by one over the same link.
    Rebind,
    /// The first path's address changes; the path stays.
    Move,
    /// Sends datagrams over the first path, outside of the windows.
    SendRaw {
        count: u64,
    },
    /// Stops or goes on reading all streams.
    SetReading {
        is_reading: bool,
    },
    Close {
        code: u32,
    },
    /// Updates the keys, if packets are sealed.
    UpdateKeys,
}

/// A packet on its way.
#[derive(Clone)]
pub(crate) struct Datagram {
    transmit: Transmit,
    /// Its bytes, if packets are sealed.
    sealed: Option<Rc<[u8]>>,
}

pub(crate) struct End {
    connection: Connection,
    is_client: bool,
    links: usize,
    /// The most that its receive buffer may hold.
    max_buffer: Bytes,
    sends: BTreeMap<u32, Outgoing>,
    receives: BTreeMap<u32, Incoming>,
    /// Streams that this end has opened or seen.
    streams: Vec<u32>,
    is_reading: bool,
    ending: Ending,
    /// Whether any packet has arrived.
    has_heard: bool,
    digest: u64,
    /// If set, packets travel as sealed bytes.
    sealing: Option<Sealing>,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Run {
        Run::with_sealing(seed, None)
    }

    /// The same run, with packets that are encoded, sealed, opened and parsed.
    pub(crate) fn sealed(seed: u64) -> Run {
        Run::with_sealing(seed, Some(Sealing::pair(seed % 2 == 1)))
    }

    /// The same with key updates at both ends. Packets that are late by more than the time of the
    /// old keys are lost.
    pub(crate) fn sealed_with_updates(seed: u64) -> Run {
        let mut run = Run::sealed(seed);
        let mut dice = Dice::new(!seed);
        for _ in 0..8 {
            let end = dice.choose(&[CLIENT, SERVER]);
            let at = at(dice.below(12_000));
            run.network.schedule(at, Op::Act { end, action: Action::UpdateKeys });
        }
        run
    }

    fn with_sealing(seed: u64, sealings: Option<[Sealing; 2]>) -> Run {
        let mut sealings = sealings.map(IntoIterator::into_iter);
        let mut dice = Dice::new(seed);
        let mut plan = Vec::new();
        let count = usize::try_from(1 + dice.below(4)).expect("few");
        let links: Vec<_> =
            (0..count).map(|index| network::draw_link(&mut dice, index, &mut plan)).collect();
        let config = Config {
            receive_buffer: Bytes::kib(dice.choose(&[16, 64, 1_024])),
            max_receive_buffer: Bytes::kib(dice.choose(&[64, 512, 4_096])),
            restripe: dice.choose(&[Restripe::Lost, Restripe::Window]),
            reinject: dice.hits(700),
            pacing: dice.hits(700),
            hystart: dice.hits(700),
            ..Config::default()
        };
        let controller = dice.choose(&["lia", "balia", "olia", "reno", "cubic", "bbr", "vegas"]);
        let scheduler = dice.choose(&["lowest-rtt", "blest", "ecf", "weighted", "redundant"]);
        let mut end = |is_client: bool| {
            let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(dice.draw()));
            let controller = cc::by_name(controller).expect("it is known");
            let scheduler = packet::by_name(scheduler).expect("it is known");
            let make = if is_client { Connection::client } else { Connection::server };
            End {
                connection: make(config.clone(), controller, scheduler, tokens),
                is_client,
                links: count,
                max_buffer: config.max_receive_buffer.max(Bytes(2 * config.receive_buffer.0)),
                sends: BTreeMap::new(),
                receives: BTreeMap::new(),
                streams: Vec::new(),
                is_reading: true,
                ending: Ending::default(),
                has_heard: false,
                digest: 0,
                sealing: sealings.as_mut().and_then(Iterator::next),
            }
        };
        let ends = [end(true), end(false)];
        plan_actions(&mut dice, &mut plan);
        plan_moves(&mut Dice::new(!seed), &mut plan);
        network::plan_packets(&mut dice, count, &mut plan);
        let mut network = Network::new(ends, links, dice.draw());
        let is_cut_short = dice.hits(150);
        let closers: &[usize] = dice.choose(&[&[CLIENT], &[SERVER], &[CLIENT, SERVER]]);
        if is_cut_short {
            plan.extend(closers.iter().map(|end| close(*end, at(dice.below(4_000)))));
        }
        // Lost are some of the first Close packets, or all.
        let mut spared = dice.choose(&[0, 0, 1, 2, 5, u64::MAX]);
        network.set_fates(move |sent| {
            let is_lost =
                matches!(sent.packet.transmit.packet.body, Body::Close { .. }) && spared > 0;
            spared -= u64::from(is_lost);
            if is_lost { Fate::Lost } else { Fate::Arrives }
        });
        for Planned { at, op } in plan {
            network.schedule(at, op);
        }
        Run { network, is_cut_short, closers }
    }

    /// Runs until everything has arrived, unless the connection is closed before, and then until
    /// both ends have learnt of the end. Returns a digest of all packets.
    pub(crate) fn finish(mut self) -> u64 {
        if !self.is_cut_short {
            let is_over = self.network.run_until(BOUND, |network| {
                check_both(network);
                !network.has_plan() && both(network, is_whole)
            });
            let [client, server] = &self.network.ends[..] else { unreachable!("there are two") };
            assert!(is_over, "not all has arrived by {BOUND:?}: {}", missing(client, server));
            for end in self.closers {
                let now = self.network.now();
                self.network.schedule(now, close(*end, now).op);
            }
        }
        let is_over = self.network.run_until(BOUND, |network| {
            check_both(network);
            !network.has_plan() && both(network, |end, _| end.is_over())
        });
        let [client, server] = &self.network.ends[..] else { unreachable!("there are two") };
        assert!(is_over, "the ends have not ended by {BOUND:?}");
        client.digest ^ server.digest.rotate_left(32)
    }
}

fn close(end: usize, at: Time) -> Planned {
    let code = 100 + u32::try_from(end).expect("few");
    Planned { at, op: Op::Act { end, action: Action::Close { code } } }
}

/// Whether a condition holds of both ends, each with the other one.
fn both(network: &Network<End>, holds: impl Fn(&End, &End) -> bool) -> bool {
    let ends = &network.ends;
    holds(&ends[CLIENT], &ends[SERVER]) && holds(&ends[SERVER], &ends[CLIENT])
}

fn check_both(network: &Network<End>) {
    both(network, |from, to| {
        check(from, to);
        true
    });
}

/// What the applications do, and when.
fn plan_actions(dice: &mut Dice, plan: &mut Vec<Planned>) {
    let act = |at: Time, action: Action| Planned { at, op: Op::Act { end: CLIENT, action } };
    plan.push(act(Time::ZERO, Action::OpenPaths));
    for number in 0..=dice.below(4) {
        let stream = u32::try_from(number).expect("few") * 2;
        let mut time = at(dice.below(500));
        for _ in 0..=dice.below(4) {
            let bytes = dice.choose(&[0, 1, 1_000, 30_000, 200_000]);
            plan.push(act(time, Action::Write { stream, bytes }));
            time += Span::from_millis(dice.below(500));
        }
        // The end often travels alone, when all data has long arrived.
        time += Span::from_millis(dice.choose(&[0, 0, 500, 3_000]));
        let is_reset = dice.hits(100);
        let action = if is_reset { Action::Reset { stream } } else { Action::Finish { stream } };
        plan.push(act(time, action));
    }
    if dice.hits(200) {
        plan.push(act(at(500 + dice.below(1_500)), Action::Rebind));
    }
    for end in [CLIENT, SERVER] {
        let begin = dice.below(2_000);
        let stall = dice.choose(&[0, 0, 300, 3_000]);
        for (millis, is_reading) in [(begin, false), (begin + stall, true)] {
            let action = Action::SetReading { is_reading };
            plan.push(Planned { at: at(millis), op: Op::Act { end, action } });
        }
    }
}

/// Addresses that change under paths. The server notices it later than the client.
fn plan_moves(dice: &mut Dice, plan: &mut Vec<Planned>) {
    for _ in 0..dice.choose(&[0, 0, 1, 3]) {
        let time = dice.below(3_000);
        let noticed = time + dice.choose(&[0, 20, 300]);
        for (end, millis) in [(CLIENT, time), (SERVER, noticed)] {
            plan.push(Planned { at: at(millis), op: Op::Act { end, action: Action::Move } });
        }
    }
    for end in [CLIENT, SERVER] {
        let action = Action::SendRaw { count: dice.choose(&[0, 0, 1, 100]) };
        plan.push(Planned { at: at(dice.below(3_000)), op: Op::Act { end, action } });
    }
}

/// What one end sends, against what the other one has received.
fn check(from: &End, to: &End) {
    for (stream, incoming) in &to.receives {
        incoming.check(from.sends.get(stream).expect("a stream that was opened"));
    }
    assert!(to.connection.receive_buffer() <= to.max_buffer);
    from.ending.check(&to.ending);
}

/// Whether everything that one end sends has arrived, with the ends of its streams, and this end
/// knows it.
fn is_whole(from: &End, to: &End) -> bool {
    from.sends.iter().all(|(stream, outgoing)| {
        let is_whole = to.receives.get(stream).is_some_and(|incoming| {
            incoming.complete() == outgoing.written && incoming.has_ended()
        });
        outgoing.is_reset || is_whole && outgoing.is_delivered
    })
}

fn missing(client: &End, server: &End) -> String {
    let streams = client.sends.iter().map(|(stream, outgoing)| {
        format!(
            "{stream}: {} of {} arrived, {} not acknowledged",
            server.receives.get(stream).map_or(0, Incoming::complete),
            outgoing.written,
            client.connection.undelivered(*stream).0
        )
    });
    let connection = &client.connection;
    let paths = connection.paths().map(|path| {
        let (window, stats) = (connection.path_window(path), connection.stats(path));
        format!("path {path}: window {window:?}, {stats:?}")
    });
    format!("{} | {}", streams.collect::<Vec<_>>().join("; "), paths.collect::<Vec<_>>().join("; "))
}

impl End {
    /// What arrives of a packet; of a corrupt one nothing, since the cipher's tag does not match.
    fn read(&mut self, now: Time, arrival: &Arrival<Datagram>) -> Option<Packet> {
        let Datagram { transmit: Transmit { path, packet, .. }, sealed } = &arrival.packet;
        let expected = (!arrival.is_corrupt).then(|| packet.clone());
        let (Some(sealing), Some(sealed)) = (&mut self.sealing, sealed) else { return expected };
        let mut datagram = sealed.to_vec();
        if arrival.is_corrupt {
            if matches!(packet.body, Body::Flight(_)) {
                return None;
            }
            let at = packet.fingerprint() % (8 * datagram.len() as u64);
            datagram[usize::try_from(at / 8).expect("short")] ^= 1 << (at % 8);
        }
        let read = sealing.open(now, *path, datagram, packet);
        if read.is_none() && !arrival.is_corrupt {
            assert!(sealing.has_updated(), "{packet:?} on path {path} was not opened");
            return None;
        }
        assert_eq!(read, expected, "the decoded packet differs from the one sent");
        read
    }

    fn handle_arrived(&mut self, now: Time, arrived: Arrived) {
        let Arrived::Data { stream, offset, len } = arrived else { return };
        let incoming = self.receives.entry(stream).or_default();
        incoming.arrive(offset, len);
        let (received, complete) = (self.connection.received(stream).0, incoming.complete());
        assert!(
            received <= complete,
            "{received} bytes can be read, {complete} came without a gap"
        );
        if !self.streams.contains(&stream) {
            self.streams.push(stream);
            self.connection.set_reading(now, stream, self.is_reading);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.handle_event(&event);
        }
    }

    fn handle_event(&mut self, event: &Event) {
        match event {
            Event::Readable { stream, end, is_whole: true } => {
                self.receives.entry(*stream).or_default().end(*end);
            }
            Event::Delivered { stream } => self.outgoing(*stream).deliver(),
            _ => self.ending.handle_event(event),
        }
    }

    /// Whether its connection has ended, or cannot because it never heard of one.
    fn is_over(&self) -> bool {
        let is_closed = self.connection.is_closed();
        assert!(!is_closed || self.ending.is_decided(), "it ended without a reason");
        is_closed || !self.is_client && !self.has_heard
    }

    fn outgoing(&mut self, stream: u32) -> &mut Outgoing {
        self.sends.get_mut(&stream).expect("it is open")
    }

    fn rebind(&mut self, now: Time) {
        let Some(first) = self.connection.paths().next() else { return };
        self.connection.open_path(now);
        self.connection.retire_path(now, first);
        // Opens enough paths to return to the same link.
        for _ in 1..self.links {
            self.connection.open_path(now);
        }
    }
}

impl Endpoint for End {
    type Packet = Datagram;
    type Action = Action;

    fn act(&mut self, now: Time, action: Action) {
        match action {
            Action::OpenPaths => {
                for _ in 0..self.links {
                    self.connection.open_path(now);
                }
            }
            Action::Write { stream, bytes } => {
                while !self.sends.contains_key(&stream) {
                    let new = self.connection.open_stream();
                    self.sends.insert(new, Outgoing::default());
                    self.streams.push(new);
                }
                self.connection.write(stream, Bytes(bytes));
                self.outgoing(stream).written += bytes;
            }
            Action::Finish { stream } => {
                self.connection.finish(stream);
                self.outgoing(stream).is_finished = true;
            }
            Action::Reset { stream } => {
                self.connection.reset(stream, 7);
                self.outgoing(stream).is_reset = true;
            }
            Action::Rebind => self.rebind(now),
            Action::Move => {
                let first = self.connection.paths().next();
                if let Some(path) = first {
                    self.connection.rebind_path(now, path);
                }
            }
            Action::SendRaw { count } => {
                let first = self.connection.paths().next();
                let Some(path) = first else { return };
                for _ in 0..count {
                    // It may be refused.
                    let _ = self.connection.send_raw(path, Bytes(1_000));
                }
            }
            Action::UpdateKeys => {
                if let Some(sealing) = &mut self.sealing {
                    sealing.update_keys(now);
                }
            }
            Action::Close { code } => {
                if !self.ending.is_decided() {
                    self.ending.close(code);
                    self.connection.close(now, code);
                }
            }
            Action::SetReading { is_reading } => {
                self.is_reading = is_reading;
                for stream in &self.streams {
                    self.connection.set_reading(now, *stream, is_reading);
                }
            }
        }
    }

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Datagram>) {
        let Some(packet) = self.read(now, &arrival) else { return };
        self.digest = self.digest.rotate_left(5) ^ packet.fingerprint() ^ now.as_nanos();
        self.has_heard = true;
        if let Body::Close { code } = packet.body
            && self.connection.is_open()
        {
            self.ending.arrive(code);
        }
        let arrived =
            self.connection.handle_packet(now, arrival.packet.transmit.path, &packet, false);
        let arrived = arrived.unwrap_or_else(|error| panic!("an honest peer was refused: {error}"));
        self.handle_arrived(now, arrived);
        self.take_events();
    }

    fn poll_transmit(&mut self, now: Time) -> Option<testnet::Transmit<Datagram>> {
        let transmit = self.connection.poll_send(now)?;
        let Transmit { path, ref packet, .. } = transmit;
        // Paths beyond those of the beginning are new addresses on the same links.
        let link = usize::from(path.0) % self.links;
        let sealed = self.sealing.as_mut().map(|sealing| sealing.seal(now, path, packet).into());
        let bytes = packet.wire_len();
        Some(testnet::Transmit { link, bytes, packet: Datagram { transmit, sealed } })
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.connection.poll_deadline()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.connection.handle_deadline(now);
        self.take_events();
    }
}
