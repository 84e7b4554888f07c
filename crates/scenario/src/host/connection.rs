//! One end of a TCP flow: endpoints, the controller that they share, and the application.

use netsim::{Out, Route};
use policy::cc::{Acked, Allowance, Congestion, Controller, Lost, Sent, Start};
use tcp::{Endpoint, Transmit};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

use crate::host::few::Few;
use crate::host::{Feed, NEVER};
use crate::packet::{Ecn, Packet};

/// One TCP connection of a flow that may have several, each on a way of its own.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Subflow {
    /// The way to the other end.
    pub route: Route,
    /// Its number among the scenario's connections.
    pub connection: u32,
    /// The endpoint.
    pub endpoint: Endpoint,
}

impl Subflow {
    /// An endpoint that sends along `route`; `connection` is its number among the scenario's.
    #[must_use]
    pub fn new(endpoint: Endpoint, route: Route, connection: u32) -> Subflow {
        Subflow { route, connection, endpoint }
    }
}

/// One end of a TCP flow.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Connection {
    feed: Feed,
    controller: Box<dyn Controller>,
    /// When it opens its subflows, or the controller wants to be called.
    due: Time,
    /// When it stops writing.
    stop: Time,
    /// Whether it has yet to open its subflows, at `opens`. If not, it did, or the other end does.
    is_waiting: bool,
    is_closed: bool,
    /// Whether there is one subflow.
    is_alone: bool,
    /// Whether the controller has been told something, and not yet been asked what it wants now.
    is_told: bool,
    subflows: Few<Subflow>,
    opens: Time,
}

impl Connection {
    /// An end whose subflows share `controller`. It opens them at `opens`, or waits for the other
    /// end to.
    ///
    /// # Panics
    /// If there is no subflow.
    #[must_use]
    pub fn new(
        controller: Box<dyn Controller>,
        subflows: impl IntoIterator<Item = Subflow>,
        feed: Feed,
        opens: Option<Time>,
        stop: Option<Time>,
    ) -> Connection {
        let subflows = Few::new(subflows);
        let mut connection = Connection {
            feed,
            controller,
            due: NEVER,
            stop: stop.unwrap_or(NEVER),
            is_waiting: opens.is_some(),
            is_closed: false,
            is_alone: subflows.len() == 1,
            is_told: false,
            subflows,
            opens: opens.unwrap_or(NEVER),
        };
        connection.rearm();
        connection
    }

    /// Its subflows.
    pub fn subflows(&self) -> impl Iterator<Item = &Subflow> {
        self.subflows.iter()
    }

    /// The application.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The window of all subflows together.
    #[must_use]
    pub fn window(&self) -> Bytes {
        (0..self.subflows.len()).map(|index| self.controller.allowance(id(index)).window).sum()
    }

    /// The window of one subflow.
    #[must_use]
    pub fn subflow_window(&self, index: usize) -> Bytes {
        self.controller.allowance(id(index)).window
    }

    /// The largest smoothed round-trip time of its subflows.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.subflows.iter().filter_map(|subflow| subflow.endpoint.smoothed_rtt()).max()
    }

    /// Payload that arrived in order, of all subflows.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.subflows.iter().map(|subflow| subflow.endpoint.received()).sum()
    }

    /// A segment came for one of the subflows.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        index: usize,
        segment: &Segment,
        ecn: Ecn,
        out: &mut Out<Packet>,
    ) {
        let endpoint = &mut self.subflows[index].endpoint;
        let before = endpoint.received();
        let mut ear = Ear::of(self.controller.as_mut(), &mut self.is_told);
        endpoint.handle_segment(now, segment, ecn == Ecn::Marked, &mut ear);
        while endpoint.poll_event().is_some() {}
        if self.feed.minds_received() && self.subflows[index].endpoint.received() > before {
            let received = self.received();
            self.feed.handle_received(now, received);
        }
        self.write(now, index);
        self.send(now, index, out);
        self.ask(now, out);
    }

    /// Its deadline has come.
    pub(crate) fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        if self.due <= now {
            self.handle_due(now);
        }
        for index in 0..self.count() {
            let endpoint = &mut self.subflows[index].endpoint;
            if endpoint.poll_deadline().is_some_and(|at| at <= now) {
                endpoint.handle_deadline(
                    now,
                    &mut Ear::of(self.controller.as_mut(), &mut self.is_told),
                );
            }
            self.write(now, index);
            self.send(now, index, out);
        }
        self.ask(now, out);
    }

    /// It is time to open its subflows, or the controller wants to be called.
    #[cold]
    fn handle_due(&mut self, now: Time) {
        if self.is_waiting && self.opens <= now {
            self.is_waiting = false;
            for subflow in self.subflows.iter_mut() {
                subflow.endpoint.open(now, self.controller.as_mut());
            }
        }
        if self.controller.poll_deadline().is_some_and(|at| at <= now) {
            self.controller.handle_deadline(now);
        }
        self.is_told = true;
    }

    /// When something is due by itself.
    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let mut earliest = self.due.min(self.feed.poll_deadline().unwrap_or(NEVER));
        for index in 0..self.count() {
            earliest = earliest.min(self.subflows[index].endpoint.poll_deadline().unwrap_or(NEVER));
        }
        (earliest < NEVER).then_some(earliest)
    }

    /// How many subflows there are.
    #[inline]
    fn count(&self) -> usize {
        if self.is_alone { 1 } else { self.subflows.len() }
    }

    /// Lets the application write as much as the subflow can soon send: data is bound late, so that
    /// it goes where there is room.
    #[inline]
    fn write(&mut self, now: Time, index: usize) {
        if self.is_closed || self.is_waiting {
            return;
        }
        let is_over = self.stop <= now;
        if !is_over {
            let room = if self.feed.fills_room() {
                let window = self.controller.allowance(id(index)).window;
                // A window waits to be sent: the next acknowledgements never find nothing, behind a
                // gap neither.
                window + AHEAD - self.subflows[index].endpoint.unsent()
            } else {
                Bytes::ZERO
            };
            let received = if self.feed.minds_received() { self.received() } else { Bytes::ZERO };
            let bytes = self.feed.write(now, received, room);
            if bytes > Bytes::ZERO {
                self.subflows[index].endpoint.write(bytes);
            }
        }
        if is_over || self.feed.is_finished() {
            self.is_closed = true;
            for subflow in self.subflows.iter_mut() {
                subflow.endpoint.close();
            }
        }
    }

    #[inline]
    fn send(&mut self, now: Time, index: usize, out: &mut Out<Packet>) {
        let Subflow { endpoint, route, connection, .. } = &mut self.subflows[index];
        if !endpoint.is_open() {
            self.send_opening(now, index, out);
            return;
        }
        let mut ear = Ear::of(self.controller.as_mut(), &mut self.is_told);
        let mut has_more = true;
        while has_more {
            has_more = endpoint.poll_send_into(now, &mut ear, |transmit| {
                match out.put(*route, packet(*connection, &transmit)) {
                    Packet::Tcp { segment, .. } => segment,
                    _ => unreachable!("it is of TCP"),
                }
            });
        }
    }

    /// Sends what opens a connection.
    #[cold]
    fn send_opening(&mut self, now: Time, index: usize, out: &mut Out<Packet>) {
        let Subflow { endpoint, route, connection, .. } = &mut self.subflows[index];
        let mut ear = Ear::of(self.controller.as_mut(), &mut self.is_told);
        while let Some(transmit) = endpoint.poll_send(now, &mut ear) {
            out.send(*route, packet(*connection, &transmit));
        }
    }

    /// Asks the controller what it wants now, if it has been told something. Who only receives
    /// never touches it.
    #[inline]
    fn ask(&mut self, now: Time, out: &mut Out<Packet>) {
        if !self.is_told {
            return;
        }
        // A coupled controller may have given other subflows more.
        while let Some(SubflowId(index)) = self.controller.poll_changed() {
            let index = index as usize;
            if index < self.subflows.len() {
                self.write(now, index);
                self.send(now, index, out);
            }
        }
        self.is_told = false;
        self.rearm();
    }

    #[inline]
    fn rearm(&mut self) {
        self.due = self.controller.poll_deadline().unwrap_or(NEVER);
        if self.is_waiting {
            self.due = self.due.min(self.opens);
        }
    }
}

/// What is written beyond a window: ten packets.
const AHEAD: Bytes = Bytes(15_000);

/// What carries a segment of a connection.
#[inline]
pub(super) fn packet(connection: u32, transmit: &Transmit) -> Packet {
    let bytes = u16::try_from(transmit.bytes.0).expect("the file's reader bounds the MSS");
    let ecn = if transmit.is_ecn_capable { Ecn::Capable } else { Ecn::Incapable };
    Packet::Tcp { connection, bytes, ecn, segment: transmit.segment }
}

/// Subflows are numbered as they stand in the file.
fn id(index: usize) -> SubflowId {
    SubflowId(u32::try_from(index).expect("a file names a handful"))
}

/// A controller, and a note of whether it is told anything.
#[derive(Debug)]
struct Ear<'a> {
    controller: &'a mut dyn Controller,
    is_told: &'a mut bool,
}

impl<'a> Ear<'a> {
    #[inline]
    fn of(controller: &'a mut (dyn Controller + 'static), is_told: &'a mut bool) -> Ear<'a> {
        Ear { controller, is_told }
    }

    #[inline]
    fn tell(&mut self) -> &mut dyn Controller {
        *self.is_told = true;
        self.controller
    }
}

impl Controller for Ear<'_> {
    fn name(&self) -> &'static str {
        self.controller.name()
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        self.tell().handle_add(now, id, start);
    }

    fn handle_remove(&mut self, now: Time, id: SubflowId) {
        self.tell().handle_remove(now, id);
    }

    fn handle_sent(&mut self, now: Time, id: SubflowId, sent: &Sent) {
        self.tell().handle_sent(now, id, sent);
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        self.tell().handle_acked(now, id, acked);
    }

    fn handle_lost(&mut self, now: Time, id: SubflowId, lost: &Lost) {
        self.tell().handle_lost(now, id, lost);
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        self.tell().handle_congestion(now, id, congestion);
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        self.tell().handle_timeout(now, id, in_flight);
    }

    fn handle_undo(&mut self, now: Time, id: SubflowId) {
        self.tell().handle_undo(now, id);
    }

    fn handle_idle_restart(&mut self, now: Time, id: SubflowId) {
        self.tell().handle_idle_restart(now, id);
    }

    fn handle_slow_start_end(&mut self, now: Time, id: SubflowId) {
        self.tell().handle_slow_start_end(now, id);
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.controller.poll_deadline()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.tell().handle_deadline(now);
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.controller.allowance(id)
    }

    fn poll_changed(&mut self) -> Option<SubflowId> {
        self.controller.poll_changed()
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.controller.threshold(id)
    }

    fn wants_rate_reduction(&self) -> bool {
        self.controller.wants_rate_reduction()
    }

    fn wants_snapshots(&self) -> bool {
        self.controller.wants_snapshots()
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        self.controller.boxed_clone()
    }
}
