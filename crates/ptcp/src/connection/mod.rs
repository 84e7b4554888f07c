//! The striped connection manager (the paper's SM): paths, streams, flow control, and which data
//! goes where.

mod bounds;
mod error;
mod flow;
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

pub use error::{DatagramError, PeerError};
pub use receive::Arrived;

use crate::path::{Binding, Control, Opening, Path};
use crate::stream::recv::RecvStream;
use crate::stream::send::SendStream;
use crate::subflow::{Outcome, Stats};
use crate::{Config, Tokens};

/// A packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Over which path.
    pub path: u16,
    /// What it says.
    pub packet: Packet,
    /// Whether it may be marked instead of dropped.
    pub is_ecn_capable: bool,
}

/// Something that the application, or whoever drives the connection, may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection carries data (the paper's `established`, once for all paths).
    Opened,
    /// A path carries data (the paper's `established`).
    PathOpened {
        /// Which.
        path: u16,
    },
    /// Acknowledgements of what a path carries have stopped coming; its data goes elsewhere, and it
    /// is probed.
    PathSilent {
        /// Which.
        path: u16,
    },
    /// They come again.
    PathBack {
        /// Which.
        path: u16,
    },
    /// The peer does not use a path any more (the paper's `closed`).
    PathRetired {
        /// Which.
        path: u16,
    },
    /// More of a stream has arrived in order, or its end.
    Readable {
        /// Which.
        stream: u32,
        /// Everything before it can be read.
        end: u64,
        /// Whether that is all of the stream.
        is_whole: bool,
    },
    /// A stream that we finished has arrived completely.
    Delivered {
        /// Which.
        stream: u32,
    },
    /// The peer gave a stream up.
    Reset {
        /// Which.
        stream: u32,
        /// The peer's reason.
        code: u32,
    },
    /// The peer does not want more of a stream of ours.
    Stopped {
        /// Which.
        stream: u32,
        /// The peer's reason.
        code: u32,
    },
    /// A datagram, the one that waited longest, was dropped: no open path carries packets of its
    /// size any more.
    DatagramDropped {
        /// Its size.
        len: u16,
    },
    /// The peer closed the connection.
    Closed {
        /// Its reason.
        code: u32,
    },
}

/// The label under which streams are numbered: streams with even numbers are opened by the client,
/// odd ones by the server.
const SERVER_STREAMS: u32 = 1;

/// One end of a striped connection.
///
/// It has no clock, no sockets and no bytes: see the [crate's description](crate) for how it is
/// driven.
#[derive(Clone, Debug)]
pub struct Connection {
    config: Config,
    is_client: bool,
    state: ConnectionState,
    controller: Box<dyn Controller>,
    scheduler: Box<dyn PacketScheduler>,
    bottlenecks: Bottlenecks,
    tokens: Box<dyn Tokens>,
    paths: Vec<Path>,
    retired: bounds::RetiredPaths,
    next_path: u16,
    /// Parts of the handshake to be sent, and over which path.
    flights: VecDeque<(u16, Flight)>,
    /// Which path brought the handshake's end, to be repeated until the peer is heard to have it.
    finish: Option<Opening>,
    /// Challenges that overtook the handshake's end, and their paths.
    early_challenges: Vec<(u16, Packet)>,
    sending: BTreeMap<u32, SendStream>,
    receiving: BTreeMap<u32, RecvStream>,
    /// Streams given up, as long as the peer is not known to have been told.
    resetting: BTreeSet<u32>,
    /// Pieces that arrived ahead of others, in all streams.
    gaps: usize,
    next_stream: u32,
    /// The highest stream of the peer's so far, plus two.
    peer_streams: u32,
    /// The stream that sent new data last.
    last_stream: u32,
    /// What has to arrive and is not under way.
    controls: VecDeque<Control>,
    /// The path that was named last for acknowledgements.
    last_ack_path: Option<u16>,
    /// Acknowledgements that go over further paths too.
    ack_copies: Vec<(u16, Ack)>,
    /// Sizes of datagrams to be sent.
    datagrams: VecDeque<u16>,
    flow: flow::Flow,
    /// Something other than data may have to be sent.
    has_pending: bool,
    /// When pacing lets data out.
    pacing_at: Option<Time>,
    /// When to ask for the window, if nothing else is under way.
    window_probe_at: Option<Time>,
    events: VecDeque<Event>,
    outcomes: Vec<Outcome<Binding>>,
    views: Vec<SubflowView>,
    /// Until the next packet number that is skipped.
    skip_in: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    Opening,
    Open,
    /// To be told to the peer, once for each packet that still comes.
    Closing {
        code: u32,
        is_told: bool,
    },
    Closed,
}

impl Connection {
    /// The end that opens the connection. `tokens` is where unguessable tokens come from.
    #[must_use]
    pub fn client(
        config: Config,
        controller: Box<dyn Controller>,
        scheduler: Box<dyn PacketScheduler>,
        tokens: Box<dyn Tokens>,
    ) -> Connection {
        Connection::new(config, controller, scheduler, tokens, true)
    }

    /// The end that waits for it.
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
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
            resetting: BTreeSet::new(),
            gaps: 0,
            next_stream: if is_client { 0 } else { SERVER_STREAMS },
            peer_streams: if is_client { SERVER_STREAMS } else { 0 },
            last_stream: 0,
            controls: VecDeque::new(),
            last_ack_path: None,
            ack_copies: Vec::new(),
            datagrams: VecDeque::new(),
            has_pending: true,
            pacing_at: None,
            window_probe_at: None,
            events: VecDeque::new(),
            outcomes: Vec::new(),
            views: Vec::new(),
            skip_in: FIRST_SKIP,
        }
    }

    /// A client opens one more path (the paper's `open`). The first one carries the handshake; if
    /// it does not answer, the others do.
    ///
    /// # Panics
    /// On a server, and after 65,534 paths: their numbers are never used again.
    pub fn open_path(&mut self, now: Time) -> u16 {
        assert!(self.is_client, "the client opens paths");
        let id = self.next_path;
        self.next_path =
            id.checked_add(1).filter(|next| *next < u16::MAX).expect("fewer paths than numbers");
        let (token, at) = match self.state {
            ConnectionState::Open => (Some(self.tokens.next()), Some(now)),
            _ => (None, None),
        };
        self.paths.push(Path::new(id, &self.config, Opening::new(token, at), true));
        self.open_over_some_path(now);
        self.has_pending = true;
        id
    }

    /// A path is gone: what it carried goes elsewhere, and the peer is told.
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
        self.sending.insert(id, SendStream::new(self.config.receive_buffer.0));
        self.receiving.insert(id, RecvStream::new(self.config.receive_buffer.0));
        id
    }

    /// The application writes so much more into a stream. Nothing happens if the stream is
    /// finished, or not there.
    #[inline]
    pub fn write(&mut self, stream: u32, bytes: Bytes) {
        if let Some(sending) = self.sending.get_mut(&stream) {
            sending.write(bytes.0);
        }
    }

    /// The application writes no more into a stream.
    pub fn finish(&mut self, stream: u32) {
        if let Some(sending) = self.sending.get_mut(&stream) {
            sending.finish();
        }
    }

    /// Gives a stream of ours up: what is not sent never will be.
    pub fn reset(&mut self, stream: u32, code: u32) {
        if let Some(sending) = self.sending.remove(&stream) {
            self.resetting.insert(stream);
            self.controls.push_back(Control::Reset { stream, code, end: sending.next() });
            self.has_pending = true;
        }
    }

    /// Does not want more of a stream of the peer's.
    pub fn stop(&mut self, stream: u32, code: u32) {
        if self.receiving.contains_key(&stream) {
            self.controls.push_back(Control::Stop { stream, code });
            self.has_pending = true;
        }
    }

    /// Sends a datagram of this size: once, in no order, and only as fast as congestion control
    /// lets it. They leave in the order in which they were handed in, each as a
    /// [`wire::ptcp::Body::Datagram`] or, if the paths changed meanwhile, as
    /// [`Event::DatagramDropped`].
    ///
    /// # Errors
    /// If it does not fit [`Connection::max_datagram`], or too many wait.
    pub fn send_datagram(&mut self, bytes: Bytes) -> Result<(), DatagramError> {
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

    /// Whether the application reads a stream as data comes; it does unless told otherwise.
    pub fn set_reading(&mut self, now: Time, stream: u32, is_reading: bool) {
        if let Some(receiving) = self.receiving.get_mut(&stream) {
            let before = receiving.read();
            receiving.set_reading(is_reading);
            let read = receiving.read() - before;
            self.note_read(now, stream, read);
        }
    }

    /// The application reads so much of a stream. Returns how much was there.
    pub fn read(&mut self, now: Time, stream: u32, bytes: Bytes) -> Bytes {
        let Some(receiving) = self.receiving.get_mut(&stream) else { return Bytes::ZERO };
        let read = receiving.handle_read(bytes.0);
        self.note_read(now, stream, read);
        Bytes(read)
    }

    /// Ends the connection. The peer is told; whatever has not arrived is lost.
    pub fn close(&mut self, code: u32) {
        if matches!(self.state, ConnectionState::Opening | ConnectionState::Open) {
            self.state = ConnectionState::Closing { code, is_told: false };
            self.has_pending = true;
        }
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the connection carries data.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == ConnectionState::Closed
    }

    /// What has arrived of a stream in order; zero once all of it has been read.
    #[must_use]
    pub fn received(&self, stream: u32) -> Bytes {
        Bytes(self.receiving.get(&stream).map_or(0, RecvStream::next))
    }

    /// What has been written into a stream and is not known to have arrived. Streams that are done
    /// have none.
    #[must_use]
    pub fn undelivered(&self, stream: u32) -> Bytes {
        Bytes(
            self.sending.get(&stream).map_or(0, |sending| sending.written() - sending.delivered()),
        )
    }

    /// What has been written into a stream and never been sent.
    #[must_use]
    #[inline]
    pub fn unsent(&self, stream: u32) -> Bytes {
        Bytes(self.sending.get(&stream).map_or(0, SendStream::unsent))
    }

    /// The windows of all paths together.
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

    /// How long after its last packet a path's acknowledgement is overdue; `None` unless it is
    /// open.
    #[must_use]
    pub fn probe_timeout(&self, path: u16) -> Option<Span> {
        Some(self.path(path)?.subflow()?.timeout())
    }

    /// What happened on a path; `None` unless it is open.
    #[must_use]
    pub fn stats(&self, path: u16) -> Option<&Stats> {
        Some(self.path(path)?.subflow()?.stats())
    }

    /// The number of the bottleneck that limits a path, the same for all paths that share it: the
    /// lowest of their numbers. `None` if none is known, and with a single path.
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

    /// The receive buffer as it is.
    #[must_use]
    pub fn receive_buffer(&self) -> Bytes {
        self.flow.buffer()
    }

    /// The number that packets of a path are expected to have next, for [`Packet::parse`].
    #[must_use]
    pub fn expected_number(&self, path: u16) -> u64 {
        self.path(path).map_or(0, |path| path.acks.expected())
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

/// Packet numbers between one that is skipped and the next, at least; a random number of up to as
/// many more is added.
const SKIP_EVERY: u32 = 512;
const FIRST_SKIP: u32 = 64;

fn subflow_id(path: u16) -> SubflowId {
    SubflowId(u32::from(path))
}
