//! One end of a stream that an application stripes over several sockets: TCP connections with
//! buffers of equal size.

use netsim::Out;
use policy::cc::Controller;
use recovery::Sending;
use tcp::Transmit;
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

use crate::host::stripe::{Reader, Writer};
use crate::host::{Application, Gaps, NEVER, Subflow, connection};
use crate::packet::{Ecn, Header, Packet, Piece};

/// The only subflow of the controller of a socket.
const ONLY: SubflowId = SubflowId(0);

/// A TCP connection with a controller of its own.
#[derive(Clone, Debug)]
pub struct Socket {
    controller: Box<dyn Controller>,
    subflow: Subflow,
}

impl Socket {
    /// A connection whose endpoint is the controller's subflow 0.
    #[must_use]
    pub fn new(controller: Box<dyn Controller>, subflow: Subflow) -> Socket {
        Socket { controller, subflow }
    }
}

/// One end of a stream that is striped over sockets.
#[derive(Clone, Debug)]
pub struct Sockets {
    each: Vec<Socket>,
    writer: Writer,
    reader: Reader,
    application: Application,
    /// Bytes that the application has written and that no socket has taken.
    backlog: Bytes,
    /// Payload that was read.
    received: Bytes,
    /// The time to open the connections; `None` once it has, and at the passive end.
    opens: Option<Time>,
    /// The time at which it stops writing.
    stop: Option<Time>,
    is_closed: bool,
    /// The times without bytes in order, where they are measured.
    gaps: Option<Box<Gaps>>,
}

impl Sockets {
    /// An end that cuts what the application writes into records that each fill a packet, except
    /// the last of a write. `buffer` is the size of each send buffer. It opens the connections at
    /// `opens` (`None`: it is the passive end), and writes until `stop`.
    ///
    /// # Panics
    /// If there is no socket.
    #[must_use]
    pub fn new(
        mut sockets: Vec<Socket>,
        buffer: Bytes,
        application: Application,
        opens: Option<Time>,
        stop: Option<Time>,
    ) -> Sockets {
        let record = sockets.first().expect("a stream needs a socket").subflow.endpoint.mss();
        for socket in &mut sockets {
            // Data is read in the order of the stream.
            socket.subflow.endpoint.set_reading(false);
        }
        Sockets {
            writer: Writer::new(sockets.len(), buffer, record),
            reader: Reader::new(sockets.len()),
            each: sockets,
            application,
            backlog: Bytes::ZERO,
            received: Bytes::ZERO,
            opens,
            stop,
            is_closed: false,
            gaps: None,
        }
    }

    /// The same end, with a record of the times without bytes in order.
    #[must_use]
    pub(crate) fn with_gaps(self, gaps: Option<Box<Gaps>>) -> Sockets {
        Sockets { gaps, ..self }
    }

    pub(crate) fn gaps(&self) -> Option<&Gaps> {
        self.gaps.as_deref()
    }

    /// The application.
    #[must_use]
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// Its connections.
    pub fn connections(&self) -> impl Iterator<Item = &Subflow> {
        self.each.iter().map(|socket| &socket.subflow)
    }

    /// The sum of the congestion windows of all connections.
    #[must_use]
    pub fn window(&self) -> Bytes {
        self.each.iter().map(|socket| socket.controller.allowance(ONLY).window).sum()
    }

    /// The congestion window of one connection.
    pub(crate) fn connection_window(&self, index: usize) -> Bytes {
        self.each[index].controller.allowance(ONLY).window
    }

    /// What the sender of one connection does, and what it waits for; `None` unless it is open.
    /// With all of its send buffer in flight there is nothing to send.
    pub(crate) fn connection_sending(&self, now: Time, index: usize) -> Option<Sending> {
        let Socket { controller, subflow } = self.each.get(index)?;
        subflow.endpoint.sending(now, controller.as_ref())
    }

    /// The largest smoothed RTT of its connections.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.connections().filter_map(|connection| connection.endpoint.smoothed_rtt()).max()
    }

    /// Whether it has stopped writing and all that it wrote is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closed && self.connections().all(|connection| connection.endpoint.is_closed())
    }

    /// Payload that has arrived on all connections, each byte once.
    pub(crate) fn arrived(&self) -> Bytes {
        self.connections().map(|connection| connection.endpoint.arrived()).sum()
    }

    /// A segment has arrived on one of the connections, with this piece of a record if any.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        index: usize,
        segment: &Segment,
        piece: Option<Piece>,
        ecn: Ecn,
        out: &mut Out<Packet>,
    ) {
        let Socket { controller, subflow } = &mut self.each[index];
        let endpoint = &mut subflow.endpoint;
        endpoint.handle_segment(now, segment, ecn == Ecn::Marked, controller.as_mut());
        if endpoint.is_open() {
            self.writer.handle_open(index);
        }
        self.writer.handle_acked(index, endpoint.acked());
        if let Some(piece) = piece {
            self.reader.handle_piece(index, segment.seq - 1, segment.len, piece);
        }
        self.reader.handle_arrived(index, (endpoint.received() + endpoint.readable()).0);
        let before = self.received;
        while let Some((socket, bytes)) = self.reader.read() {
            self.each[socket].subflow.endpoint.read(bytes);
            self.received += bytes;
        }
        // The end of the data behind what was read.
        self.each[index].subflow.endpoint.read(Bytes::ZERO);
        if let Some(gaps) = &mut self.gaps
            && self.received > before
        {
            gaps.handle_received(now);
        }
        if self.received > before {
            self.application.handle_received(now, self.received);
        }
        if self.connections().all(|connection| connection.endpoint.is_finished()) {
            self.application.handle_end(now, self.received);
        }
        self.go_on(now, out);
    }

    /// Its deadline has come.
    pub(crate) fn handle_deadline(&mut self, now: Time, out: &mut Out<Packet>) {
        let opens = self.opens.take_if(|at| *at <= now).is_some();
        for Socket { controller, subflow } in &mut self.each {
            if opens {
                subflow.endpoint.open(now, controller.as_mut());
            }
            if controller.poll_deadline().is_some_and(|at| at <= now) {
                controller.handle_deadline(now);
            }
            if subflow.endpoint.poll_deadline().is_some_and(|at| at <= now) {
                subflow.endpoint.handle_deadline(now, controller.as_mut());
            }
        }
        self.go_on(now, out);
    }

    /// The next deadline.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let due = |socket: &Socket| {
            [socket.subflow.endpoint.poll_deadline(), socket.controller.poll_deadline()]
                .into_iter()
                .flatten()
                .min()
        };
        let own = self.opens.into_iter().chain(self.application.poll_deadline());
        let earliest = self.each.iter().filter_map(due).chain(own).min();
        earliest.filter(|at| *at < NEVER)
    }

    /// Writes and sends as much as possible.
    fn go_on(&mut self, now: Time, out: &mut Out<Packet>) {
        if self.opens.is_none() && !self.is_closed {
            self.write(now);
        }
        let writer = &self.writer;
        for (index, Socket { controller, subflow }) in self.each.iter_mut().enumerate() {
            while subflow.endpoint.poll_event().is_some() {}
            while controller.poll_changed().is_some() {}
            while let Some(transmit) = subflow.endpoint.poll_send(now, controller.as_mut()) {
                let Segment { seq, len, .. } = transmit.segment;
                let packet = if len > 0 {
                    let piece = writer.piece(index, seq - 1, len);
                    in_stream(subflow.connection, piece.expect("it was written"), &transmit)
                } else {
                    connection::packet(subflow.connection, &transmit)
                };
                out.send(subflow.route, packet);
            }
        }
    }

    /// Lets the application write, and fills the send buffers.
    fn write(&mut self, now: Time) {
        let is_over = self.stop.is_some_and(|stop| stop <= now);
        if is_over {
            self.application.stop();
        } else {
            self.backlog += self.application.write(now, self.received, self.writer.room());
        }
        let each = &mut self.each;
        self.backlog -= self.writer.fill(self.backlog, |socket, bytes| {
            each[socket].subflow.endpoint.write_record(bytes);
        });
        if (is_over || self.application.is_finished()) && self.backlog == Bytes::ZERO {
            self.is_closed = true;
            self.each.iter_mut().for_each(|socket| socket.subflow.endpoint.close());
        }
    }
}

/// The packet of a segment with a piece of a record.
fn in_stream(connection: u32, piece: Piece, transmit: &Transmit) -> Packet {
    let bytes = u16::try_from(transmit.bytes.0).expect("the file's reader bounds the MSS");
    let ecn = Ecn::of(transmit.is_ecn_capable, transmit.is_scalable);
    Packet::Record { connection, piece, bytes, ecn, header: Header::of(&transmit.segment) }
}
