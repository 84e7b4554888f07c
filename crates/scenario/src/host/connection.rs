//! One end of a TCP flow: endpoints, their common controller, and the application.

use netsim::{Out, Route};
use policy::cc::Controller;
use recovery::{SendLimit, Sending};
use smallvec::SmallVec;
use tcp::{Endpoint, Event, Transmit};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

use crate::host::one_or_more::OneOrMore;
use crate::host::{Application, Ended, EndedSender, Gaps, NEVER, Request};
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
    subflows: OneOrMore<Subflow>,
    opens: Time,
    /// Bytes that the application has written and that no subflow has taken. Always zero with one
    /// subflow, and with applications that fill the room that there is.
    backlog: Bytes,
    /// The times without bytes in order, where they are measured.
    gaps: Option<Box<Gaps>>,
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
            subflows,
            opens: opens.unwrap_or(NEVER),
            backlog: Bytes::ZERO,
            gaps: None,
        };
        connection.rearm();
        connection
    }

    /// The same end, with a record of the times without bytes in order.
    #[must_use]
    pub(crate) fn with_gaps(self, gaps: Option<Box<Gaps>>) -> Connection {
        Connection { gaps, ..self }
    }

    pub(crate) fn gaps(&self) -> Option<&Gaps> {
        self.gaps.as_deref()
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

    /// What the sender of one subflow does, and what it waits for; `None` unless it is open.
    pub(crate) fn subflow_sending(&self, now: Time, index: usize) -> Option<Sending> {
        let subflow = self.subflows.iter().nth(index)?;
        let sending = subflow.endpoint.sending(now, self.controller.as_ref())?;
        // What is written and not bound to a subflow waits for room in any window.
        let waits = sending.limit == SendLimit::Application && self.backlog > Bytes::ZERO;
        let limit = if waits { SendLimit::Window } else { sending.limit };
        Some(Sending { limit, ..sending })
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

    /// Sends a request; see [`Client::ask`].
    ///
    /// # Panics
    /// If its application is no client.
    pub(crate) fn ask(&mut self, now: Time) {
        match &mut self.application {
            Application::Client(client) => client.ask(now),
            _ => unreachable!("only clients are asked for requests"),
        }
    }

    /// Whether it can send a request at once.
    pub(crate) fn is_free(&self) -> bool {
        matches!(&self.application, Application::Client(client) if client.is_free())
    }

    /// A request whose answer is complete, once.
    pub(crate) fn take_answer(&mut self) -> Option<Request> {
        match &mut self.application {
            Application::Client(client) => client.take_answer(),
            _ => None,
        }
    }

    /// What is kept of it once the connection is over. Only of one with one subflow.
    pub(crate) fn ended(&self) -> Option<Ended> {
        if !self.is_alone || self.application.poll_deadline().is_some() {
            return None;
        }
        let Subflow { route, connection, endpoint } = &self.subflows[0];
        let rest = endpoint.time_wait()?;
        let stats = endpoint.stats();
        Some(Ended {
            sender: Some(EndedSender {
                window: self.window(),
                rtt: endpoint.smoothed_rtt(),
                retransmitted: stats.retransmitted,
                timeouts: stats.timeouts,
            }),
            sent: stats.sent,
            arrived: endpoint.arrived(),
            marked: u64::from(endpoint.marked()),
            requests: self.application.requests().into(),
            gaps: self.gaps.clone(),
            rest: Some((*route, *connection, rest)),
            ..Ended::default()
        })
    }

    /// Payload that has arrived on all subflows, in order or not, each byte once.
    pub(crate) fn arrived(&self) -> Bytes {
        self.subflows.iter().map(|subflow| subflow.endpoint.arrived()).sum()
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
        endpoint.handle_segment(now, segment, ecn == Ecn::Marked, self.controller.as_mut());
        let mut has_ended = false;
        while let Some(event) = endpoint.poll_event() {
            has_ended |= event == Event::Finished;
        }
        if let Some(gaps) = &mut self.gaps
            && self.subflows[index].endpoint.received() > before
        {
            gaps.handle_received(now);
        }
        if self.application.minds_received() && self.subflows[index].endpoint.received() > before {
            let received = self.received();
            self.application.handle_received(now, received);
        }
        if has_ended && self.subflows.iter().all(|subflow| subflow.endpoint.is_finished()) {
            let received = self.received();
            self.application.handle_end(now, received);
        }
        self.write(now, index, out);
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
                endpoint.handle_deadline(now, self.controller.as_mut());
            }
            self.write(now, index, out);
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

    /// Lets the application write. Data is bound to a subflow late, so that it goes where there is
    /// room: an application that fills the room writes as much as the subflow can soon send.
    #[inline]
    fn write(&mut self, now: Time, index: usize, out: &mut Out<Packet>) {
        if self.is_closed || self.is_waiting {
            return;
        }
        let is_over = self.stop <= now;
        let fills_room = self.application.fills_room();
        if is_over {
            self.application.stop();
        } else {
            let room = if fills_room {
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
            if self.is_alone || fills_room {
                if bytes > Bytes::ZERO {
                    self.subflows[index].endpoint.write(bytes);
                }
            } else {
                self.backlog += bytes;
            }
        }
        if self.backlog > Bytes::ZERO {
            self.share_backlog(now, out);
        }
        if (is_over || self.application.is_finished()) && self.backlog == Bytes::ZERO {
            self.is_closed = true;
            for subflow in self.subflows.iter_mut() {
                subflow.endpoint.close();
            }
        }
    }

    /// Gives the backlog to the subflows with room in their windows, those with short round-trip
    /// times first, and sends it.
    #[cold]
    fn share_backlog(&mut self, now: Time, out: &mut Out<Packet>) {
        let rtt = |index: usize| self.subflows[index].endpoint.smoothed_rtt();
        let mut order: SmallVec<[usize; 8]> = (0..self.subflows.len()).collect();
        order.sort_by_key(|index| (rtt(*index).is_none(), rtt(*index)));
        for index in order {
            let window = self.controller.allowance(id(index)).window;
            let endpoint = &mut self.subflows[index].endpoint;
            if !endpoint.is_open() {
                continue;
            }
            let mss = endpoint.mss();
            let room = window.max(mss) - (endpoint.in_flight() + endpoint.unsent());
            // Whole packets only, except for the last.
            let bytes = self.backlog.min(Bytes(room.0 / mss.0 * mss.0));
            if bytes > Bytes::ZERO {
                self.backlog -= bytes;
                endpoint.write(bytes);
                self.send(now, index, out);
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
        let mut has_more = true;
        while has_more {
            has_more = endpoint.poll_send_into(now, self.controller.as_mut(), |transmit| match out
                .put(*route, packet(*connection, &transmit))
            {
                Packet::Tcp { segment, .. } => segment,
                _ => unreachable!("it is of TCP"),
            });
        }
    }

    /// Sends the segments of the handshake.
    #[cold]
    fn send_opening(&mut self, now: Time, index: usize, out: &mut Out<Packet>) {
        let Subflow { endpoint, route, connection, .. } = &mut self.subflows[index];
        while let Some(transmit) = endpoint.poll_send(now, self.controller.as_mut()) {
            out.send(*route, packet(*connection, &transmit));
        }
    }

    /// Polls the controller for what an event has changed.
    #[inline]
    fn poll_controller(&mut self, now: Time, out: &mut Out<Packet>) {
        // A coupled controller may have opened the windows of other subflows.
        while let Some(SubflowId(index)) = self.controller.poll_changed() {
            let index = usize::from(index);
            if index < self.subflows.len() {
                self.write(now, index, out);
                self.send(now, index, out);
            }
        }
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
    let ecn = Ecn::of(transmit.is_ecn_capable, transmit.is_scalable);
    Packet::Tcp { connection, bytes, ecn, segment: transmit.segment }
}

/// The id of a subflow: subflows are numbered in the order of the file.
fn id(index: usize) -> SubflowId {
    SubflowId(u16::try_from(index).expect("a file names a handful"))
}
