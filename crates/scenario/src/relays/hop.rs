//! One end of a hop: a TCP endpoint and the amount that its application has written.

use std::sync::Arc;

use netsim::{Out, Route};
use policy::cc::{Reno, Uncoupled};
use tcp::{Config, Endpoint, Stats};
use units::{Bytes, SubflowId, Time};
use wire::tcp::Segment;

use super::packet::OverlayPacket;

/// The id of every endpoint: each is the only subflow of its connection.
const ID: SubflowId = SubflowId(0);

/// One end of the TCP connection of one hop.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    endpoint: Endpoint,
    /// For further connections over the same hop.
    config: Arc<Config>,
    is_client: bool,
    controller: Uncoupled<Reno>,
    /// The route to the other end.
    route: Route,
    connection: u32,
    written: Bytes,
    /// Bytes sent at least once.
    sent: Bytes,
}

impl Hop {
    /// The end that opens the connection.
    pub(super) fn client(config: &Arc<Config>, route: Route, connection: u32) -> Hop {
        Hop::new(Arc::clone(config), true, route, connection)
    }

    /// The end that waits for it.
    pub(super) fn server(config: &Arc<Config>, route: Route, connection: u32) -> Hop {
        Hop::new(Arc::clone(config), false, route, connection)
    }

    fn new(config: Arc<Config>, is_client: bool, route: Route, connection: u32) -> Hop {
        let end = if is_client { Endpoint::client } else { Endpoint::server };
        Hop {
            endpoint: end(Arc::clone(&config), ID),
            config,
            is_client,
            controller: Uncoupled::new(Reno::default()),
            route,
            connection,
            written: Bytes::ZERO,
            sent: Bytes::ZERO,
        }
    }

    /// The same end of a new connection.
    pub(super) fn renew(&mut self, connection: u32) {
        *self = Hop::new(Arc::clone(&self.config), self.is_client, self.route, connection);
    }

    pub(super) fn connection(&self) -> u32 {
        self.connection
    }

    pub(super) fn open(&mut self, now: Time) {
        self.endpoint.open(now, &mut self.controller);
    }

    pub(super) fn is_open(&self) -> bool {
        self.endpoint.is_open()
    }

    /// A segment has arrived; the caller calls [`Hop::send`] next.
    #[inline]
    pub(super) fn handle_segment(&mut self, now: Time, segment: &Segment) {
        self.endpoint.handle_segment(now, segment, false, &mut self.controller);
        while self.endpoint.poll_event().is_some() {}
    }

    /// Handles the deadline of the endpoint if it has come.
    pub(super) fn handle_deadline(&mut self, now: Time) {
        if self.endpoint.poll_deadline().is_some_and(|at| at <= now) {
            self.endpoint.handle_deadline(now, &mut self.controller);
        }
    }

    #[inline]
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.endpoint.poll_deadline()
    }

    #[inline]
    pub(super) fn write(&mut self, bytes: Bytes) {
        self.written += bytes;
        self.endpoint.write(bytes);
    }

    pub(super) fn set_reading(&mut self, is_reading: bool) {
        self.endpoint.set_reading(is_reading);
    }

    /// Sends all packets that the endpoint allows.
    #[inline]
    pub(super) fn send(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        while let Some(transmit) = self.endpoint.poll_send(now, &mut self.controller) {
            let segment = transmit.segment;
            // Sequence numbers begin at 1.
            self.sent =
                self.sent.max(Bytes((segment.seq + u64::from(segment.len)).saturating_sub(1)));
            let bytes = u16::try_from(transmit.bytes.0).expect("a packet of the overlay is small");
            out.send(
                self.route,
                OverlayPacket::Tcp { connection: self.connection, bytes, segment },
            );
        }
    }

    /// Bytes written and not yet sent for the first time.
    #[inline]
    pub(super) fn unsent(&self) -> Bytes {
        self.written - self.sent
    }

    /// Payload that the application has written.
    pub(super) fn written(&self) -> Bytes {
        self.written
    }

    /// Payload that the application has read.
    #[inline]
    pub(super) fn received(&self) -> Bytes {
        self.endpoint.received()
    }

    /// Payload that the other end has acknowledged.
    pub(super) fn acked(&self) -> Bytes {
        self.endpoint.acked()
    }

    pub(super) fn stats(&self) -> Stats {
        self.endpoint.stats()
    }
}
