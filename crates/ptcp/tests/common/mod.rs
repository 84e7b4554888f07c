//! A connection at one end of a test's network.

use ptcp::{Arrived, Connection, Event, Transmit};
use testnet::{Arrival, Endpoint};
use units::{Span, SubflowId, Time};

/// A connection, and what it said on the way. Its path `n` runs over the network's link `n`.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    /// The sizes of the datagrams that arrived.
    pub(crate) datagrams: Vec<u16>,
    /// The raw datagrams that arrived: path and size.
    pub(crate) raw: Vec<(SubflowId, u16)>,
    pub(crate) events: Vec<Event>,
    /// By how much it wakes late, for what arrives and for its timers.
    pub(crate) late: Span,
    /// What arrived since it woke last.
    waiting: Vec<(Time, Arrival<Transmit>)>,
    woken_at: Time,
}

impl Peer {
    pub(crate) fn new(connection: Connection) -> Peer {
        Peer {
            connection,
            datagrams: Vec::new(),
            raw: Vec::new(),
            events: Vec::new(),
            late: Span::ZERO,
            waiting: Vec::new(),
            woken_at: Time::ZERO,
        }
    }

    pub(crate) fn take_events(&mut self) {
        self.events.extend(core::iter::from_fn(|| self.connection.poll_event()));
    }

    fn take_in(&mut self, now: Time, arrival: Arrival<Transmit>) {
        let Transmit { path, packet, .. } = arrival.packet;
        let arrived = self.connection.handle_packet(now, path, &packet, arrival.is_marked);
        match arrived.expect("both ends are honest") {
            Arrived::Datagram { len } => self.datagrams.push(len),
            Arrived::Raw { len } => self.raw.push((path, len)),
            Arrived::Nothing | Arrived::Data { .. } => {}
        }
        self.take_events();
    }
}

impl Endpoint for Peer {
    type Packet = Transmit;
    type Action = ();

    fn act(&mut self, _now: Time, (): ()) {}

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Transmit>) {
        if self.late > Span::ZERO {
            self.waiting.push((now, arrival));
        } else {
            self.take_in(now, arrival);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<testnet::Transmit<Transmit>> {
        if self.late > Span::ZERO && self.woken_at < now {
            return None;
        }
        let packet = self.connection.poll_send(now)?;
        let bytes = packet.packet.wire_len();
        Some(testnet::Transmit { link: usize::from(packet.path.0), bytes, packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        let arrived = self.waiting.first().map(|(at, _)| *at);
        Some(self.connection.poll_deadline().into_iter().chain(arrived).min()? + self.late)
    }

    fn handle_deadline(&mut self, now: Time) {
        self.woken_at = now;
        for (_, arrival) in core::mem::take(&mut self.waiting) {
            self.take_in(now, arrival);
        }
        if self.connection.poll_deadline().is_some_and(|at| at <= now) {
            self.connection.handle_deadline(now);
        }
    }
}
