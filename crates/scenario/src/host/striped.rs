//! One end of a flow over a striped connection: the connection, the routes of its paths, and the
//! application.

use netsim::{Out, Route};
use ptcp::{Connection, Event};
use units::{Bytes, Span, Time};

use crate::host::Application;
use crate::packet::{Ecn, Packet};

/// The only stream. The client opens it, and both ends write into it.
const STREAM: u32 = 0;
/// Bytes written beyond the congestion windows: ten packets.
const AHEAD: Bytes = Bytes(15_000);

/// One end of a flow over a striped connection.
#[derive(Clone, Debug)]
pub struct Striped {
    connection: Connection,
    /// The route of each path to the other end.
    routes: Vec<Route>,
    /// The number of the first path among the scenario's connections.
    first: u32,
    application: Application,
    /// The time to open the connection; `None` once it has, and at the passive end.
    opens: Option<Time>,
    /// The time at which it stops writing.
    stop: Option<Time>,
    is_finished: bool,
    received: Bytes,
    /// By path.
    arrived: Vec<Arrived>,
}

/// The packets of one path that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// The payload, with that of copies.
    pub(crate) payload: Bytes,
    /// The packets with a mark (ECN).
    pub(crate) marked: u64,
}

impl Striped {
    /// An end whose paths take `routes`; `first` is the connection number of the first path in the
    /// scenario.
    #[must_use]
    pub fn new(
        connection: Connection,
        routes: Vec<Route>,
        first: u32,
        application: Application,
        opens: Option<Time>,
        stop: Option<Time>,
    ) -> Striped {
        Striped {
            connection,
            arrived: vec![Arrived::default(); routes.len()],
            routes,
            first,
            application,
            opens,
            stop,
            is_finished: false,
            received: Bytes::ZERO,
        }
    }

    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The application.
    #[must_use]
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// Whether it has stopped writing and all that it wrote is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.is_finished && self.connection.undelivered(STREAM) == Bytes::ZERO
    }

    /// Payload received in order.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.received
    }

    /// The packets that arrived over a path.
    pub(crate) fn arrived(&self, path: usize) -> Arrived {
        self.arrived[path]
    }

    /// The routes of its paths.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// For each open subflow, the number of its bottleneck from 1 on, or 0 if none is known. Empty
    /// if there is one subflow.
    pub(crate) fn bottlenecks(&self) -> impl Iterator<Item = u16> + '_ {
        let paths = self.connection.paths().filter(|_| self.routes.len() > 1);
        paths.map(|path| self.connection.bottleneck(path).map_or(0, |number| number + 1))
    }

    /// The largest smoothed RTT of its paths.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.connection.paths().filter_map(|path| self.connection.smoothed_rtt(path)).max()
    }

    /// A packet has arrived over one of the paths.
    ///
    /// # Panics
    /// If the other end breaks the protocol, which would be a bug: both ends are this
    /// implementation.
    pub(crate) fn handle_packet(
        &mut self,
        now: Time,
        path: u16,
        packet: &wire::ptcp::Packet,
        ecn: Ecn,
        out: &mut Out<Packet>,
    ) {
        let arrived = &mut self.arrived[usize::from(path)];
        arrived.payload += Bytes(packet.payload_len() as u64);
        arrived.marked += u64::from(ecn == Ecn::Marked);
        let outcome = self.connection.handle_packet(now, path, packet, ecn == Ecn::Marked);
        outcome.expect("both ends are ours");
        while let Some(event) = self.connection.poll_event() {
            if let Event::Readable { stream: STREAM, end, .. } = event {
                self.received = Bytes(end);
                self.application.handle_received(now, self.received);
            }
        }
        self.write(now);
        self.send(now, out);
    }

    /// Its deadline has come.
    pub(crate) fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        if self.opens.is_some_and(|at| at <= now) {
            self.opens = None;
            for _ in &self.routes {
                self.connection.open_path(now);
            }
            self.connection.open_stream();
        }
        if self.connection.poll_deadline().is_some_and(|at| at <= now) {
            self.connection.handle_deadline(now);
        }
        self.write(now);
        self.send(now, out);
    }

    /// The next deadline.
    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let own = [self.opens, self.application.poll_deadline()];
        let connection = if self.opens.is_some() { None } else { self.connection.poll_deadline() };
        own.into_iter().flatten().chain(connection).min()
    }

    /// Lets the application write: one that fills the room writes as much as can soon be sent.
    #[inline]
    fn write(&mut self, now: Time) {
        let fills_room = self.application.fills_room();
        if self.is_finished || self.opens.is_some() || (fills_room && !self.connection.is_open()) {
            return;
        }
        let is_over = self.stop.is_some_and(|stop| stop <= now);
        if is_over {
            self.application.stop();
        } else {
            let unsent = self.connection.unsent(STREAM);
            let wanted = self.connection.window() + AHEAD;
            let bytes = self.application.write(now, self.received, wanted - unsent);
            if bytes > Bytes::ZERO {
                self.connection.write(STREAM, bytes);
            }
        }
        if is_over || self.application.is_finished() {
            self.is_finished = true;
            self.connection.finish(STREAM);
        }
    }

    #[inline]
    fn send(&mut self, now: Time, out: &mut Out<Packet>) {
        if self.opens.is_some() {
            return;
        }
        while let Some(transmit) = self.connection.poll_send(now) {
            let ecn = if transmit.is_ecn_capable { Ecn::Capable } else { Ecn::Incapable };
            let connection = self.first + u32::from(transmit.path);
            out.send(
                self.routes[usize::from(transmit.path)],
                Packet::Ptcp { connection, ecn, packet: transmit.packet },
            );
        }
    }
}
