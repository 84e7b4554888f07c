//! One end of a TCP flow: endpoints, the controller that they share, and the application.

use netsim::{Out, Route};
use policy::cc::Controller;
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
    controller: Box<dyn Controller>,
    received: Bytes,
    is_closed: bool,
    /// When it opens its subflows; `None`: it did, or the other end does.
    opens: Option<Time>,
    /// When it stops writing.
    stop: Option<Time>,
    feed: Feed,
    subflows: Few<Subflow>,
}

impl Connection {
    /// An end whose subflows share `controller`. It opens them at `opens`, or waits for the other end to.
    ///
    /// # Panics
    /// If there is no subflow.
    #[must_use]
    pub fn new(
        controller: Box<dyn Controller>,
        subflows: Vec<Subflow>,
        feed: Feed,
        opens: Option<Time>,
        stop: Option<Time>,
    ) -> Connection {
        Connection {
            controller,
            subflows: Few::new(subflows),
            feed,
            opens,
            stop,
            is_closed: false,
            received: Bytes::ZERO,
        }
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
        let subflow = &mut self.subflows[index];
        let before = subflow.endpoint.received();
        subflow.endpoint.handle_segment(now, segment, ecn == Ecn::Marked, self.controller.as_mut());
        while subflow.endpoint.poll_event().is_some() {}
        let more = subflow.endpoint.received() - before;
        if more > Bytes::ZERO {
            self.received += more;
            self.feed.handle_received(now, self.received);
        }
        self.write(now, index);
        self.send(now, index, out);
        self.send_changed(now, out);
    }

    /// Its deadline has come.
    pub(crate) fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        if self.opens.is_some_and(|at| at <= now) {
            self.opens = None;
            for subflow in self.subflows.iter_mut() {
                subflow.endpoint.open(now, self.controller.as_mut());
            }
        }
        if self.controller.poll_deadline().is_some_and(|at| at <= now) {
            self.controller.handle_deadline(now);
        }
        for index in 0..self.subflows.len() {
            let endpoint = &mut self.subflows[index].endpoint;
            if endpoint.poll_deadline().is_some_and(|at| at <= now) {
                endpoint.handle_deadline(now, self.controller.as_mut());
            }
            self.write(now, index);
            self.send(now, index, out);
        }
        self.send_changed(now, out);
    }

    /// When something is due by itself.
    #[inline]
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let mut earliest = self.subflows[0].endpoint.poll_deadline().unwrap_or(NEVER);
        for index in 1..self.subflows.len() {
            earliest = earliest.min(self.subflows[index].endpoint.poll_deadline().unwrap_or(NEVER));
        }
        for other in [self.opens, self.feed.poll_deadline(), self.controller.poll_deadline()] {
            earliest = earliest.min(other.unwrap_or(NEVER));
        }
        (earliest < NEVER).then_some(earliest)
    }

    /// Lets the application write as much as the subflow can soon send: data is bound late, so that it goes where there is room.
    #[inline]
    fn write(&mut self, now: Time, index: usize) {
        if self.is_closed || self.opens.is_some() {
            return;
        }
        let is_over = self.stop.is_some_and(|stop| stop <= now);
        if !is_over {
            let subflow = &mut self.subflows[index];
            let room = if self.feed.fills_room() {
                let window = self.controller.allowance(id(index)).window;
                // A window waits to be sent: the next acknowledgements never find nothing, behind a gap neither.
                window + AHEAD - subflow.endpoint.unsent()
            } else {
                Bytes::ZERO
            };
            let bytes = self.feed.write(now, self.received, room);
            if bytes > Bytes::ZERO {
                subflow.endpoint.write(bytes);
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
            send_opening(now, &mut self.subflows[index], self.controller.as_mut(), out);
            return;
        }
        let mut has_more = true;
        while has_more {
            has_more = endpoint.poll_send_into(now, self.controller.as_mut(), |transmit| {
                match out.put(*route, packet(*connection, &transmit)) {
                    Packet::Tcp { segment, .. } => segment,
                    _ => unreachable!("it is of TCP"),
                }
            });
        }
    }

    /// A coupled controller may have given other subflows more.
    #[inline]
    fn send_changed(&mut self, now: Time, out: &mut Out<Packet>) {
        while let Some(SubflowId(index)) = self.controller.poll_changed() {
            let index = index as usize;
            if index < self.subflows.len() {
                self.write(now, index);
                self.send(now, index, out);
            }
        }
    }
}

/// What is written beyond a window: ten packets.
const AHEAD: Bytes = Bytes(15_000);

/// Sends what opens a connection.
#[cold]
fn send_opening(now: Time, subflow: &mut Subflow, controller: &mut dyn Controller, out: &mut Out<Packet>) {
    while let Some(transmit) = subflow.endpoint.poll_send(now, controller) {
        out.send(subflow.route, packet(subflow.connection, &transmit));
    }
}

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
