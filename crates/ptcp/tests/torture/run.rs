//! One run: two ends, a network between them, a model of each stream.

use std::collections::BTreeMap;

use policy::cc;
use policy::sched::packet;
use ptcp::{Arrived, Config, Connection, Event, Restripe};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Span, Time};
use wire::ptcp::Packet;

use crate::model::Model;
use crate::network::{Dice, Flight, Network, Weather};
use crate::sealed::Sealing;

/// The time limit of a run.
const BOUND: Time = Time::from_nanos(900_000_000_000);

pub(crate) struct Run {
    dice: Dice,
    network: Network,
    /// Client and server.
    ends: [End; 2],
    now: Time,
    /// The bound on the receive buffers.
    most: u64,
    digest: u64,
    /// If set, packets travel as sealed bytes.
    sealing: Option<Sealing>,
}

struct End {
    connection: Connection,
    is_client: bool,
    /// What this end sends, by stream.
    sends: BTreeMap<u32, Model>,
    /// When the application stops reading, and when it resumes.
    stall: (Time, Time),
    is_stalled: bool,
    /// Streams that this end has opened or seen.
    streams: Vec<u32>,
}

/// An action of the application.
#[derive(Clone, Copy)]
enum Step {
    Open,
    Write(u32, u64),
    Finish(u32),
    Reset(u32),
    Rebind,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Run {
        let mut dice = Dice::new(seed);
        let paths = 1 + dice.below(4);
        let weather = (0..paths).map(|n| Weather::draw(&mut dice, n == 0)).collect();
        let network = Network::new(Dice::new(dice.next()), weather);
        let config = Config {
            receive_buffer: Bytes::kib(dice.of(&[16, 64, 1_024])),
            max_receive_buffer: Bytes::kib(dice.of(&[64, 512, 4_096])),
            restripe: dice.of(&[Restripe::Lost, Restripe::Window]),
            reinject: dice.hits(700),
            pacing: dice.hits(700),
            hystart: dice.hits(700),
            ..Config::default()
        };
        let most = config.max_receive_buffer.0.max(2 * config.receive_buffer.0);
        let controller = dice.of(&["lia", "balia", "olia", "reno", "cubic", "bbr", "vegas"]);
        let scheduler = dice.of(&["lowest-rtt", "blest", "ecf", "weighted", "redundant"]);
        let mut end = |is_client: bool| {
            let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(dice.next()));
            let controller = cc::by_name(controller).expect("it is known");
            let scheduler = packet::by_name(scheduler).expect("it is known");
            let make = if is_client { Connection::client } else { Connection::server };
            let stall = Time::ZERO + Span::from_millis(dice.below(2_000));
            let stall = (stall, stall + Span::from_millis(dice.of(&[0, 0, 300, 3_000])));
            End {
                connection: make(config.clone(), controller, scheduler, tokens),
                is_client,
                sends: BTreeMap::new(),
                stall,
                is_stalled: false,
                streams: Vec::new(),
            }
        };
        let ends = [end(true), end(false)];
        Run { dice, network, ends, now: Time::ZERO, most, digest: 0, sealing: None }
    }

    /// The same run, with packets that are encoded, sealed, opened and parsed.
    pub(crate) fn sealed(seed: u64) -> Run {
        Run { sealing: Some(Sealing::new()), ..Run::new(seed) }
    }

    /// The actions by time, with their ends.
    fn plan(&mut self) -> BTreeMap<(Time, u32), (usize, Step)> {
        let mut steps = BTreeMap::new();
        let mut count = 0;
        let mut add = |at: Time, end: usize, step: Step| {
            count += 1;
            steps.insert((at, count), (end, step));
        };
        add(Time::ZERO, 0, Step::Open);
        for number in 0..=self.dice.below(4) {
            let stream = u32::try_from(number).expect("few") * 2;
            let mut at = Span::from_millis(self.dice.below(500));
            for _ in 0..=self.dice.below(4) {
                add(
                    Time::ZERO + at,
                    0,
                    Step::Write(stream, self.dice.of(&[0, 1, 1_000, 30_000, 200_000])),
                );
                at += Span::from_millis(self.dice.below(500));
            }
            if self.dice.hits(100) {
                add(Time::ZERO + at, 0, Step::Reset(stream));
            } else {
                add(Time::ZERO + at, 0, Step::Finish(stream));
            }
        }
        if self.dice.hits(200) {
            add(Time::ZERO + Span::from_millis(500 + self.dice.below(1_500)), 0, Step::Rebind);
        }
        steps
    }

    /// Runs until everything has arrived. Returns a digest of all packets.
    pub(crate) fn finish(mut self) -> u64 {
        let mut steps = self.plan();
        let (mut idle, mut idle_since) = (0, Time::ZERO);
        loop {
            while let Some(entry) = steps.first_entry()
                && entry.key().0 <= self.now
            {
                let (end, step) = entry.remove();
                self.step(end, step);
            }
            while let Some(flight) = self.network.arrive(self.now) {
                let end = usize::from(flight.to_server);
                let Some(packet) = self.read(end, &flight) else { continue };
                self.digest =
                    self.digest.rotate_left(5) ^ packet.fingerprint() ^ self.now.as_nanos();
                self.arrive(end, flight.path, &packet);
            }
            for end in 0..2 {
                self.attend(end);
            }
            if steps.is_empty() && self.is_whole() {
                return self.digest;
            }
            let deadlines = self.ends.iter().filter_map(|end| end.next_at(self.now));
            let steps_at = steps.first_key_value().map(|((at, _), _)| *at);
            let next = deadlines.chain(self.network.next_at()).chain(steps_at).min();
            let next = next.unwrap_or_else(|| {
                panic!("stalled at {:?}, and not all has arrived: {}", self.now, self.missing())
            });
            assert!(next < BOUND, "not all has arrived by {:?}: {}", self.now, self.missing());
            self.now = self.now.max(next);
            idle += 1;
            if self.now.since(idle_since) > Span::from_millis(1) {
                (idle, idle_since) = (0, self.now);
            }
            assert!(
                idle < 100_000,
                "it wakes up for nothing at {:?}: {}",
                self.now,
                self.missing()
            );
        }
    }

    /// The packet that an end decodes; `None` for a corrupt one, because the cipher's tag does not
    /// match.
    fn read(&self, end: usize, flight: &Flight) -> Option<Packet> {
        let Flight { path, to_server, packet, is_corrupt } = flight;
        let Some(sealing) = &self.sealing else { return (!is_corrupt).then_some(*packet) };
        let mut datagram = sealing.seal(*path, *to_server, packet);
        if *is_corrupt {
            let at = packet.fingerprint() % (8 * datagram.len() as u64);
            datagram[usize::try_from(at / 8).expect("short")] ^= 1 << (at % 8);
        }
        let expected = self.ends[end].connection.expected_number(*path);
        let read = sealing.open(*path, *to_server, &datagram, expected);
        assert_eq!(
            read,
            (!is_corrupt).then_some(*packet),
            "the decoded packet differs from the one sent"
        );
        read
    }

    fn step(&mut self, end: usize, step: Step) {
        let End { connection, sends, streams, .. } = &mut self.ends[end];
        match step {
            Step::Open => {
                for _ in 0..self.network.paths() {
                    connection.open_path(self.now);
                }
            }
            Step::Write(stream, bytes) => {
                while !sends.contains_key(&stream) {
                    let new = connection.open_stream();
                    sends.insert(new, Model::default());
                    streams.push(new);
                }
                connection.write(stream, Bytes(bytes));
                sends.get_mut(&stream).expect("it is open").written += bytes;
            }
            Step::Finish(stream) => {
                connection.finish(stream);
                sends.get_mut(&stream).expect("it is open").is_finished = true;
            }
            Step::Reset(stream) => {
                connection.reset(stream, 7);
                sends.get_mut(&stream).expect("it is open").is_reset = true;
            }
            Step::Rebind => {
                let Some(first) = connection.paths().next() else { return };
                connection.open_path(self.now);
                connection.retire_path(self.now, first);
                // Opens enough paths to return to the same link.
                for _ in 1..self.network.paths() {
                    connection.open_path(self.now);
                }
            }
        }
    }

    fn arrive(&mut self, end: usize, path: u16, packet: &wire::ptcp::Packet) {
        let arrived = self.ends[end].connection.handle_packet(self.now, path, packet, false);
        let arrived = arrived.unwrap_or_else(|error| panic!("an honest peer was refused: {error}"));
        let [client, server] = &mut self.ends;
        let (here, there) = if end == 0 { (client, server) } else { (server, client) };
        if let Arrived::Data { stream, offset, len } = arrived {
            let model = there.sends.get_mut(&stream).expect("a stream that was opened");
            model.arrive(offset, len);
            let received = here.connection.received(stream);
            model.check(received.0);
            if !here.streams.contains(&stream) {
                here.streams.push(stream);
                here.connection.set_reading(self.now, stream, !here.is_stalled);
            }
        }
        while let Some(event) = here.connection.poll_event() {
            if let Event::Delivered { stream } = event {
                let model = &here.sends[&stream];
                assert!(
                    model.is_finished && model.is_whole(),
                    "stream {stream} was reported as delivered"
                );
            }
        }
        let held = there.sends.values().map(Model::complete).sum::<u64>();
        assert!(here.connection.receive_buffer().0 <= self.most, "{held}");
    }

    /// Handles deadlines and stalls of an end, and sends its packets.
    fn attend(&mut self, end: usize) {
        let now = self.now;
        let End { connection, stall, is_stalled, streams, is_client, .. } = &mut self.ends[end];
        let should_stall = stall.0 <= now && now < stall.1;
        if *is_stalled != should_stall {
            *is_stalled = should_stall;
            for stream in streams.iter() {
                connection.set_reading(now, *stream, !should_stall);
            }
        }
        if connection.poll_deadline().is_some_and(|at| at <= now) {
            connection.handle_deadline(now);
        }
        let mut sent = 0;
        while let Some(transmit) = connection.poll_send(now) {
            self.network.send(now, transmit.path, *is_client, transmit.packet);
            sent += 1;
            assert!(sent < 100_000, "it sends without end");
        }
    }

    fn is_whole(&self) -> bool {
        self.ends.iter().all(|end| {
            end.sends.iter().all(|(stream, model)| {
                model.is_whole()
                    && (model.is_reset || end.connection.undelivered(*stream) == Bytes::ZERO)
            })
        })
    }

    fn missing(&self) -> String {
        let of = |end: &End| {
            let streams = end.sends.iter().map(|(stream, model)| {
                format!(
                    "{stream}: {} of {} arrived, {} not acknowledged",
                    model.complete(),
                    model.written,
                    end.connection.undelivered(*stream).0
                )
            });
            streams.collect::<Vec<_>>().join("; ")
        };
        let paths = self.ends[0].connection.paths().map(|path| {
            let connection = &self.ends[0].connection;
            format!(
                "path {path}: window {:?}, {:?}",
                connection.path_window(path),
                connection.stats(path)
            )
        });
        if std::env::var("DBG").is_ok() {
            eprintln!("{:#?}", self.ends[0].connection);
            eprintln!("{:#?}", self.ends[1].connection);
        }
        format!("{} | {}", of(&self.ends[0]), paths.collect::<Vec<_>>().join("; "))
    }
}

impl End {
    fn next_at(&self, now: Time) -> Option<Time> {
        let stall = [self.stall.0, self.stall.1].into_iter().filter(|at| *at > now).min();
        let connection =
            self.connection.poll_deadline().map(|at| at.max(now + Span::from_nanos(1)));
        [stall, connection].into_iter().flatten().min()
    }
}
