//! An open connection with data to send, and its peer's actions.

use policy::cc;
use policy::sched::packet;
use ptcp::{Arrived, Config, Connection, Event, PeerError};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use testnet::{Link, Network};
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::{Ack, Body, Packet, Reply, StreamData};

use crate::common::Peer;

/// The attacked end, a server unless made with [`Victim::client`]. It has a stream with much to
/// send.
pub(crate) struct Victim {
    pub(crate) connection: Connection,
    pub(crate) own_stream: u32,
    now: Time,
    /// The next packet number of each path to it.
    numbers: Vec<u64>,
    /// The largest packet number that it sent on each path.
    newest: Vec<Option<u64>>,
    /// The ack-eliciting packets that it sent.
    unacknowledged: Vec<(SubflowId, u64)>,
}

fn end(config: Config, is_client: bool) -> Connection {
    let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client)));
    let (controller, scheduler) = (
        cc::by_name("reno").expect("it is right"),
        packet::by_name("lowest-rtt").expect("it is right"),
    );
    let make = if is_client { Connection::client } else { Connection::server };
    make(config, controller, scheduler, tokens)
}

/// A piece of a stream.
pub(crate) fn data(stream: u32, offset: u64, len: u16, is_last: bool) -> Body {
    Body::Data(StreamData {
        offset,
        stream,
        stamp: 0,
        len,
        reply: Reply::Path(SubflowId(0)),
        is_last,
    })
}

impl Victim {
    /// A server.
    pub(crate) fn new(config: Config) -> Victim {
        let (_, server, now) = shake_hands(config);
        Victim::with(server, now)
    }

    /// A client.
    pub(crate) fn client(config: Config) -> Victim {
        let (client, _, now) = shake_hands(config);
        Victim::with(client, now)
    }

    /// A server that has nothing to send.
    pub(crate) fn idle(config: Config) -> Victim {
        let mut victim = Victim::new(config);
        victim.connection.reset(victim.own_stream, 0);
        victim.send_all();
        victim.advance(Span::from_millis(10));
        victim.acknowledge_all();
        victim
    }

    fn with(mut connection: Connection, now: Time) -> Victim {
        while connection.poll_event().is_some() {}
        let own_stream = connection.open_stream();
        connection.write(own_stream, Bytes::mib(1_024));
        let numbers = vec![100; usize::from(u16::MAX) + 1];
        let newest = vec![None; numbers.len()];
        Victim { connection, own_stream, now, numbers, newest, unacknowledged: Vec::new() }
    }

    /// It receives a packet with the next number.
    pub(crate) fn receive(&mut self, path: SubflowId, body: Body) -> Result<Arrived, PeerError> {
        let number = self.numbers[usize::from(path.0)];
        self.receive_as(path, number, body)
    }

    /// It receives a packet with this number.
    pub(crate) fn receive_as(
        &mut self,
        path: SubflowId,
        number: u64,
        body: Body,
    ) -> Result<Arrived, PeerError> {
        let next = &mut self.numbers[usize::from(path.0)];
        *next = (*next).max(number.saturating_add(1));
        self.connection.handle_packet(self.now, path, &Packet { number, body }, false)
    }

    /// The packets that it sends now, with their paths.
    pub(crate) fn send_all(&mut self) -> Vec<(SubflowId, Packet)> {
        let sent: Vec<_> = core::iter::from_fn(|| self.connection.poll_send(self.now))
            .map(|transmit| (transmit.path, transmit.packet))
            .take(100_000)
            .collect();
        assert!(sent.len() < 100_000, "it sends without end");
        for (path, packet) in &sent {
            self.newest[usize::from(path.0)] = Some(packet.number);
            if packet.is_eliciting() {
                self.unacknowledged.push((*path, packet.number));
            }
        }
        sent
    }

    /// Time passes.
    pub(crate) fn advance(&mut self, span: Span) {
        self.now += span;
        let mut rounds = 0;
        while self.connection.poll_deadline().is_some_and(|at| at <= self.now) && rounds < 100 {
            self.connection.handle_deadline(self.now);
            self.send_all();
            rounds += 1;
        }
        assert!(rounds < 100, "it wakes up for nothing");
    }

    /// An acknowledgement of this packet only.
    pub(crate) fn ack(&self, path: SubflowId, largest: u64) -> Ack {
        Ack { path, largest, first: 1, stream: self.own_stream, limit: 2_048, ..Ack::default() }
    }

    /// Acknowledges all its packets one by one.
    pub(crate) fn acknowledge_all(&mut self) {
        self.send_all();
        for (path, number) in core::mem::take(&mut self.unacknowledged) {
            let ack = self.ack(path, number);
            self.receive(path, Body::Ack(ack)).expect("it is right");
        }
    }

    /// The peer opens paths up to this number.
    pub(crate) fn open_paths(&mut self, end: u16) {
        for path in 1..end {
            self.receive(SubflowId(path), Body::Challenge { token: 1, padding: 0 })
                .expect("it is right");
            for (over, packet) in self.send_all() {
                if let Body::Challenge { token, .. } = packet.body {
                    self.receive(over, Body::Response { token }).expect("it is right");
                }
            }
        }
        assert_eq!(self.connection.paths().count(), usize::from(end));
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.connection.poll_event()).collect()
    }

    /// The largest packet number that it has sent over a path.
    pub(crate) fn newest(&self, path: SubflowId) -> Option<u64> {
        self.newest[usize::from(path.0)]
    }

    /// Whether it has closed the connection, with a Close packet to the peer.
    pub(crate) fn is_ended(&mut self) -> bool {
        let is_told = self.closes_sent() > 0;
        assert_eq!(is_told, !self.connection.is_open(), "it tells the peer when it closes");
        is_told
    }

    /// The number of Close packets that it sends now.
    pub(crate) fn closes_sent(&mut self) -> usize {
        let is_close =
            |(_, packet): &(SubflowId, Packet)| matches!(packet.body, Body::Close { .. });
        self.send_all().iter().filter(|sent| is_close(sent)).count()
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// A measure of its memory: the length of its debug output. A range takes about ten characters.
    pub(crate) fn remembers(&mut self) -> usize {
        self.events();
        format!("{:?}", self.connection).len()
    }
}

/// A client and a server with one open path, and the time.
fn shake_hands(config: Config) -> (Connection, Connection, Time) {
    let ends = [end(config.clone(), true), end(config, false)].map(Peer::new);
    let mut network = Network::new(ends, [Link::new(Span::from_millis(10))], 0);
    network.ends[0].connection.open_path(Time::ZERO);
    network.run_for(Span::from_millis(100));
    let now = network.now();
    let Ok([client, server]) = <[Peer; 2]>::try_from(network.ends) else { unreachable!() };
    assert!(client.connection.is_open() && server.connection.is_open());
    (client.connection, server.connection, now)
}
