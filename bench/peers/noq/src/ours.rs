//! The striped connection, over one path.

use policy::{cc, sched::packet};
use ptcp::{Config, Connection, Event};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use secure::testing::Strangers;
use secure::{Limits, PacketNumber, Session, Settings};
use units::{Bytes, SubflowId, Time};
use wire::datagram::Outer;
use wire::ptcp::{Body, Packet};

use crate::{DATAGRAM, End, WINDOW};

pub struct Ours {
    session: Session,
    connection: Connection,
    plain: Vec<u8>,
    /// What is sent, over and over.
    source: Vec<u8>,
    /// Where payload is put, as a driver would.
    sink: Vec<u8>,
    received: u64,
}

pub fn pair(bytes: u64) -> (Ours, Ours) {
    let strangers = Strangers::new(Settings::default(), Limits::default());
    let (client, server) = strangers.shake_hands(|_| ());
    let mut client = Ours::new(client, true);
    let stream = client.connection.open_stream();
    client.connection.write(stream, Bytes(bytes));
    (client, Ours::new(server, false))
}

impl Ours {
    fn new(mut session: Session, is_client: bool) -> Ours {
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client)));
        let controller = cc::by_name("cubic").expect("it is known");
        let scheduler = packet::by_name("lowest-rtt").expect("it is known");
        let make = if is_client { Connection::client } else { Connection::server };
        let config = Config {
            max_datagram: Bytes(u64::from(DATAGRAM)),
            receive_buffer: Bytes(u64::from(WINDOW)),
            max_receive_buffer: Bytes(2 * u64::from(WINDOW)),
            ..Config::default()
        };
        let peer = config.parameters();
        let mut connection = make(config, controller, scheduler, tokens);
        connection.begin_established(Time::ZERO, &peer);
        session.open_path(SubflowId(0)).expect("it is new");
        let len = usize::from(u16::MAX);
        let (plain, source, sink) = (Vec::new(), vec![7; len], vec![0; len]);
        Ours { session, connection, plain, source, sink, received: 0 }
    }
}

impl End for Ours {
    fn handle(&mut self, now: u64, mut datagram: Vec<u8>) {
        let now = Time::from_nanos(now);
        let Ok(Outer::Data { label }) = Outer::parse(&datagram) else { panic!("only data") };
        // The listening side looks labels up before it knows a path.
        let path = self.session.path_of(label).unwrap_or(SubflowId(0));
        let opened = self.session.open(now, path, &mut datagram).expect("nothing changes it");
        let parsed = Packet::parse(opened.number, opened.payload).expect("the peer is honest");
        let arrived = self.connection.handle_packet(now, path, &parsed.packet, false);
        arrived.expect("the peer is honest");
        self.sink[..parsed.payload.len()].copy_from_slice(parsed.payload);
        while let Some(event) = self.connection.poll_event() {
            if let Event::Readable { end, .. } = event {
                self.received = end;
            }
        }
    }

    fn poll_transmit(&mut self, now: u64) -> Option<Vec<u8>> {
        let now = Time::from_nanos(now);
        let sent = self.connection.poll_send(now)?;
        self.plain.clear();
        sent.packet.emit(&mut self.plain);
        if let Body::Data(data) = sent.packet.body {
            self.plain.extend_from_slice(&self.source[..usize::from(data.len)]);
        }
        let number = PacketNumber { path: sent.path, number: sent.packet.number };
        let mut bytes = Vec::with_capacity(usize::from(DATAGRAM));
        self.session.seal(now, number, &self.plain, &mut bytes).expect("it can be sealed");
        Some(bytes)
    }

    fn poll_deadline(&self) -> Option<u64> {
        let both = [self.session.poll_deadline(), self.connection.poll_deadline()];
        both.into_iter().flatten().min().map(Time::as_nanos)
    }

    fn handle_deadline(&mut self, now: u64) {
        let now = Time::from_nanos(now);
        self.session.handle_deadline(now);
        if self.connection.poll_deadline().is_some_and(|at| at <= now) {
            self.connection.handle_deadline(now);
        }
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn is_open(&self) -> bool {
        self.connection.is_open()
    }
}
