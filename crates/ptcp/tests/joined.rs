//! The whole of it: a handshake by `secure`, then the striped connection, with nothing but sealed
//! bytes between two ends, over networks that lose, repeat, reorder and damage them.

use std::net::{Ipv4Addr, SocketAddr};

use policy::{cc, sched::packet};
use ptcp::{Arrived, Config, Connection, Event};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use secure::testing::Strangers;
use secure::{
    ConnectionId, DialEvent, Dialer, Established, Limits, ListenEvent, Listener, PacketNumber,
    Session, Settings,
};
use testnet::{Arrival, Dice, Endpoint, Link, Network, Transmit};
use units::{Bytes, Rate, Span, SubflowId, Time};
use wire::datagram::Outer;
use wire::ptcp::{Body, ConnectionParameters, Packet};

const BYTES: Bytes = Bytes(300_000);
const LIMIT: Time = Time::from_nanos(300_000_000_000);

enum Role {
    Dials(Box<Dialer>),
    Listens(Box<Listener>, Option<ConnectionId>),
}

/// What there is after the handshake.
struct Open {
    session: Session,
    connection: Connection,
}

struct End {
    role: Role,
    config: Config,
    links: usize,
    open: Option<Open>,
    has_failed: bool,
    /// The stream's bytes that arrived in order.
    received: u64,
    is_delivered: bool,
}

impl End {
    fn new(role: Role, config: Config, links: usize) -> End {
        let (open, received) = (None, 0);
        End { role, config, links, open, has_failed: false, received, is_delivered: false }
    }

    fn begin(&mut self, now: Time, established: Established) {
        let Established { session, parameters, .. } = established;
        let peer = ConnectionParameters::parse(&parameters).expect("the peer is honest");
        let is_client = matches!(self.role, Role::Dials(_));
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client)));
        let controller = cc::by_name("balia").expect("it is known");
        let scheduler = packet::by_name("lowest-rtt").expect("it is known");
        let make = if is_client { Connection::client } else { Connection::server };
        let mut connection = make(self.config.clone(), controller, scheduler, tokens);
        connection.begin_established(now, &peer);
        if is_client {
            for _ in 1..self.links {
                connection.open_path(now);
            }
            let stream = connection.open_stream();
            connection.write(stream, BYTES);
            connection.finish(stream);
        }
        self.open = Some(Open { session, connection });
    }

    fn take_events(&mut self, now: Time) {
        let mut begun = None;
        match &mut self.role {
            Role::Dials(dialer) => {
                while let Some(event) = dialer.poll_event() {
                    match event {
                        DialEvent::Established(established) => begun = Some(*established),
                        DialEvent::Confirmed(_) => {}
                        DialEvent::Failed(_) => self.has_failed = true,
                    }
                }
            }
            Role::Listens(listener, id) => {
                while let Some(event) = listener.poll_event() {
                    if let ListenEvent::Established { connection, established, .. } = event {
                        (*id, begun) = (Some(connection), Some(*established));
                    }
                }
            }
        }
        if let Some(established) = begun {
            self.begin(now, established);
        }
        let Some(Open { connection, .. }) = &mut self.open else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Readable { end, .. } => self.received = end,
                Event::Delivered { .. } => self.is_delivered = true,
                _ => {}
            }
        }
    }

    /// The path of a data packet.
    fn path_of(&mut self, now: Time, link: usize, bytes: &mut [u8]) -> Option<SubflowId> {
        match &mut self.role {
            Role::Dials(dialer) => {
                let Ok(Outer::Data { label }) = Outer::parse(bytes) else {
                    dialer.handle_datagram(now, bytes);
                    return None;
                };
                self.open.as_ref()?.session.path_of(label)
            }
            Role::Listens(listener, id) => {
                let port = u16::try_from(link).expect("few");
                let from = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let route = listener.handle_datagram(now, from, bytes)?;
                (Some(route.connection) == *id).then_some(SubflowId(route.path.0))
            }
        }
    }

    fn open_packet(&mut self, now: Time, path: SubflowId, bytes: &mut [u8]) {
        let Some(Open { session, connection }) = &mut self.open else { return };
        let opened = match session.open(now, path, bytes) {
            Ok(opened) => opened,
            Err(error) => return assert!(!error.is_fatal(), "{error}"),
        };
        let parsed = Packet::parse(opened.number, opened.payload).expect("the peer is honest");
        let arrived = connection.handle_packet(now, path, &parsed.packet, false);
        match arrived.expect("the peer is honest") {
            Arrived::Data { offset, len, .. } => {
                assert_eq!(parsed.payload.len(), usize::from(len));
                assert!(parsed.payload.iter().copied().eq(content(offset, len)), "other bytes");
            }
            Arrived::Nothing | Arrived::Datagram { .. } | Arrived::Raw { .. } => {}
        }
        match &mut self.role {
            Role::Dials(dialer) => dialer.handle_data(),
            Role::Listens(listener, Some(id)) => listener.handle_path_opened(*id, path),
            Role::Listens(..) => {}
        }
    }
}

/// What the client writes.
fn content(offset: u64, len: u16) -> impl Iterator<Item = u8> {
    (offset..offset + u64::from(len)).map(|at| (at.wrapping_mul(37) >> 4).to_le_bytes()[0])
}

impl Endpoint for End {
    type Packet = Vec<u8>;
    type Action = ();

    fn act(&mut self, now: Time, (): ()) {
        if let Some(Open { session, .. }) = &mut self.open {
            session.update_keys(now);
        }
    }

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Vec<u8>>) {
        let mut bytes = arrival.packet;
        if arrival.is_corrupt {
            let at = usize::try_from(now.as_nanos() % (8 * bytes.len() as u64)).expect("short");
            bytes[at / 8] ^= 1 << (at % 8);
        }
        if let Some(path) = self.path_of(now, arrival.link, &mut bytes) {
            self.open_packet(now, SubflowId(path.0), &mut bytes);
        }
        self.take_events(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit<Vec<u8>>> {
        let handshake = match &mut self.role {
            Role::Dials(dialer) => dialer.poll_transmit(now).map(|bytes| (0, bytes)),
            Role::Listens(listener, _) => {
                let sent = listener.poll_transmit(now);
                sent.map(|sent| (usize::from(sent.to.port()), sent.bytes))
            }
        };
        self.take_events(now);
        let (link, packet) = if let Some(sent) = handshake {
            sent
        } else {
            let Open { session, connection } = self.open.as_mut()?;
            let sent = connection.poll_send(now)?;
            let mut plain = Vec::new();
            sent.packet.emit(&mut plain);
            if let Body::Data(data) = sent.packet.body {
                plain.extend(content(data.offset, data.len));
            }
            // It may be open.
            let _ = session.open_path(sent.path);
            let number = PacketNumber { path: sent.path, number: sent.packet.number };
            let mut bytes = Vec::new();
            session.seal(now, number, &plain, &mut bytes).expect("it can be sealed");
            assert_eq!(bytes.len(), sent.packet.datagram_len());
            (usize::from(sent.path.0), bytes)
        };
        Some(Transmit { link, bytes: Bytes(packet.len() as u64 + 28), packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        let role = match &self.role {
            Role::Dials(dialer) => dialer.poll_deadline(),
            Role::Listens(listener, _) => listener.poll_deadline(),
        };
        let session = self.open.as_ref().and_then(|open| open.session.poll_deadline());
        let connection = self.open.as_ref().and_then(|open| open.connection.poll_deadline());
        [role, session, connection].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, now: Time) {
        match &mut self.role {
            Role::Dials(dialer) => dialer.handle_deadline(now),
            Role::Listens(listener, _) => listener.handle_deadline(now),
        }
        if let Some(Open { session, connection }) = &mut self.open {
            session.handle_deadline(now);
            if connection.poll_deadline().is_some_and(|at| at <= now) {
                connection.handle_deadline(now);
            }
        }
        self.take_events(now);
    }
}

/// A run in which everything arrives. Returns whether the handshake took place.
fn run(seed: u64) -> bool {
    let mut dice = Dice::new(seed);
    let count = usize::try_from(1 + dice.below(3)).expect("few");
    let link = |dice: &mut Dice| Link {
        rate: Some(Rate::mbit(dice.choose(&[1, 10, 100]))),
        queue: Bytes(60_000),
        loss: dice.choose(&[0, 10, 100]),
        duplication: dice.choose(&[0, 50]),
        reordering: dice.choose(&[0, 100]),
        lateness: Span::from_millis(20),
        corruption: dice.choose(&[0, 20]),
        ..Link::new(Span::from_millis(dice.choose(&[1, 20, 100])))
    };
    let links: Vec<_> = (0..count).map(|_| link(&mut dice)).collect();
    let retry_from = dice.choose(&[0, 16]);
    let update_after = dice.choose(&[50, 1 << 22]);
    // They need not be alike: each end tells the other.
    let [dialing, listening] = [(); 2].map(|()| Config {
        receive_buffer: Bytes(dice.choose(&[4_096, 100_000, 2 << 20])),
        max_datagram: Bytes(dice.choose(&[1_252, 1_472])),
        max_ack_delay: Span::from_millis(dice.choose(&[5, 25])),
        ..Config::default()
    });
    let settings = [&dialing, &listening].map(|config| {
        let mut parameters = Vec::new();
        config.parameters().emit(&mut parameters);
        Settings { update_after, parameters, ..Settings::default() }
    });
    let strangers = Strangers::with(settings, Limits { retry_from, ..Limits::default() });
    let ends = [
        End::new(Role::Dials(Box::new(strangers.dialer)), dialing, count),
        End::new(Role::Listens(Box::new(strangers.listener), None), listening, count),
    ];
    let mut network = Network::new(ends, links, dice.draw());
    let is_over = network.run_until(LIMIT, |network| {
        let [client, server] = &network.ends[..] else { unreachable!("there are two") };
        client.has_failed || client.is_delivered && server.received == BYTES.0
    });
    assert!(is_over, "seed {seed}: {} of {BYTES:?} arrived", network.ends[1].received);
    !network.ends[0].has_failed
}

#[test]
fn everything_arrives_sealed() {
    let runs = 60;
    let complete = (0..runs).filter(|seed| run(*seed)).count();
    // A handshake may give up, in the worst of the networks.
    assert!(complete >= 55, "{complete} of {runs} handshakes");
}
