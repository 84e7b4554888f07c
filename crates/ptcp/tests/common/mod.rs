//! A connection at one end of a test's network.

use ptcp::{Arrived, Connection, Event, Transmit};
use testnet::{Arrival, Endpoint};
use units::{SubflowId, Time};

/// A connection, and what it said on the way. Its path `n` runs over the network's link `n`.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    /// The sizes of the datagrams that arrived.
    pub(crate) datagrams: Vec<u16>,
    /// The raw datagrams that arrived: path and size.
    pub(crate) raw: Vec<(SubflowId, u16)>,
    pub(crate) events: Vec<Event>,
}

impl Peer {
    pub(crate) fn new(connection: Connection) -> Peer {
        Peer { connection, datagrams: Vec::new(), raw: Vec::new(), events: Vec::new() }
    }

    pub(crate) fn take_events(&mut self) {
        self.events.extend(core::iter::from_fn(|| self.connection.poll_event()));
    }
}

impl Endpoint for Peer {
    type Packet = Transmit;
    type Action = ();

    fn act(&mut self, _now: Time, (): ()) {}

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Transmit>) {
        let Transmit { path, packet, .. } = arrival.packet;
        let arrived = self.connection.handle_packet(now, path, &packet, arrival.is_marked);
        match arrived.expect("both ends are honest") {
            Arrived::Datagram { len } => self.datagrams.push(len),
            Arrived::Raw { len } => self.raw.push((path, len)),
            Arrived::Nothing | Arrived::Data { .. } => {}
        }
        self.take_events();
    }

    fn poll_transmit(&mut self, now: Time) -> Option<testnet::Transmit<Transmit>> {
        let packet = self.connection.poll_send(now)?;
        let bytes = packet.packet.wire_len();
        Some(testnet::Transmit { link: usize::from(packet.path.0), bytes, packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.connection.poll_deadline()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.connection.handle_deadline(now);
    }
}
