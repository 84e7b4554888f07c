//! The striped connection manager (the paper's SM): paths, streams, flow control, and the
//! assignment of data to paths.

mod bounds;
mod closing;
mod error;
mod flow;
#[cfg(test)]
mod idle_streams;
mod opening;
mod receive;
mod send;
mod timer;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use policy::bottleneck::{Bottlenecks, Summary};
use policy::cc::Controller;
use policy::sched::packet::{PacketScheduler, SubflowView};
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::{Ack, Flight, Packet};

pub use error::{DatagramError, PeerError, TimeoutError};
pub use receive::Arrived;

use crate::path::{Binding, Control, Opening, Path};
use crate::stream::outgoing::SendStreams;
use crate::stream::recv::RecvStream;
use crate::stream::send::SendStream;
use crate::subflow::{Outcome, Stats};
use crate::{Config, Tokens};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The path to send it over.
    pub path: u16,
    /// The packet, without its payload.
    pub packet: Packet,
    /// Whether it is ECN-capable.
    pub is_ecn_capable: bool,
}

/// An event for the application or the driver of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection carries data (the paper's `established`, once for all paths).
    Opened,
    /// A path carries data (the paper's `established`).
    PathOpened {
        /// The path.
        path: u16,
    },
    /// Acknowledgements of a path's packets are overdue; its data goes elsewhere, and it is probed.
    PathSilent {
        /// The path.
        path: u16,
    },
    /// Acknowledgements of a silent path's packets arrive again.
    PathBack {
        /// The path.
        path: u16,
    },
    /// The peer retired a path (the paper's `closed`).
    PathRetired {
        /// The path.
        path: u16,
    },
    /// More of a stream has arrived in order, or its end.
    Readable {
        /// The stream.
        stream: u32,
        /// The offset up to which it can be read.
        end: u64,
        /// Whether that is the end of the stream.
        is_whole: bool,
    },
    /// The peer has acknowledged all of a finished stream.
    Delivered {
        /// The stream.
        stream: u32,
    },
    /// The peer reset a stream.
    Reset {
        /// The stream.
        stream: u32,
        /// The peer's application code.
        code: u32,
    },
    /// The peer stopped a local stream.
    Stopped {
        /// The stream.
        stream: u32,
        /// The peer's application code.
        code: u32,
    },
    /// The datagram that had waited longest was dropped: no open path carries its size any more.
    DatagramDropped {
        /// Its size in bytes.
        len: u16,
    },
    /// The peer closed the connection.
    Closed {
        /// The application's code, or [`PeerError::code`], or [`TimeoutError::IDLE_CODE`].
        code: u32,
    },
    /// Nothing was heard of the peer for too long, and the connection ends.
    TimedOut(TimeoutError),
}

/// The lowest number of the server's streams: the client's have even numbers, the server's odd
/// ones.
const SERVER_STREAMS: u32 = 1;

/// One end of a striped connection.
///
/// It has no clock, no sockets and no bytes. The [crate's description](crate) shows how to drive
/// it.
#[derive(Clone, Debug)]
pub struct Connection {
    config: Config,
    is_client: bool,
    state: ConnectionState,
    /// When the first packet was sent or arrived.
    began_at: Option<Time>,
    idle: closing::Idle,
    controller: Box<dyn Controller>,
    scheduler: Box<dyn PacketScheduler>,
    bottlenecks: Bottlenecks,
    tokens: Box<dyn Tokens>,
    paths: Vec<Path>,
    retired: bounds::RetiredPaths,
    next_path: u16,
    /// Handshake flights to be sent, with their paths.
    flights: VecDeque<(u16, Flight)>,
    /// The timer of a client's Finish flight, which is repeated until the peer confirms it.
    finish: Option<Opening>,
    /// Challenges that overtook the end of the handshake, with their paths.
    early_challenges: Vec<(u16, Packet)>,
    sending: SendStreams,
    receiving: BTreeMap<u32, RecvStream>,
    /// Streams whose reset the peer has not acknowledged.
    resetting: BTreeSet<u32>,
    /// The number of the peer's open streams: those with an open half or an unacknowledged reset.
    peer_open: u32,
    /// Gaps in all receiving streams together.
    gaps: usize,
    next_stream: u32,
    /// The next stream number of the peer.
    peer_streams: u32,
    /// The stream that sent new data last.
    last_stream: u32,
    /// Control messages that wait to be sent.
    controls: VecDeque<Control>,
    /// The path named last for acknowledgements.
    last_ack_path: Option<u16>,
    /// Copies of acknowledgements for further paths.
    ack_copies: Vec<(u16, Ack)>,
    /// Sizes of the datagrams to be sent.
    datagrams: VecDeque<u16>,
    flow: flow::Flow,
    /// Whether the application wants an acknowledgement.
    is_ping_due: bool,
    /// Whether anything other than data may wait to be sent.
    has_pending: bool,
    /// When pacing allows data on some path.
    pacing_at: Option<Time>,
    /// When to ask for the window while nothing is in flight.
    window_probe_at: Option<Time>,
    events: VecDeque<Event>,
    outcomes: Vec<Outcome<Binding>>,
    views: Vec<SubflowView>,
    /// Ack-eliciting packets until the next skipped number.
    skip_in: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum ConnectionState {
    Opening,
    Open,
    /// This end closed the connection.
    Closing(closing::Closing),
    /// The peer knows of the end.
    Draining(closing::Draining),
    Closed,
}

impl Connection {
    /// The end that opens the connection. `tokens` is the source of unpredictable tokens.
    #[must_use]
    pub fn client(
        config: Config,
        controller: Box<dyn Controller>,
        scheduler: Box<dyn PacketScheduler>,
        tokens: Box<dyn Tokens>,
    ) -> Connection {
        Connection::new(config, controller, scheduler, tokens, true)
    }

    /// The end that waits for a connection.
    #[must_use]
    pub fn server(
        config: Config,
        controller: Box<dyn Controller>,
        scheduler: Box<dyn PacketScheduler>,
        tokens: Box<dyn Tokens>,
    ) -> Connection {
        Connection::new(config, controller, scheduler, tokens, false)
    }

    fn new(
        config: Config,
        controller: Box<dyn Controller>,
        scheduler: Box<dyn PacketScheduler>,
        tokens: Box<dyn Tokens>,
        is_client: bool,
    ) -> Connection {
        let bottlenecks = if config.test_bottlenecks {
            Bottlenecks::with_tests()
        } else {
            Bottlenecks::default()
        };
        Connection {
            flow: flow::Flow::new(&config),
            config,
            is_client,
            state: ConnectionState::Opening,
            began_at: None,
            idle: closing::Idle::default(),
            controller,
            scheduler,
            bottlenecks,
            tokens,
            paths: Vec::new(),
            retired: bounds::RetiredPaths::default(),
            next_path: 0,
            flights: VecDeque::new(),
            finish: None,
            early_challenges: Vec::new(),
            sending: SendStreams::default(),
            receiving: BTreeMap::new(),
            resetting: BTreeSet::new(),
            peer_open: 0,
            gaps: 0,
            next_stream: if is_client { 0 } else { SERVER_STREAMS },
            peer_streams: if is_client { SERVER_STREAMS } else { 0 },
            last_stream: 0,
            controls: VecDeque::new(),
            last_ack_path: None,
            ack_copies: Vec::new(),
            datagrams: VecDeque::new(),
            is_ping_due: false,
            has_pending: true,
            pacing_at: None,
            window_probe_at: None,
            events: VecDeque::new(),
            outcomes: Vec::new(),
            views: Vec::new(),
            skip_in: FIRST_SKIP,
        }
    }

    /// A client opens a further path (the paper's `open`) and returns its number. The first path
    /// carries the handshake; without an answer, the others do.
    ///
    /// # Panics
    /// On a server, and after 65,534 paths, because path numbers are not reused.
    pub fn open_path(&mut self, now: Time) -> u16 {
        assert!(self.is_client, "the client opens paths");
        let id = self.next_path;
        self.next_path =
            id.checked_add(1).filter(|next| *next < u16::MAX).expect("fewer paths than numbers");
        if !self.is_alive() {
            return id;
        }
        self.began_at.get_or_insert(now);
        let (token, at) = match self.state {
            ConnectionState::Open => (Some(self.tokens.next()), Some(now)),
            _ => (None, None),
        };
        self.paths.push(Path::new(id, &self.config, Opening::new(token, at), true));
        self.open_over_some_path(now);
        self.has_pending = true;
        id
    }

    /// Retires a path: its data goes elsewhere, and the peer is told. Does nothing for an unknown
    /// path.
    pub fn retire_path(&mut self, now: Time, id: u16) {
        if self.drop_path(now, id) {
            self.open_over_some_path(now);
            self.controls.push_back(Control::Retire { path: id });
            self.has_pending = true;
        }
    }

    /// Opens a stream, and returns its number.
    pub fn open_stream(&mut self) -> u32 {
        let id = self.next_stream;
        self.next_stream += 2;
        if self.is_alive() {
            self.sending.insert(id, SendStream::new(self.config.receive_buffer.0));
            self.receiving.insert(id, RecvStream::new(self.config.receive_buffer.0));
        }
        id
    }

    /// The application writes `bytes` more into a stream. Does nothing if the stream is finished or
    /// unknown.
    #[inline]
    pub fn write(&mut self, stream: u32, bytes: Bytes) {
        self.sending.update(stream, |sending| sending.write(bytes.0));
    }

    /// The application ends a stream.
    pub fn finish(&mut self, stream: u32) {
        self.sending.update(stream, SendStream::finish);
    }

    /// Resets the local half of a stream: unsent data is discarded, and `code` is sent to the peer.
    pub fn reset(&mut self, stream: u32, code: u32) {
        if let Some(sending) = self.remove_sending(stream) {
            self.resetting.insert(stream);
            self.controls.push_back(Control::Reset { stream, code, end: sending.next() });
            self.has_pending = true;
        }
    }

    /// Asks the peer to reset its half of a stream.
    pub fn stop(&mut self, stream: u32, code: u32) {
        if self.receiving.contains_key(&stream) {
            self.controls.push_back(Control::Stop { stream, code });
            self.has_pending = true;
        }
    }

    /// Queues an unreliable datagram of this size, subject to congestion control. Datagrams leave
    /// in the order of these calls, each as a [`wire::ptcp::Body::Datagram`], or end in
    /// [`Event::DatagramDropped`] if no path carries them any more.
    ///
    /// # Errors
    /// If it is larger than [`Connection::max_datagram`], too many wait, or the connection has
    /// ended.
    pub fn send_datagram(&mut self, bytes: Bytes) -> Result<(), DatagramError> {
        if !self.is_alive() {
            return Err(DatagramError::Ended);
        }
        let too_large = DatagramError::TooLarge { size: bytes, most: self.max_datagram() };
        let len = u16::try_from(bytes.0)
            .ok()
            .filter(|_| bytes <= self.max_datagram())
            .ok_or(too_large)?;
        let waiting = u32::try_from(self.datagrams.len()).unwrap_or(u32::MAX);
        if waiting >= self.config.max_datagrams {
            return Err(DatagramError::Full { waiting });
        }
        self.datagrams.push_back(len);
        self.has_pending = true;
        Ok(())
    }

    /// The largest datagram that every open path carries.
    #[must_use]
    pub fn max_datagram(&self) -> Bytes {
        let open = self.paths.iter().filter(|path| path.subflow().is_some());
        let size = open.map(|path| path.datagram).min().unwrap_or(self.config.datagram);
        Packet::room_for_data(size)
    }

    /// Sets whether the application reads a stream as data arrives, as it does by default.
    pub fn set_reading(&mut self, now: Time, stream: u32, is_reading: bool) {
        if let Some(receiving) = self.receiving.get_mut(&stream) {
            let before = receiving.read();
            receiving.set_reading(is_reading);
            let read = receiving.read() - before;
            self.note_read(now, stream, read);
        }
    }

    /// The application reads up to `bytes` of a stream. Returns how many were available.
    pub fn read(&mut self, now: Time, stream: u32, bytes: Bytes) -> Bytes {
        let Some(receiving) = self.receiving.get_mut(&stream) else { return Bytes::ZERO };
        let read = receiving.handle_read(bytes.0);
        self.note_read(now, stream, read);
        Bytes(read)
    }

    /// Asks the peer for an acknowledgement, which keeps an idle connection alive.
    pub fn ping(&mut self) {
        self.is_ping_due = true;
        self.has_pending = true;
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the connection is open for data.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }

    /// Whether the connection has ended on both sides, or nothing can be said any more: nothing is
    /// sent or expected, and it can be dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == ConnectionState::Closed
    }

    /// Bytes of a stream that arrived in order; zero once all of it has been read.
    #[must_use]
    pub fn received(&self, stream: u32) -> Bytes {
        Bytes(self.receiving.get(&stream).map_or(0, RecvStream::next))
    }

    /// Bytes written into a stream and not acknowledged; zero for a completed stream.
    #[must_use]
    pub fn undelivered(&self, stream: u32) -> Bytes {
        Bytes(self.sending.get(stream).map_or(0, |sending| sending.written() - sending.delivered()))
    }

    /// Bytes written into a stream and never sent.
    #[must_use]
    #[inline]
    pub fn unsent(&self, stream: u32) -> Bytes {
        Bytes(self.sending.get(stream).map_or(0, SendStream::unsent))
    }

    /// The sum of the congestion windows of all open paths.
    #[must_use]
    pub fn window(&self) -> Bytes {
        self.open_ids().map(|id| self.controller.allowance(id).window).sum()
    }

    /// The congestion window of a path; zero unless it is open.
    #[must_use]
    pub fn path_window(&self, path: u16) -> Bytes {
        self.controller.allowance(subflow_id(path)).window
    }

    /// The smoothed round-trip time of a path; `None` unless it is open.
    #[must_use]
    pub fn smoothed_rtt(&self, path: u16) -> Option<Span> {
        self.path(path)?.subflow()?.rtt().smoothed()
    }

    /// The probe timeout of a path; `None` unless it is open.
    #[must_use]
    pub fn probe_timeout(&self, path: u16) -> Option<Span> {
        Some(self.path(path)?.subflow()?.timeout())
    }

    /// The counters of a path; `None` unless it is open.
    #[must_use]
    pub fn stats(&self, path: u16) -> Option<&Stats> {
        Some(self.path(path)?.subflow()?.stats())
    }

    /// The bottleneck of a path, named by the lowest path number that shares it. `None` if none is
    /// known, and with a single path.
    #[must_use]
    pub fn bottleneck(&self, path: u16) -> Option<u16> {
        u16::try_from(self.bottlenecks.bottleneck(subflow_id(path))?.0).ok()
    }

    /// The statistics of a path's one-way delays (RFC 8382); `None` with a single path.
    #[must_use]
    pub fn delays(&self, path: u16) -> Option<Summary> {
        self.bottlenecks.summary(subflow_id(path))
    }

    /// The numbers of all paths that are not retired.
    pub fn paths(&self) -> impl Iterator<Item = u16> + '_ {
        self.paths.iter().map(|path| path.id)
    }

    /// The present receive buffer.
    #[must_use]
    pub fn receive_buffer(&self) -> Bytes {
        self.flow.buffer()
    }

    /// The packet number expected next on a path, for [`Packet::parse`].
    #[must_use]
    pub fn expected_number(&self, path: u16) -> u64 {
        let open = self.path(path).map(|path| path.acks.expected());
        open.or_else(|| self.expected_while_closing(path)).unwrap_or(0)
    }

    /// Whether the connection is opening or open.
    fn is_alive(&self) -> bool {
        matches!(self.state, ConnectionState::Opening | ConnectionState::Open)
    }

    fn open_ids(&self) -> impl Iterator<Item = SubflowId> + '_ {
        self.paths.iter().filter_map(|path| Some(path.subflow()?.id()))
    }

    #[inline]
    fn path(&self, id: u16) -> Option<&Path> {
        self.paths.iter().find(|path| path.id == id)
    }

    #[inline]
    fn path_mut(&mut self, id: u16) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.id == id)
    }
}

/// The least distance of two skipped packet numbers; a random number below it is added.
const SKIP_EVERY: u32 = 512;
const FIRST_SKIP: u32 = 64;

fn subflow_id(path: u16) -> SubflowId {
    SubflowId(u32::from(path))
}
