//! The checks of the fuzz targets for the striped connection. The test `fuzz_seeds` of the crate
//! `ptcp` runs them on all seeds.

use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use policy::cc;
use policy::sched::packet;
use ptcp::{Config, Connection};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustls::{ClientConfig, ServerConfig};
use secure::testing::{self, Key};
use secure::{
    ConnectionId, DialEvent, Dialer, Limits, ListenEvent, Listener, PacketNumber, Secret, Session,
    Settings,
};
use units::{Bytes, Span, SubflowId, Time};
use wire::datagram::Outer;
use wire::ptcp::{Ack, Body, Packet, PacketRange};

/// The bytes of an input, one after the other; zero at the end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn take(&mut self, len: u8) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(usize::from(len).min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// More packets than this at one moment are sent without end.
const MOST_AT_ONCE: usize = 20_000;
/// More deadlines than this at one moment are for nothing.
const MOST_DEADLINES: usize = 1_000;
/// What a connection may remember, as the length of its debug output, without packets from the
/// peer, and for each octet of them.
const REMEMBERED: usize = 400_000;
const REMEMBERED_EACH: usize = 400;

/// One end of a striped connection, and what its peer may know of it.
struct Victim {
    connection: Connection,
    now: Time,
    /// The largest number that it sent over each path.
    newest: [u64; 4],
}

impl Victim {
    fn new(kind: u8) -> Victim {
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(1));
        let controller = ["coupled-bbr", "olia", "reno", "bbr"][usize::from(kind >> 1) % 4];
        let scheduler = ["lowest-rtt", "redundant", "ecf"][usize::from(kind >> 3) % 3];
        let controller = cc::by_name(controller).expect("it is known");
        let scheduler = packet::by_name(scheduler).expect("it is known");
        let make = if kind & 1 == 0 { Connection::server } else { Connection::client };
        let config = Config {
            receive_buffer: Bytes::kib(64),
            max_receive_buffer: Bytes::kib(256),
            ..Config::default()
        };
        let mut connection = make(config, controller, scheduler, tokens);
        connection.begin_established(Time::ZERO, &Config::default().parameters());
        let stream = connection.open_stream();
        connection.write(stream, Bytes::mib(1));
        Victim { connection, now: Time::ZERO, newest: [0; 4] }
    }

    fn send_all(&mut self) {
        for sent in 0.. {
            assert!(sent < MOST_AT_ONCE, "it sends without end");
            let Some(transmit) = self.connection.poll_send(self.now) else { break };
            if let Some(newest) = self.newest.get_mut(usize::from(transmit.path.0)) {
                *newest = transmit.packet.number;
            }
        }
        while self.connection.poll_event().is_some() {}
    }

    fn advance(&mut self, span: Span) {
        let end = self.now + span;
        let mut idle = 0;
        while let Some(at) = self.connection.poll_deadline().filter(|at| *at <= end) {
            idle = if at > self.now { 0 } else { idle + 1 };
            assert!(idle < MOST_DEADLINES, "it wakes up for nothing");
            self.now = self.now.max(at);
            self.connection.handle_deadline(self.now);
            self.send_all();
        }
        self.now = end;
    }
}

/// What a peer may say once it has the keys: packets as they were opened, acknowledgements of what
/// was sent and of what was not, in any order, and what the application does meanwhile. Nothing is
/// sent without end, and little is remembered.
pub fn striped_peer(data: &[u8]) {
    let mut input = Input(data);
    let mut victim = Victim::new(input.byte());
    let mut next = [0u64; 4];
    while !input.0.is_empty() {
        let outcome = match input.byte() % 10 {
            0..=3 => {
                let path = u16::from(input.byte() % 5);
                let mut any = 0;
                let next = next.get_mut(usize::from(path)).unwrap_or(&mut any);
                let number = next.saturating_add_signed(i64::from(input.byte().cast_signed()));
                *next = number.saturating_add(1);
                let len = input.byte();
                match Packet::parse(number, input.take(len)) {
                    Ok(parsed) => victim.connection.handle_packet(
                        victim.now,
                        SubflowId(path),
                        &parsed.packet,
                        false,
                    ),
                    Err(_) => continue,
                }
            }
            4 | 5 => {
                let path = u16::from(input.byte() % 4);
                let newest = victim.newest[usize::from(path)];
                let largest = newest.saturating_add_signed(i64::from(input.byte().cast_signed()));
                let (first, delay) = (u16::from(input.byte()), input.byte());
                let count = input.byte() % 40;
                let range = |_| PacketRange { back: input.byte().into(), len: input.byte().into() };
                let older = (0..count).map(range).collect();
                let limit = 2_048;
                let ack = Ack {
                    path: SubflowId(path),
                    largest,
                    first,
                    older,
                    limit,
                    delay,
                    ..Ack::default()
                };
                let packet = Packet { number: next[0], body: Body::Ack(ack) };
                next[0] += 1;
                victim.connection.handle_packet(victim.now, SubflowId(0), &packet, false)
            }
            6 => {
                victim.advance(Span::from_micros(64 * u64::from(input.short())));
                continue;
            }
            7 => {
                let stream = u32::from(input.byte());
                let bytes = Bytes(u64::from(input.short()));
                victim.connection.read(victim.now, stream, bytes);
                continue;
            }
            8 => {
                let stream = u32::from(input.byte() % 8);
                match input.byte() % 6 {
                    0 => victim.connection.finish(stream),
                    1 => victim.connection.write(stream, Bytes(u64::from(input.short()))),
                    2 => victim.connection.reset(stream, 1),
                    3 => victim.connection.stop(stream, 1),
                    4 => victim.connection.set_reading(victim.now, stream, stream % 2 == 0),
                    _ => drop(victim.connection.send_datagram(Bytes(u64::from(input.byte())))),
                }
                victim.send_all();
                continue;
            }
            _ => {
                let path = u16::from(input.byte() % 4);
                match input.byte() % 3 {
                    0 => victim.connection.rebind_path(victim.now, SubflowId(path)),
                    1 => victim.connection.retire_path(victim.now, SubflowId(path)),
                    _ => drop(victim.connection.send_raw(SubflowId(path), Bytes(100))),
                }
                victim.send_all();
                continue;
            }
        };
        victim.send_all();
        if outcome.is_err() {
            assert!(!victim.connection.is_open(), "it closes after what is not allowed");
            break;
        }
    }
    let remembered = format!("{:?}", victim.connection).len();
    assert!(remembered < REMEMBERED + REMEMBERED_EACH * data.len(), "{remembered}");
    // After the longest timeout it is over.
    victim.advance(Span::from_secs(200));
    assert!(victim.connection.is_closed(), "nothing came for minutes");
}

/// The configurations of both sides, made once.
fn tls() -> &'static (Arc<ClientConfig>, Arc<ServerConfig>) {
    static TLS: OnceLock<(Arc<ClientConfig>, Arc<ServerConfig>)> = OnceLock::new();
    TLS.get_or_init(|| {
        let (ours, theirs) = (Key::generate(), Key::generate());
        (Arc::new(testing::client(&ours, &theirs)), Arc::new(testing::server(&theirs)))
    })
}

/// A datagram on its way.
#[derive(Clone)]
struct Way {
    to_listener: bool,
    bytes: Vec<u8>,
}

/// Two ends of a handshake, and then of a session, and who listens between them.
struct Between {
    now: Time,
    dialer: Dialer,
    listener: Listener,
    sessions: [Option<Session>; 2],
    connection: Option<ConnectionId>,
    has_failed: bool,
    on_the_way: VecDeque<Way>,
    /// What was on the way.
    past: Vec<Way>,
    /// The next number of each side, and the numbers that arrived.
    next: [u64; 2],
    arrived: [BTreeSet<u64>; 2],
    /// Bytes from a stranger, and to it.
    stranger: [usize; 2],
}

const HOME: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const STRANGER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2);
/// What data packets carry.
const CONTENT: &[u8] = b"twenty octets, sealed";
const LABEL: u64 = 7;

impl Between {
    fn new(kind: u8) -> Between {
        let (client, server) = tls();
        let update_after = if kind & 1 == 0 { 3 } else { 1 << 22 };
        let settings = Arc::new(Settings { update_after, ..Settings::default() });
        let retry_from = if kind & 2 == 0 { 0 } else { 16 };
        let limits = Limits { retry_from, answers: 20, ..Limits::default() };
        let secret = Secret::new(&[1; 32], &[]);
        Between {
            now: Time::ZERO,
            dialer: Dialer::new(client, &settings, Time::ZERO, LABEL).expect("usable"),
            listener: Listener::new(server, &settings, limits, secret).expect("usable"),
            sessions: [None, None],
            connection: None,
            has_failed: false,
            on_the_way: VecDeque::new(),
            past: Vec::new(),
            next: [0; 2],
            arrived: [BTreeSet::new(), BTreeSet::new()],
            stranger: [0; 2],
        }
    }

    /// What both have to say goes on its way.
    fn collect(&mut self) {
        while let Some(bytes) = self.dialer.poll_transmit(self.now) {
            self.on_the_way.push_back(Way { to_listener: true, bytes });
        }
        while let Some(sent) = self.listener.poll_transmit(self.now) {
            if sent.to == STRANGER {
                self.stranger[1] += sent.bytes.len();
            } else {
                self.on_the_way.push_back(Way { to_listener: false, bytes: sent.bytes });
            }
        }
        while let Some(event) = self.dialer.poll_event() {
            match event {
                DialEvent::Established(established) => {
                    self.sessions[0] = Some(established.session);
                }
                DialEvent::Confirmed(_) => {}
                DialEvent::Failed(_) => self.has_failed = true,
            }
        }
        while let Some(event) = self.listener.poll_event() {
            if let ListenEvent::Established { connection, established, .. } = event {
                // A copied hello from elsewhere yields a second handshake, never a second session:
                // the peer's proof is for one of them.
                assert!(self.connection.is_none(), "one handshake, two sessions");
                (self.connection, self.sessions[1]) = (Some(connection), Some(established.session));
            }
        }
        // Sessions open a path each before they seal or open.
        for session in self.sessions.iter_mut().flatten() {
            let _ = session.open_path(SubflowId(0));
        }
        assert!(self.listener.handshakes() <= Limits::default().handshakes);
    }

    /// A datagram arrives; data that is opened is what was sealed, and arrives once.
    fn deliver(&mut self, Way { to_listener, mut bytes }: Way, from: SocketAddr) {
        if from == STRANGER {
            self.stranger[0] += bytes.len();
        }
        let path = if to_listener {
            let route = self.listener.handle_datagram(self.now, from, &mut bytes);
            route.filter(|route| Some(route.connection) == self.connection).map(|route| route.path)
        } else if let Ok(Outer::Data { label }) = Outer::parse(&bytes) {
            self.sessions[0].as_ref().and_then(|session| session.path_of(label))
        } else {
            self.dialer.handle_datagram(self.now, &mut bytes);
            None
        };
        let side = usize::from(to_listener);
        if let Some(path) = path
            && let Some(session) = &mut self.sessions[side]
            && let Ok(opened) = session.open(self.now, path, &mut bytes)
        {
            assert_eq!(opened.payload, CONTENT);
            assert!(opened.number < self.next[1 - side], "it was never sent");
            assert!(self.arrived[side].insert(opened.number), "it arrives twice");
            if !to_listener {
                self.dialer.handle_data();
            }
        }
        self.collect();
    }

    fn seal(&mut self, side: usize) {
        let Some(session) = &mut self.sessions[side] else { return };
        let number = PacketNumber { path: SubflowId(0), number: self.next[side] };
        let mut bytes = Vec::new();
        if session.seal(self.now, number, CONTENT, &mut bytes).is_ok() {
            self.next[side] += 1;
            self.on_the_way.push_back(Way { to_listener: side == 0, bytes });
        }
    }

    fn advance(&mut self, span: Span) {
        let end = self.now + span;
        let mut idle = 0;
        loop {
            let session = self.sessions.iter().flatten().filter_map(Session::poll_deadline).min();
            let at = [self.dialer.poll_deadline(), self.listener.poll_deadline(), session];
            let Some(at) = at.into_iter().flatten().min().filter(|at| *at <= end) else { break };
            idle = if at > self.now { 0 } else { idle + 1 };
            assert!(idle < MOST_DEADLINES, "it wakes up for nothing");
            self.now = self.now.max(at);
            self.dialer.handle_deadline(self.now);
            self.listener.handle_deadline(self.now);
            for session in self.sessions.iter_mut().flatten() {
                session.handle_deadline(self.now);
            }
            self.collect();
        }
        self.now = end;
    }

    fn pop(&mut self) -> Option<Way> {
        let way = self.on_the_way.pop_front()?;
        if self.past.len() < 64 {
            self.past.push(way.clone());
        }
        Some(way)
    }
}

/// Whether a datagram is one that nothing protects but the label of the handshake, which somebody
/// on the path sees: such a one can end a handshake.
fn is_open(bytes: &[u8]) -> bool {
    matches!(Outer::parse(bytes), Ok(Outer::Retry { .. } | Outer::Versions { .. }))
}

/// A handshake and sealed packets, and somebody between who drops, repeats, cuts, changes and
/// invents datagrams. What is opened is what was sealed, and arrives once; strangers get at most
/// three times what they send; and unless datagrams were invented, the handshake succeeds once
/// everything arrives again.
pub fn striped_strangers(data: &[u8]) {
    let mut input = Input(data);
    let mut between = Between::new(input.byte());
    let mut is_invented = false;
    between.collect();
    while !input.0.is_empty() {
        match input.byte() % 10 {
            0 | 1 => {
                let Some(way) = between.pop() else { continue };
                between.deliver(way, HOME);
            }
            2 => drop(between.pop()),
            3 => {
                let Some(way) = between.pop() else { continue };
                between.deliver(way.clone(), HOME);
                between.deliver(way, HOME);
            }
            4 => {
                let Some(mut way) = between.on_the_way.front().cloned() else { continue };
                way.bytes.truncate(usize::from(input.short()) % way.bytes.len());
                is_invented |= is_open(&way.bytes);
                between.deliver(way, HOME);
            }
            5 => {
                let Some(mut way) = between.on_the_way.front().cloned() else { continue };
                let at = usize::from(input.short()) % way.bytes.len();
                way.bytes[at] ^= input.byte() | 1;
                is_invented |= is_open(&way.bytes);
                between.deliver(way, HOME);
            }
            6 => {
                let (to_listener, len) = (input.byte() % 2 == 0, input.byte());
                is_invented = true;
                let bytes = input.take(len).to_vec();
                between.deliver(Way { to_listener, bytes }, STRANGER);
            }
            7 => between.advance(Span::from_millis(u64::from(input.byte()))),
            8 => {
                let at = usize::from(input.byte());
                let Some(way) = between.past.get(at).cloned() else { continue };
                // To the dialing side everything comes from one address.
                let from = if way.to_listener { STRANGER } else { HOME };
                between.deliver(way, from);
            }
            _ => between.seal(usize::from(input.byte() % 2)),
        }
    }
    // A replayed hello earns a flight; its address has been validated by nobody.
    assert!(between.stranger[1] <= 3 * between.stranger[0], "{:?}", between.stranger);
    for _ in 0..40 {
        for _ in 0..MOST_AT_ONCE {
            let Some(way) = between.pop() else { break };
            between.deliver(way, HOME);
        }
        between.advance(Span::from_millis(500));
    }
    let is_over = between.sessions.iter().all(Option::is_some) || between.has_failed;
    assert!(is_over, "a handshake without end");
    let is_slow = between.now > Time::ZERO + Span::from_secs(25);
    assert!(is_invented || is_slow || !between.has_failed, "it has failed");
}
