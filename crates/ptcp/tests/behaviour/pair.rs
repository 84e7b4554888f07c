//! Two ends, and paths between them that do exactly what a test wants.

use std::collections::BTreeMap;

use policy::cc;
use policy::sched::packet;
use ptcp::{Arrived, Config, Connection, Event};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Span, Time};
use wire::ptcp::Packet;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    /// So much later than the others.
    Late(Span),
    Marked,
    Lost,
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) path: u16,
    pub(crate) to_server: bool,
    pub(crate) packet: Packet,
    pub(crate) is_ecn_capable: bool,
    pub(crate) fate: Fate,
}

/// One path, the same both ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// One way.
    pub(crate) delay: Span,
    /// Megabits a second.
    pub(crate) rate: u64,
    /// Bytes that wait at most.
    pub(crate) queue: u64,
}

/// A client that opens all paths at once, and a server.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    pub(crate) now: Time,
    lines: Vec<Line>,
    free_at: Vec<[Time; 2]>,
    flights: BTreeMap<(Time, u64), Sent>,
    count: u64,
    fate: Box<dyn FnMut(&Sent) -> Fate>,
    /// All that was sent.
    pub(crate) log: Vec<Sent>,
    /// Datagrams that arrived at the server, by size.
    pub(crate) datagrams: Vec<u16>,
    pub(crate) events: Vec<(Time, Event)>,
}

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

pub(crate) fn line(delay: u64, rate: u64) -> Line {
    Line { delay: ms(delay), rate, queue: rate * 125 * (2 * delay).max(20) }
}

impl Pair {
    pub(crate) fn new(config: &Config, names: (&str, &str), lines: &[Line]) -> Pair {
        let end = |is_client: bool| {
            let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client)));
            let controller = cc::by_name(names.0).expect("it is known");
            let scheduler = packet::by_name(names.1).expect("it is known");
            let make = if is_client { Connection::client } else { Connection::server };
            make(config.clone(), controller, scheduler, tokens)
        };
        let mut pair = Pair {
            client: end(true),
            server: end(false),
            now: Time::ZERO,
            lines: lines.to_vec(),
            free_at: vec![[Time::ZERO; 2]; lines.len()],
            flights: BTreeMap::new(),
            count: 0,
            fate: Box::new(|_| Fate::Arrives),
            log: Vec::new(),
            datagrams: Vec::new(),
            events: Vec::new(),
        };
        for _ in lines {
            pair.client.open_path(Time::ZERO);
        }
        pair
    }

    /// From now on, packets fare like this.
    pub(crate) fn fates(&mut self, fate: impl FnMut(&Sent) -> Fate + 'static) {
        self.fate = Box::new(fate);
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        let end = self.now + span;
        self.run_until(end, |_| false);
    }

    /// Runs until then, or until `is_enough`. Returns whether it was.
    pub(crate) fn run_until(&mut self, end: Time, is_enough: impl Fn(&Pair) -> bool) -> bool {
        loop {
            self.send();
            if is_enough(self) {
                return true;
            }
            let deadlines =
                [&self.client, &self.server].into_iter().filter_map(Connection::poll_deadline);
            let arrival = self.flights.first_key_value().map(|((at, _), _)| *at);
            let next =
                deadlines.map(|at| at.max(self.now + Span::from_nanos(1))).chain(arrival).min();
            match next {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => {
                    self.now = end;
                    return false;
                }
            }
            while let Some(flight) = self.flights.first_entry()
                && flight.key().0 <= self.now
            {
                let sent = flight.remove();
                self.arrive(&sent);
            }
            for end in [&mut self.client, &mut self.server] {
                if end.poll_deadline().is_some_and(|at| at <= self.now) {
                    end.handle_deadline(self.now);
                }
            }
        }
    }

    fn arrive(&mut self, sent: &Sent) {
        let end = if sent.to_server { &mut self.server } else { &mut self.client };
        let arrived =
            end.handle_packet(self.now, sent.path, &sent.packet, sent.fate == Fate::Marked);
        if let Arrived::Datagram { len } = arrived.expect("both ends are honest") {
            self.datagrams.push(len);
        }
        while let Some(event) = end.poll_event() {
            self.events.push((self.now, event));
        }
    }

    fn send(&mut self) {
        for to_server in [true, false] {
            loop {
                let end = if to_server { &mut self.client } else { &mut self.server };
                let Some(transmit) = end.poll_send(self.now) else { break };
                let mut sent = Sent {
                    at: self.now,
                    path: transmit.path,
                    to_server,
                    packet: transmit.packet,
                    is_ecn_capable: transmit.is_ecn_capable,
                    fate: Fate::Arrives,
                };
                sent.fate = (self.fate)(&sent);
                self.log.push(sent);
                self.carry(sent);
            }
        }
    }

    fn carry(&mut self, sent: Sent) {
        let line = self.lines[usize::from(sent.path)];
        let free_at = &mut self.free_at[usize::from(sent.path)][usize::from(sent.to_server)];
        let byte = 8_000 / line.rate;
        if sent.fate == Fate::Lost || free_at.since(self.now).as_nanos() > line.queue * byte {
            return;
        }
        *free_at = (*free_at).max(self.now) + Span::from_nanos(byte * sent.packet.wire_len().0);
        let late = if let Fate::Late(late) = sent.fate { late } else { Span::ZERO };
        self.flights.insert((*free_at + line.delay + late, self.count), sent);
        self.count += 1;
    }

    /// A stream of the client's with so much to send.
    pub(crate) fn bulk(&mut self, bytes: Bytes) -> u32 {
        let stream = self.client.open_stream();
        self.client.write(stream, bytes);
        stream
    }

    /// How long it takes until so much of a stream has arrived in order; `None`: longer than a
    /// minute.
    pub(crate) fn time_of(&mut self, stream: u32, bytes: Bytes) -> Option<Span> {
        let begin = self.now;
        let is_there = self
            .run_until(begin + Span::from_secs(60), |pair| pair.server.received(stream) >= bytes);
        is_there.then(|| self.now - begin)
    }

    /// What the client sent with data since then.
    pub(crate) fn data_since(
        &self,
        from: Time,
    ) -> impl Iterator<Item = (&Sent, wire::ptcp::StreamData)> {
        self.log.iter().filter(move |sent| sent.to_server && sent.at >= from).filter_map(|sent| {
            if let wire::ptcp::Body::Data(data) = sent.packet.body {
                Some((sent, data))
            } else {
                None
            }
        })
    }
}
