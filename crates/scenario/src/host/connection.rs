//! One end of a TCP flow: endpoints, their common controller, and the application.

use netsim::{Out, Route};
use policy::cc::{Acked, Allowance, Congestion, Controller, Lost, Sent, Start};
use tcp::{Endpoint, Transmit};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

use crate::host::one_or_more::OneOrMore;
use crate::host::{Application, NEVER};
use crate::packet::{Ecn, Packet};

/// One of the TCP connections of a flow, with a route of its own.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Subflow {
    /// The route to the other end.
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
    application: Application,
    controller: Box<dyn Controller>,
    /// The time to open the subflows, or the deadline of the controller.
    due: Time,
    /// The time at which it stops writing.
    stop: Time,
    /// Whether it will open its subflows at `opens`. False once it has, and at the passive end.
    is_waiting: bool,
    is_closed: bool,
    /// Whether there is exactly one subflow.
    is_alone: bool,
    /// Whether the controller had an event since it was last polled.
    has_changed: bool,
    subflows: OneOrMore<Subflow>,
    opens: Time,
}

impl Connection {
    /// An end whose subflows share `controller`. It opens them at `opens`; with `None` it is the
    /// passive end.
    ///
    /// # Panics
    /// If there is no subflow.
    #[must_use]
    pub fn new(
        controller: Box<dyn Controller>,
        subflows: impl IntoIterator<Item = Subflow>,
        application: Application,
        opens: Option<Time>,
        stop: Option<Time>,
    ) -> Connection {
        let subflows = OneOrMore::new(subflows);
        let mut connection = Connection {
            application,
            controller,
            due: NEVER,
            stop: stop.unwrap_or(NEVER),
            is_waiting: opens.is_some(),
            is_closed: false,
            is_alone: subflows.len() == 1,
            has_changed: false,
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
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// The sum of the congestion windows of all subflows.
    #[must_use]
    pub fn window(&self) -> Bytes {
        (0..self.subflows.len()).map(|index| self.controller.allowance(id(index)).window).sum()
    }

    /// The congestion window of one subflow.
    #[must_use]
    pub fn subflow_window(&self, index: usize) -> Bytes {
        self.controller.allowance(id(index)).window
    }

    /// The largest smoothed RTT of its subflows.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.subflows.iter().filter_map(|subflow| subflow.endpoint.smoothed_rtt()).max()
    }

    /// Whether it has stopped writing and all that it wrote is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closed && self.subflows.iter().all(|subflow| subflow.endpoint.is_closed())
    }

    /// Payload received in order on all subflows.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.subflows.iter().map(|subflow| subflow.endpoint.received()).sum()
    }

    /// A segment has arrived for one of the subflows.
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
        let mut controller =
            TrackedController::new(self.controller.as_mut(), &mut self.has_changed);
        endpoint.handle_segment(now, segment, ecn == Ecn::Marked, &mut controller);
        while endpoint.poll_event().is_some() {}
        if self.application.minds_received() && self.subflows[index].endpoint.received() > before {
            let received = self.received();
            self.application.handle_received(now, received);
        }
        self.write(now, index);
        self.send(now, index, out);
        self.poll_controller(now, out);
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
                    &mut TrackedController::new(self.controller.as_mut(), &mut self.has_changed),
                );
            }
            self.write(now, index);
            self.send(now, index, out);
        }
        self.poll_controller(now, out);
    }

    /// Opens the subflows if it is time, and calls the controller if its deadline has come.
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
        self.has_changed = true;
    }

    /// The next deadline.
    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let mut earliest = self.due.min(self.application.poll_deadline().unwrap_or(NEVER));
        for index in 0..self.count() {
            earliest = earliest.min(self.subflows[index].endpoint.poll_deadline().unwrap_or(NEVER));
        }
        (earliest < NEVER).then_some(earliest)
    }

    /// The number of subflows.
    #[inline]
    fn count(&self) -> usize {
        if self.is_alone { 1 } else { self.subflows.len() }
    }

    /// Lets the application write as much as the subflow can soon send: data is bound to a subflow
    /// late, so that it goes where there is room.
    #[inline]
    fn write(&mut self, now: Time, index: usize) {
        if self.is_closed || self.is_waiting {
            return;
        }
        let is_over = self.stop <= now;
        if !is_over {
            let room = if self.application.fills_room() {
                let window = self.controller.allowance(id(index)).window;
                // A whole window is kept unsent, so that acknowledgements always release new data,
                // also after a loss.
                window + AHEAD - self.subflows[index].endpoint.unsent()
            } else {
                Bytes::ZERO
            };
            let received =
                if self.application.minds_received() { self.received() } else { Bytes::ZERO };
            let bytes = self.application.write(now, received, room);
            if bytes > Bytes::ZERO {
                self.subflows[index].endpoint.write(bytes);
            }
        }
        if is_over || self.application.is_finished() {
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
        let mut controller =
            TrackedController::new(self.controller.as_mut(), &mut self.has_changed);
        let mut has_more = true;
        while has_more {
            has_more = endpoint.poll_send_into(now, &mut controller, |transmit| {
                match out.put(*route, packet(*connection, &transmit)) {
                    Packet::Tcp { segment, .. } => segment,
                    _ => unreachable!("it is of TCP"),
                }
            });
        }
    }

    /// Sends the segments of the handshake.
    #[cold]
    fn send_opening(&mut self, now: Time, index: usize, out: &mut Out<Packet>) {
        let Subflow { endpoint, route, connection, .. } = &mut self.subflows[index];
        let mut controller =
            TrackedController::new(self.controller.as_mut(), &mut self.has_changed);
        while let Some(transmit) = endpoint.poll_send(now, &mut controller) {
            out.send(*route, packet(*connection, &transmit));
        }
    }

    /// Polls the controller if it had an event. An end that only receives never touches it.
    #[inline]
    fn poll_controller(&mut self, now: Time, out: &mut Out<Packet>) {
        if !self.has_changed {
            return;
        }
        // A coupled controller may have opened the windows of other subflows.
        while let Some(SubflowId(index)) = self.controller.poll_changed() {
            let index = index as usize;
            if index < self.subflows.len() {
                self.write(now, index);
                self.send(now, index, out);
            }
        }
        self.has_changed = false;
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

/// Bytes written beyond the congestion window: ten packets.
const AHEAD: Bytes = Bytes(15_000);

/// The packet of a segment.
#[inline]
pub(super) fn packet(connection: u32, transmit: &Transmit) -> Packet {
    let bytes = u16::try_from(transmit.bytes.0).expect("the file's reader bounds the MSS");
    let ecn = if transmit.is_ecn_capable { Ecn::Capable } else { Ecn::Incapable };
    Packet::Tcp { connection, bytes, ecn, segment: transmit.segment }
}

/// The id of a subflow: subflows are numbered in the order of the file.
fn id(index: usize) -> SubflowId {
    SubflowId(u32::try_from(index).expect("a file names a handful"))
}

/// A controller that records whether it had an event.
#[derive(Debug)]
struct TrackedController<'a> {
    controller: &'a mut dyn Controller,
    has_changed: &'a mut bool,
}

impl<'a> TrackedController<'a> {
    #[inline]
    fn new(
        controller: &'a mut (dyn Controller + 'static),
        has_changed: &'a mut bool,
    ) -> TrackedController<'a> {
        TrackedController { controller, has_changed }
    }

    #[inline]
    fn changed(&mut self) -> &mut dyn Controller {
        *self.has_changed = true;
        self.controller
    }
}

impl Controller for TrackedController<'_> {
    fn name(&self) -> &'static str {
        self.controller.name()
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        self.changed().handle_add(now, id, start);
    }

    fn handle_remove(&mut self, now: Time, id: SubflowId) {
        self.changed().handle_remove(now, id);
    }

    fn handle_sent(&mut self, now: Time, id: SubflowId, sent: &Sent) {
        self.changed().handle_sent(now, id, sent);
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        self.changed().handle_acked(now, id, acked);
    }

    fn handle_lost(&mut self, now: Time, id: SubflowId, lost: &Lost) {
        self.changed().handle_lost(now, id, lost);
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        self.changed().handle_congestion(now, id, congestion);
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        self.changed().handle_timeout(now, id, in_flight);
    }

    fn handle_undo(&mut self, now: Time, id: SubflowId) {
        self.changed().handle_undo(now, id);
    }

    fn handle_idle_restart(&mut self, now: Time, id: SubflowId) {
        self.changed().handle_idle_restart(now, id);
    }

    fn handle_slow_start_end(&mut self, now: Time, id: SubflowId) {
        self.changed().handle_slow_start_end(now, id);
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.controller.poll_deadline()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.changed().handle_deadline(now);
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
