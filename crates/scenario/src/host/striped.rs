//! One end of a flow over a striped connection: the connection, the ways of its paths, and the
//! application.

use netsim::{Out, Route};
use ptcp::{Connection, Event};
use units::{Bytes, Span, Time};

use crate::host::Feed;
use crate::packet::{Ecn, Packet};

/// The only stream: the paper's connection. The client opens it, both ends write into it.
const STREAM: u32 = 0;
/// What is written beyond the windows: ten packets.
const AHEAD: Bytes = Bytes(15_000);

/// One end of a flow over a striped connection.
#[derive(Clone, Debug)]
pub struct Striped {
    connection: Connection,
    /// The way of each path to the other end.
    routes: Vec<Route>,
    /// The number of the first path among the scenario's connections.
    first: u32,
    feed: Feed,
    /// When it opens the connection; `None`: it did, or the other end does.
    opens: Option<Time>,
    /// When it stops writing.
    stop: Option<Time>,
    is_finished: bool,
    received: Bytes,
}

impl Striped {
    /// An end whose paths go along `routes`; their numbers among the scenario's connections begin
    /// with `first`.
    #[must_use]
    pub fn new(
        connection: Connection,
        routes: Vec<Route>,
        first: u32,
        feed: Feed,
        opens: Option<Time>,
        stop: Option<Time>,
    ) -> Striped {
        Striped {
            connection,
            routes,
            first,
            feed,
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
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Payload that arrived in order.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.received
    }

    /// For each of several subflows that are open, the number of its bottleneck from 1 on; 0 if
    /// none is known. Nothing for one.
    pub(crate) fn bottlenecks(&self) -> impl Iterator<Item = u16> + '_ {
        let paths = self.connection.paths().filter(|_| self.routes.len() > 1);
        paths.map(|path| self.connection.bottleneck(path).map_or(0, |number| number + 1))
    }

    /// The largest smoothed round-trip time of its paths.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.connection.paths().filter_map(|path| self.connection.smoothed_rtt(path)).max()
    }

    /// A packet came over one of the paths.
    ///
    /// # Panics
    /// If the other end breaks the protocol: it is ours too.
    pub(crate) fn handle_packet(
        &mut self,
        now: Time,
        path: u16,
        packet: &wire::ptcp::Packet,
        ecn: Ecn,
        out: &mut Out<Packet>,
    ) {
        let outcome = self.connection.handle_packet(now, path, packet, ecn == Ecn::Marked);
        outcome.expect("both ends are ours");
        while let Some(event) = self.connection.poll_event() {
            if let Event::Readable { stream: STREAM, end, .. } = event {
                self.received = Bytes(end);
                self.feed.handle_received(now, self.received);
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

    /// When something is due by itself.
    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let own = [self.opens, self.feed.poll_deadline()];
        let connection = if self.opens.is_some() { None } else { self.connection.poll_deadline() };
        own.into_iter().flatten().chain(connection).min()
    }

    /// Lets the application write what can soon be sent.
    #[inline]
    fn write(&mut self, now: Time) {
        if self.is_finished || !self.connection.is_open() {
            return;
        }
        let is_over = self.stop.is_some_and(|stop| stop <= now);
        if !is_over {
            let unsent = self.connection.unsent(STREAM);
            let wanted = self.connection.window() + AHEAD;
            let bytes = self.feed.write(now, self.received, wanted - unsent);
            if bytes > Bytes::ZERO {
                self.connection.write(STREAM, bytes);
            }
        }
        if is_over || self.feed.is_finished() {
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
