//! The striped connection manager (the paper's SM): paths, streams, flow control, and the
//! assignment of data to paths.

mod bounds;
mod closing;
mod error;
mod flow;
#[cfg(test)]
mod idle_streams;
mod metrics;
mod opening;
mod outbox;
mod paths;
mod peer;
mod receive;
mod repeating;
mod send;
mod state;
mod streams;
mod striping;
mod timer;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use policy::cc::Controller;
use policy::sched::packet::PacketScheduler;
use units::{Bytes, Rate, SubflowId, Time};
use wire::ptcp::{ConnectionParameters, Packet};

pub use error::{DatagramError, PeerError, TimeoutError};
pub use metrics::{LostPacket, PathMetrics};
pub use receive::Arrived;

use closing::{Closing, Draining, Idle};
use flow::Flow;
use opening::Handshake;
use outbox::Outbox;
use paths::Paths;
use streams::Streams;
use striping::Striping;

use crate::path::{Class, Control, PathBytes, RateLimit};
use crate::stream::send::SendStream;
use crate::{Config, Tokens};

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The path to send it over.
    pub path: SubflowId,
    /// The packet, without its payload.
    pub packet: Packet,
    /// Whether it is ECN-capable.
    pub is_ecn_capable: bool,
    /// Whether it is ECN-capable and of a scalable congestion control: ECT(1) (RFC 9331).
    pub is_scalable: bool,
}

/// An event for the application or the driver of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection carries data (the paper's `established`, once for all paths).
    Opened,
    /// A path carries data (the paper's `established`).
    PathOpened {
        /// The path.
        path: SubflowId,
    },
    /// Acknowledgements of a path's packets are overdue; its data goes elsewhere, and it is probed.
    PathSilent {
        /// The path.
        path: SubflowId,
    },
    /// Acknowledgements of a silent path's packets arrive again.
    PathBack {
        /// The path.
        path: SubflowId,
    },
    /// Full packets of the least size ([`wire::ptcp::MIN_FULL`]) are lost on a path, and small ones
    /// arrive: its line is too narrow for this protocol. The caller retires it, or gives up.
    PathNarrow {
        /// The path.
        path: SubflowId,
    },
    /// The peer retired a path (the paper's `closed`).
    PathRetired {
        /// The path.
        path: SubflowId,
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

/// The path of a handshake that is made outside.
const FIRST_PATH: SubflowId = SubflowId(0);

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
    idle: Idle,
    handshake: Handshake,
    paths: Paths,
    streams: Streams,
    striping: Striping,
    outbox: Outbox,
    flow: Flow,
    /// What the peer's configuration allows.
    peer: ConnectionParameters,
    events: VecDeque<Event>,
    /// Streams of which more was delivered, if the driver holds their bytes.
    progress: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
enum ConnectionState {
    Opening,
    Open,
    /// This end closed the connection.
    Closing(Closing),
    /// The peer knows of the end.
    Draining(Draining),
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
        Connection {
            is_client,
            state: ConnectionState::Opening,
            began_at: None,
            idle: Idle::default(),
            handshake: Handshake::default(),
            paths: Paths::new(&config, controller, tokens),
            streams: Streams::new(is_client, !config.holds_bytes),
            progress: Vec::new(),
            striping: Striping::new(scheduler),
            outbox: Outbox::new(),
            flow: Flow::new(&config),
            peer: config.parameters(),
            events: VecDeque::new(),
            config,
        }
    }

    /// The handshake was made outside, over path 0 and with its addresses validated, and the peer
    /// told this of its configuration: the connection is open, and so is that path. For an end that
    /// has not done anything yet.
    ///
    /// # Panics
    /// If it has.
    pub fn begin_established(&mut self, now: Time, peer: &ConnectionParameters) {
        assert!(self.paths.len() == 0, "it has begun");
        self.set_peer(*peer);
        let id = FIRST_PATH;
        if self.is_client {
            self.paths.take_number();
        }
        self.began_at = Some(now);
        self.idle.handle_arrived(now);
        self.state = ConnectionState::Open;
        self.events.push_back(Event::Opened);
        self.paths.open(id, &self.config, None);
        self.begin_path(now, id);
        self.outbox.wake();
    }

    /// A client opens a further path (the paper's `open`) and returns its number. The first path
    /// carries the handshake; without an answer, the others do. Several paths over the same
    /// addresses are the paper's weight: a subflow for each unit of it.
    ///
    /// # Panics
    /// On a server, and after 65,534 paths, because path numbers are not reused.
    pub fn open_path(&mut self, now: Time) -> SubflowId {
        assert!(self.is_client, "the client opens paths");
        let id = self.paths.take_number();
        if !self.is_alive() {
            return id;
        }
        self.began_at.get_or_insert(now);
        let challenge = (self.state == ConnectionState::Open).then_some(now);
        self.paths.open(id, &self.config, challenge);
        self.open_over_some_path(now);
        self.outbox.wake();
        id
    }

    /// Retires a path: its data goes elsewhere, and the peer is told. Does nothing for an unknown
    /// path.
    pub fn retire_path(&mut self, now: Time, id: SubflowId) {
        if self.drop_path(now, id) {
            self.open_over_some_path(now);
            self.outbox.push(Control::Retire { path: id });
        }
    }

    /// Opens a stream, and returns its number.
    pub fn open_stream(&mut self) -> u32 {
        let id = self.streams.take_number();
        if self.is_alive() {
            self.streams.insert(id, self.windows());
        }
        id
    }

    /// The application writes `bytes` more into a stream. Does nothing if the stream is finished or
    /// unknown.
    #[inline]
    pub fn write(&mut self, stream: u32, bytes: Bytes) {
        self.streams.update_sending(stream, |sending| sending.write(bytes.0));
    }

    /// The application ends a stream.
    pub fn finish(&mut self, stream: u32) {
        self.streams.update_sending(stream, SendStream::finish);
    }

    /// Resets the local half of a stream: unsent data is discarded, and `code` is sent to the peer.
    pub fn reset(&mut self, stream: u32, code: u32) {
        if let Some(sending) = self.remove_sending(stream) {
            self.streams.begin_reset(stream);
            self.outbox.push(Control::Reset { stream, code, end: sending.next() });
        }
    }

    /// Asks the peer to reset its half of a stream.
    pub fn stop(&mut self, stream: u32, code: u32) {
        if self.streams.receiving(stream).is_some() {
            self.outbox.push(Control::Stop { stream, code });
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
        let waiting = u32::try_from(self.outbox.datagrams()).unwrap_or(u32::MAX);
        if waiting >= self.config.max_datagrams {
            return Err(DatagramError::Full { waiting });
        }
        self.outbox.push_datagram(len);
        Ok(())
    }

    /// Sends a datagram of this size over an open path of the caller's choice, as a
    /// [`wire::ptcp::Body::Raw`]: outside of the windows, and not acknowledged. The caller sees to
    /// the rate. It is lost if the path is retired, or may not carry more before the peer's address
    /// is validated.
    ///
    /// # Errors
    /// If the path is not open, the datagram is larger than it carries, too many wait, or the
    /// connection has ended.
    pub fn send_raw(&mut self, path: SubflowId, bytes: Bytes) -> Result<(), DatagramError> {
        if !self.is_alive() {
            return Err(DatagramError::Ended);
        }
        let open = self.paths.get(path).filter(|path| path.subflow().is_some());
        let open = open.ok_or(DatagramError::NotOpen { path })?;
        let most = Packet::room_for_raw(open.datagram);
        let len = u16::try_from(bytes.0)
            .ok()
            .filter(|_| bytes <= most)
            .ok_or(DatagramError::TooLarge { size: bytes, most })?;
        let waiting = u32::try_from(self.outbox.raw()).unwrap_or(u32::MAX);
        if waiting >= self.config.max_datagrams || self.ack_limited(open) {
            return Err(DatagramError::Full { waiting });
        }
        self.outbox.push_raw(path, len);
        Ok(())
    }

    /// The address of an open path has changed: this end's, after a move to another network, or the
    /// peer's, from which a packet came (RFC 9000, section 9). The path keeps its number, window,
    /// round-trip times and data in flight. The new address is validated; until then the peer's
    /// gets no more than three times the bytes that come from it. The side that opens a path tries
    /// again at once, because what it sent may have got nowhere.
    pub fn rebind_path(&mut self, now: Time, path: SubflowId) {
        let token = self.paths.token();
        let Some(path) = self.paths.get_mut(path) else { return };
        path.rebind(now, token, self.is_client);
        self.outbox.wake();
    }

    /// Limits the data that a path carries to a rate, without headers and tags; `None`: no limit.
    /// What is due at once (probes, acknowledgements, raw datagrams) counts, with its headers, and
    /// does not wait. Does nothing for an unknown path.
    pub fn set_path_rate(&mut self, path: SubflowId, rate: Option<Rate>) {
        if let Some(path) = self.paths.get_mut(path) {
            path.limit = rate.map(RateLimit::new);
        }
    }

    /// Sends no data before this time: the caller has a bound of its own, of several connections
    /// together. What is due at once (probes, acknowledgements, raw datagrams) does not wait.
    pub fn hold_data(&mut self, until: Time) {
        self.striping.hold(until);
    }

    /// Sets whether a path carries data only while no other kind of path does. Does nothing for an
    /// unknown path.
    pub fn set_path_class(&mut self, path: SubflowId, class: Class) {
        if let Some(path) = self.paths.get_mut(path) {
            path.class = class;
        }
    }

    /// A path, which may have yet to open, is from now on in the background, or no longer, for a
    /// controller that knows the difference as [`Divided`](policy::cc::Divided) does. What is in
    /// flight stays in flight.
    pub fn set_path_background(&mut self, now: Time, path: SubflowId, is_background: bool) {
        self.paths.set_background(now, path, is_background, &self.config);
    }

    /// The largest UDP payload of a path at present; `None` for an unknown path.
    #[must_use]
    pub fn path_size(&self, path: SubflowId) -> Option<Bytes> {
        self.paths.get(path).map(|path| path.datagram)
    }

    /// The bytes of a path's UDP payloads so far; `None` for an unknown path.
    #[must_use]
    pub fn path_bytes(&self, path: SubflowId) -> Option<PathBytes> {
        self.paths.get(path).map(|path| path.bytes)
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
        let read = self.streams.update_receiving(stream, |receiving| {
            let before = receiving.read();
            receiving.set_reading(is_reading);
            receiving.read() - before
        });
        if let Some(read) = read {
            self.note_read(now, stream, read);
        }
    }

    /// The application reads up to `bytes` of a stream. Returns how many were available.
    pub fn read(&mut self, now: Time, stream: u32, bytes: Bytes) -> Bytes {
        let read =
            self.streams.update_receiving(stream, |receiving| receiving.handle_read(bytes.0));
        let Some(read) = read else { return Bytes::ZERO };
        self.note_read(now, stream, read);
        Bytes(read)
    }

    /// A stream of which the peer has acknowledged more since it was last named here:
    /// [`Connection::undelivered`] says how much the driver has to keep. With
    /// [`Config::holds_bytes`].
    #[inline]
    pub fn poll_progress(&mut self) -> Option<u32> {
        self.progress.pop()
    }

    /// Sets the largest receive buffer, for a peer of which more is known than at the beginning.
    pub fn set_max_receive_buffer(&mut self, bytes: Bytes) {
        self.flow.set_max_buffer(bytes);
    }

    /// Whether the peer's address of a path is known to be the peer's. `None` for an unknown path.
    #[must_use]
    pub fn is_validated(&self, path: SubflowId) -> Option<bool> {
        self.paths.get(path).map(|path| path.allowed.is_none() && path.validation.is_none())
    }

    /// Asks the peer for an acknowledgement, which keeps an idle connection alive.
    pub fn ping(&mut self) {
        self.outbox.ask_ping();
    }

    /// Asks the peer for an acknowledgement over this path, which keeps alive what translators on
    /// the way know of it. Returns whether it is asked: an opening path and a silent one have
    /// packets of their own.
    pub fn ping_path(&mut self, path: SubflowId) -> bool {
        let live = self.paths.get_mut(path).filter(|path| path.is_live());
        let is_asked = live.map(|path| path.is_ping_due = true).is_some();
        if is_asked {
            self.outbox.wake();
        }
        is_asked
    }

    /// The next event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
