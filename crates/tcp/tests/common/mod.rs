//! A TCP endpoint at one end of a test's network, held against a model of the stream.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use policy::cc::Controller;
use tcp::{Endpoint, Event};
use testnet::{Arrival, Transmit};
use units::{Bytes, Time};
use wire::tcp::{Flags, Segment};

/// An endpoint with its controller. Its links carry payload; headers take no room on them.
#[derive(Debug)]
pub struct Host {
    pub endpoint: Endpoint,
    pub controller: Box<dyn Controller>,
    pub events: Vec<Event>,
    /// Which bytes of the stream have arrived, and how many without a gap.
    arrived: Vec<bool>,
    pub complete: u64,
}

/// What the application does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    SetReading { is_reading: bool },
}

impl Host {
    pub fn new(endpoint: Endpoint, controller: Box<dyn Controller>) -> Host {
        Host { endpoint, controller, events: Vec::new(), arrived: Vec::new(), complete: 0 }
    }

    /// Opens the connection.
    pub fn open(&mut self) {
        self.endpoint.open(Time::ZERO, self.controller.as_mut());
    }

    pub fn take_events(&mut self) -> &[Event] {
        self.events.extend(core::iter::from_fn(|| self.endpoint.poll_event()));
        &self.events
    }

    fn note_arrival(&mut self, segment: &Segment) {
        // The SYN takes the first number.
        let from = usize::try_from(segment.seq).expect("small") - usize::from(segment.seq > 0);
        let to = from + usize::from(segment.len);
        self.arrived.resize(self.arrived.len().max(to), false);
        self.arrived[from..to].fill(true);
        while self.arrived.get(usize::try_from(self.complete).expect("small")) == Some(&true) {
            self.complete += 1;
        }
    }
}

impl testnet::Endpoint for Host {
    type Packet = Segment;
    type Action = Action;

    fn act(&mut self, _now: Time, action: Action) {
        let Action::SetReading { is_reading } = action;
        self.endpoint.set_reading(is_reading);
        self.take_events();
    }

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Segment>) {
        let segment = arrival.packet;
        assert!(segment.flags.has(Flags::SYN) || segment.flags.has(Flags::ACK));
        self.note_arrival(&segment);
        self.endpoint.handle_segment(now, &segment, arrival.is_marked, self.controller.as_mut());
        assert!(self.endpoint.received().0 <= self.complete, "more than arrived without a gap");
        self.take_events();
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit<Segment>> {
        let packet = self.endpoint.poll_send(now, self.controller.as_mut())?.segment;
        Some(Transmit { link: 0, bytes: Bytes(u64::from(packet.len)), packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.endpoint.poll_deadline()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.endpoint.handle_deadline(now, self.controller.as_mut());
    }
}
