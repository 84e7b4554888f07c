//! One end of a stream that an application stripes over several sockets: TCP connections with
//! buffers of equal size.

use netsim::Out;
use policy::cc::Controller;
use tcp::Transmit;
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::Segment;

use crate::host::stripe::{Reader, Writer};
use crate::host::{NEVER, Subflow, connection};
use crate::packet::{Ecn, Header, Packet};

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

/// The end of the stream.
#[derive(Clone, Debug)]
pub enum Striping {
    /// Writes the stream.
    Writes(Writer),
    /// Reads the stream in order.
    Reads(Reader),
}

/// One end of a stream that is striped over sockets.
#[derive(Clone, Debug)]
pub struct Sockets {
    each: Vec<Socket>,
    striping: Striping,
    /// The size of a record: a full packet's payload.
    record: Bytes,
    /// The time to open the connections; `None` once it has, and at the passive end.
    opens: Option<Time>,
    /// The time at which it stops writing.
    stop: Option<Time>,
    is_closed: bool,
}

impl Sockets {
    /// An end that writes or reads records of this size, each of which fills a packet. It opens the
    /// connections at `opens` (`None`: it is the passive end), and writes until `stop`.
    ///
    /// # Panics
    /// If there is no socket.
    #[must_use]
    pub fn new(
        mut sockets: Vec<Socket>,
        striping: Striping,
        record: Bytes,
        opens: Option<Time>,
        stop: Option<Time>,
    ) -> Sockets {
        assert!(!sockets.is_empty(), "a stream needs a socket");
        for socket in &mut sockets {
            // Data is read in the order of the stream.
            socket.subflow.endpoint.set_reading(false);
        }
        Sockets { each: sockets, striping, record, opens, stop, is_closed: false }
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

    /// The largest smoothed RTT of its connections.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Span> {
        self.connections().filter_map(|connection| connection.endpoint.smoothed_rtt()).max()
    }

    /// Whether it has stopped writing and all that it wrote is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closed && self.connections().all(|connection| connection.endpoint.is_closed())
    }

    /// Payload that the application has read, in the order of the stream.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.connections().map(|connection| connection.endpoint.received()).sum()
    }

    /// A segment has arrived on one of the connections, with the record of this number if any.
    pub(crate) fn handle_segment(
        &mut self,
        now: Time,
        index: usize,
        segment: &Segment,
        record: Option<u32>,
        ecn: Ecn,
        out: &mut Out<Packet>,
    ) {
        let Socket { controller, subflow } = &mut self.each[index];
        let endpoint = &mut subflow.endpoint;
        endpoint.handle_segment(now, segment, ecn == Ecn::Marked, controller.as_mut());
        match &mut self.striping {
            Striping::Writes(writer) => {
                if endpoint.is_open() {
                    writer.handle_open(index);
                }
                writer.handle_acked(index, endpoint.acked().0 / self.record.0);
            }
            Striping::Reads(reader) => {
                if let Some(number) = record {
                    reader.handle_record(index, record_index(segment.seq, self.record), number);
                }
                reader.handle_arrived(
                    index,
                    (endpoint.received() + endpoint.readable()).0 / self.record.0,
                );
                while let Some(socket) = reader.read() {
                    self.each[socket].subflow.endpoint.read(self.record);
                }
            }
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
        let earliest = self.each.iter().filter_map(due).chain(self.opens).min();
        earliest.filter(|at| *at < NEVER)
    }

    /// Writes and sends as much as possible.
    fn go_on(&mut self, now: Time, out: &mut Out<Packet>) {
        if let Striping::Writes(writer) = &mut self.striping
            && !self.is_closed
        {
            if self.stop.is_some_and(|stop| stop <= now) {
                self.is_closed = true;
                self.each.iter_mut().for_each(|socket| socket.subflow.endpoint.close());
            } else {
                let (each, record) = (&mut self.each, self.record);
                writer.fill(|socket, records| {
                    each[socket].subflow.endpoint.write(Bytes(records * record.0));
                });
            }
        }
        for (index, Socket { controller, subflow }) in self.each.iter_mut().enumerate() {
            while subflow.endpoint.poll_event().is_some() {}
            while controller.poll_changed().is_some() {}
            while let Some(transmit) = subflow.endpoint.poll_send(now, controller.as_mut()) {
                let packet = match &self.striping {
                    Striping::Writes(writer) if transmit.segment.len > 0 => {
                        let number =
                            writer.number(index, record_index(transmit.segment.seq, self.record));
                        numbered(subflow.connection, number.expect("it was written"), &transmit)
                    }
                    _ => connection::packet(subflow.connection, &transmit),
                };
                out.send(subflow.route, packet);
            }
        }
    }
}

/// The index in its socket of the record that begins at this sequence number. Buffers are multiples
/// of records, so each packet is a whole record.
fn record_index(seq: u64, record: Bytes) -> u64 {
    (seq - 1) / record.0
}

/// The packet of a segment with a record.
fn numbered(connection: u32, number: u32, transmit: &Transmit) -> Packet {
    let bytes = u16::try_from(transmit.bytes.0).expect("the file's reader bounds the MSS");
    let ecn = if transmit.is_ecn_capable { Ecn::Capable } else { Ecn::Incapable };
    Packet::Record { connection, number, bytes, ecn, header: Header::of(&transmit.segment) }
}
