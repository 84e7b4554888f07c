//! One end of a flow over a striped connection: the connection, the routes of its paths, and the
//! application.

use netsim::{Out, Route};
use ptcp::{Connection, Event};
use recovery::Sending;
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::Body;

use crate::far_clock::FarClock;
use crate::host::{Application, Ended, Gaps};
use crate::packet::{Ecn, Packet};

/// The only stream. The client opens it, and both ends write into it.
const STREAM: u32 = 0;
/// Bytes written beyond the congestion windows: ten packets.
const AHEAD: Bytes = Bytes(15_000);
/// The code with which an end that is done closes.
const DONE: u32 = 0;

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
    /// Whether it closes the connection when it is done.
    may_close: bool,
    received: Bytes,
    /// By path.
    arrived: Vec<Arrived>,
    /// The state of the paths when the connection was closed, which forgets them.
    closed: Option<Box<[PathState]>>,
    /// Its clock, where that is not the other end's, and how many acknowledgements it has sent.
    clock: Option<(FarClock, u32)>,
    /// The times without bytes in order, where they are measured.
    gaps: Option<Box<Gaps>>,
}

/// The state of one path of a striped connection, as far as measures need it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathState {
    pub(crate) window: Bytes,
    pub(crate) rtt: Option<Span>,
    /// Packets with data sent, and packets declared lost.
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) timeouts: u64,
    /// The number of its bottleneck from 1 on, 0 if none is known; `None` unless it is open.
    pub(crate) bottleneck: Option<u16>,
}

/// A path of a connection that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedPath {
    pub(crate) route: Route,
    pub(crate) state: PathState,
    pub(crate) arrived: Arrived,
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
    /// scenario. `may_close`: it closes the connection when it is done.
    #[must_use]
    pub fn new(
        connection: Connection,
        routes: Vec<Route>,
        first: u32,
        application: Application,
        opens: Option<Time>,
        stop: Option<Time>,
        may_close: bool,
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
            may_close,
            received: Bytes::ZERO,
            closed: None,
            clock: None,
            gaps: None,
        }
    }

    /// The same end, with a record of the times without bytes in order.
    #[must_use]
    pub(crate) fn with_gaps(self, gaps: Option<Box<Gaps>>) -> Striped {
        Striped { gaps, ..self }
    }

    pub(crate) fn gaps(&self) -> Option<&Gaps> {
        self.gaps.as_deref()
    }

    /// The same end with a clock of its own.
    #[must_use]
    pub fn with_clock(self, clock: Option<FarClock>) -> Striped {
        Striped { clock: clock.map(|clock| (clock, 0)), ..self }
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

    /// Payload that has arrived, in order or not, each byte once.
    pub(crate) fn arrived(&self) -> Bytes {
        self.received + self.connection.beyond_gaps(STREAM)
    }

    /// The packets that arrived over a path.
    pub(crate) fn arrived_over(&self, path: usize) -> Arrived {
        self.arrived[path]
    }

    /// The routes of its paths.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The state of a path; zero before it opens.
    pub(crate) fn path(&self, path: usize) -> PathState {
        if let Some(closed) = &self.closed {
            return closed[path];
        }
        let path = SubflowId(u16::try_from(path).expect("paths are numbered in 16 bits"));
        let stats = self.connection.stats(path);
        PathState {
            window: self.connection.path_window(path),
            rtt: self.connection.smoothed_rtt(path),
            sent: stats.map_or(0, |stats| stats.sent),
            lost: stats.map_or(0, |stats| stats.lost),
            timeouts: stats.map_or(0, |stats| stats.timeouts),
            bottleneck: self
                .connection
                .paths()
                .any(|open| open == path)
                .then(|| self.connection.bottleneck(path).map_or(0, |first| first.0 + 1)),
        }
    }

    /// What the sender of a path does, and what it waits for; `None` unless it is open.
    pub(crate) fn path_sending(&self, now: Time, path: usize) -> Option<Sending> {
        let path = SubflowId(u16::try_from(path).ok()?);
        self.connection.path_sending(now, path)
    }

    /// The states of all paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathState> + '_ {
        (0..self.routes.len()).map(|path| self.path(path))
    }

    /// What is to be kept of it, once the connection has ended on both sides.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let states = self.closed.as_ref().filter(|_| self.connection.is_closed())?;
        let ends = self.routes.iter().zip(states).zip(&self.arrived);
        let path = |((route, state), arrived): ((&Route, &PathState), &Arrived)| EndedPath {
            route: *route,
            state: *state,
            arrived: *arrived,
        };
        Some(Ended {
            arrived: self.arrived(),
            requests: self.application.requests().into(),
            gaps: self.gaps.clone(),
            paths: ends.map(path).collect(),
            ..Ended::default()
        })
    }

    /// The connection is about to be closed, and forgets its paths.
    fn keep_paths(&mut self) {
        if self.closed.is_none() {
            self.closed = Some(self.paths().collect());
        }
        self.is_finished = true;
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
        if matches!(packet.body, Body::Close { .. }) {
            self.keep_paths();
        }
        let (over, marked) = (SubflowId(path), ecn == Ecn::Marked);
        let outcome = match &self.clock {
            None => self.connection.handle_packet(now, over, packet, marked),
            Some((clock, _)) => {
                let body = clock.arrived(now, packet.body.clone());
                let packet = wire::ptcp::Packet { body, number: packet.number };
                self.connection.handle_packet(now, over, &packet, marked)
            }
        };
        outcome.expect("both ends are ours");
        while let Some(event) = self.connection.poll_event() {
            if let Event::Readable { stream: STREAM, end, is_whole } = event {
                if let Some(gaps) = &mut self.gaps
                    && Bytes(end) > self.received
                {
                    gaps.handle_received(now);
                }
                self.received = Bytes(end);
                self.application.handle_received(now, self.received);
                if is_whole {
                    self.application.handle_end(now, self.received);
                }
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
        if self.closed.is_some() {
            return self.connection.poll_deadline();
        }
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
        if self.may_close && self.closed.is_none() && self.is_done() {
            self.keep_paths();
            self.connection.close(now, DONE);
        }
        while let Some(mut transmit) = self.connection.poll_send(now) {
            if let Some((clock, acks)) = &mut self.clock {
                transmit.packet.body = clock.sent(now, transmit.packet.body, acks);
            }
            let ecn = Ecn::of(transmit.is_ecn_capable, transmit.is_scalable);
            let connection = self.first + u32::from(transmit.path.0);
            out.send(
                self.routes[usize::from(transmit.path.0)],
                Packet::Ptcp { connection, ecn, packet: transmit.packet },
            );
        }
    }
}
