//! One connection of a path: frames over TLS over a stream of a carrier.

mod background;
mod effort;
mod layer;
mod raw;
#[cfg(test)]
mod tests;
mod whole;

use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use net::counters::TcpInfo;
use rustls::Connection;
use units::Span;
use wire::effort::Effort;
use wire::frame::HEADER;
use wire::session::{AbortCode, SessionFrame, SessionId, VERSION, Welcome, effort_of};
use wire::{Emit, RawFrame, WireError};

use background::Background;
pub use background::Yielding;
use layer::Layer;
use raw::{RAW_MOST, Raw, Socket};

use crate::Fingerprint;
use crate::carrier::Stream;
use crate::tls::{WrongKey, wrong_key};

/// A connection that carries frames, under TLS or the protection of its carrier. Reading and
/// writing are separate `try_*` steps, so that one task can do both.
pub struct Conn {
    stream: Box<dyn Stream>,
    layer: Layer,
    /// Decrypted bytes; those before `parsed` are consumed.
    inbox: Vec<u8>,
    parsed: usize,
    /// Where the frame that was returned last begins.
    last: usize,
    /// Bytes of the inbox's memory that stay while it needs less.
    kept: usize,
    /// Bytes that the next read of a sealed stream takes at most: few, until there are many.
    piece: usize,
    /// A buffer to encode frames in, before TLS takes them.
    scratch: Vec<u8>,
    /// Bytes read from the stream that TLS has not consumed yet.
    raw: Raw,
    /// Bytes taken from the stream since other tasks last got their turn.
    turn: AtomicUsize,
    closed: bool,
    /// Whether the peer sent a `close_notify` alert (RFC 8446, 6.1).
    said_goodbye: bool,
    /// Bytes of frames pushed since the last complete flush.
    backlog: usize,
    /// Hears of refusals of the peer.
    refusals: Option<Box<dyn Fn(AbortCode) + Send + Sync>>,
    /// What tells the peer of changes of this host's addresses.
    announcer: Option<Box<Announce>>,
    /// Whether the peer has yet to send its first frame.
    is_strange: bool,
    /// That of what is sent, as either side has said.
    effort: Effort,
    /// In the background.
    background: Option<Background>,
}

/// What finds the addresses of this host for the peer of a stream, once they have changed.
type Announce = dyn FnMut(&dyn Stream) -> Option<Vec<SocketAddr>> + Send + Sync;

/// The failure that ended a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnError {
    /// The stream failed, in the kernel's words.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// TLS failed: corrupted records, a wrong key, another protocol.
    #[error("{}", in_words(.0))]
    Tls(#[from] rustls::Error),
    /// The peer sent bytes that are not a frame.
    #[error("the peer broke the protocol: {0}")]
    Wire(#[from] WireError),
    /// The peer sent a frame of a kind that is not allowed at this point; its name.
    #[error("the peer sent a {0} frame where none belongs")]
    Unexpected(String),
    /// The peer gave up, and sent this reason.
    #[error("{0}")]
    Refused(String),
    /// The stream ended.
    #[error("the peer closed the connection")]
    Closed,
    /// The transfer is over for a reason that its session reports: no path is lost.
    #[error("the transfer is over")]
    Over,
    /// Nothing arrived within this time.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    /// The peer sent as much as it may before it is admitted, and no complete first frame.
    #[error("the peer sent too much before its first frame was complete")]
    TooMuch,
}

impl ConnError {
    /// A frame has no place where it came.
    #[must_use]
    pub fn unexpected(frame: &impl Emit) -> ConnError {
        ConnError::Unexpected(frame.name().into())
    }
}

/// What TLS found wrong; the library writes other hosts' keys as a program has them.
fn in_words(error: &rustls::Error) -> String {
    match wrong_key(error) {
        Some(found) => WrongKey { found }.to_string(),
        None => format!("TLS: {error}"),
    }
}

impl Conn {
    /// A connection over an open stream; nothing is sent before [`Conn::handshake`].
    #[must_use]
    pub fn new(stream: Box<dyn Stream>, tls: Connection) -> Conn {
        Conn::under(Layer::Tls(Box::new(tls)), stream)
    }

    /// A connection over a stream whose carrier has proven that the peer holds this key, and seals
    /// every byte: it has no handshake.
    #[must_use]
    pub fn over_carrier(stream: Box<dyn Stream>, key: Fingerprint) -> Conn {
        Conn::under(Layer::Carrier { key, outbox: Vec::new(), written: 0 }, stream)
    }

    fn under(layer: Layer, stream: Box<dyn Stream>) -> Conn {
        Conn {
            stream,
            layer,
            inbox: Vec::new(),
            parsed: 0,
            last: 0,
            kept: usize::MAX,
            piece: CARRIER_FIRST,
            scratch: Vec::new(),
            raw: Raw::new(),
            turn: AtomicUsize::new(0),
            closed: false,
            said_goodbye: false,
            backlog: 0,
            refusals: None,
            announcer: None,
            is_strange: false,
            effort: Effort::Usual,
            background: None,
        }
    }

    /// The stream below TLS, for its addresses and options.
    #[must_use]
    pub fn stream(&self) -> &dyn Stream {
        &*self.stream
    }

    /// The kernel's counters of the connection.
    ///
    /// # Errors
    /// [`ConnError::Io`] if the connection is gone.
    pub fn counters(&self) -> Result<TcpInfo, ConnError> {
        Ok(self.stream.counters()?)
    }

    /// For how long nothing has got through, if the carrier itself repeats what is lost
    /// ([`Stream::silence`]).
    #[must_use]
    pub fn silence(&self) -> Option<Span> {
        self.stream.silence()
    }

    /// Bytes written to the stream that have not left this host.
    ///
    /// # Errors
    /// [`ConnError::Io`] if the connection is gone.
    pub fn unsent(&self) -> Result<u64, ConnError> {
        Ok(self.stream.unsent()?)
    }

    /// The peer's key; known after the handshake.
    #[must_use]
    pub fn peer(&self) -> Option<Fingerprint> {
        self.layer.peer()
    }

    /// Bounds the bytes that are still read from the stream; more are [`ConnError::TooMuch`].
    pub(crate) fn set_allowance(&mut self, bytes: usize) {
        self.raw.allowance = bytes;
        self.is_strange = bytes < usize::MAX;
    }

    /// Has `hear` told of each refusal of the peer from here on.
    pub(crate) fn on_refusal(&mut self, hear: impl Fn(AbortCode) + Send + Sync + 'static) {
        self.refusals = Some(Box::new(hear));
    }

    /// Tells the peer of later changes of this host's addresses, which `changed` finds.
    pub(crate) fn announce(
        &mut self,
        changed: impl FnMut(&dyn Stream) -> Option<Vec<SocketAddr>> + Send + Sync + 'static,
    ) {
        self.announcer = Some(Box::new(changed));
    }

    /// Tells the peer the addresses of this host if those have changed, in a connection that was
    /// accepted; to be called whenever something has happened to it.
    pub fn announce_changes(&mut self) {
        let changed = self.announcer.as_mut().and_then(|changed| changed(&*self.stream));
        if let Some(addresses) = changed {
            let (version, session) = (VERSION, SessionId::default());
            self.push(&SessionFrame::Welcome(Welcome { version, session, addresses }));
        }
    }

    /// The peer is refused.
    pub(crate) fn note_refusal(&self, code: AbortCode) {
        if let Some(hear) = &self.refusals {
            hear(code);
        }
    }

    /// Takes at most so many bytes from the stream at a time, and keeps no memory of longer frames,
    /// so that each of many connections holds little.
    pub fn read_at_most(&mut self, bytes: usize) {
        self.raw.most = bytes;
        self.kept = 4 * bytes;
    }

    /// Appends a frame to the send buffer, which has no limit; the next flush sends it.
    pub fn push(&mut self, frame: &impl Emit) {
        self.backlog += self.layer.push_frame(frame, &mut self.scratch);
    }

    /// As [`Conn::push`], for an encoded frame in two parts, without copying them together.
    pub fn push_parts(&mut self, header: &[u8], payload: &[u8]) {
        self.layer.push(&[IoSlice::new(header), IoSlice::new(payload)]);
        self.backlog += header.len() + payload.len();
    }

    /// Whether the send buffer has bytes.
    #[must_use]
    pub(crate) fn wants_write(&self) -> bool {
        self.layer.wants_write()
    }

    /// Writes as much of the send buffer as the stream takes; true if that was all of it.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub fn try_flush(&mut self) -> Result<bool, ConnError> {
        if !self.layer.try_flush(&*self.stream)? {
            return Ok(false);
        }
        self.backlog = 0;
        Ok(true)
    }

    /// Bytes of frames pushed since the send buffer was last empty: an upper bound of the bytes
    /// that wait for the peer to read.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Waits until the stream takes bytes.
    ///
    /// # Errors
    /// The stream's, if it is broken.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.stream.poll_write_ready(cx)).await
    }

    /// Reads and decrypts bytes that have arrived, about `limit` bytes of plaintext at most, and
    /// 512 KiB of the stream, of which a hostile peer need not make any plaintext. Returns the
    /// number of bytes; zero if there are none or the peer closed ([`Conn::is_closed`]).
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub fn try_fill(&mut self, limit: usize) -> Result<usize, ConnError> {
        if self.parsed == self.inbox.len() {
            self.inbox.clear();
            self.parsed = 0;
        }
        let before = self.inbox.len();
        let mut taken = 0;
        while !self.closed && self.inbox.len() - before < limit && taken < MOST_TAKEN {
            if self.raw.is_used_up() {
                return Err(ConnError::TooMuch);
            }
            let read = match &mut self.layer {
                Layer::Tls(tls) => tls.read_tls(&mut self.raw.over(&*self.stream)),
                Layer::Carrier { .. } => {
                    let most = self.piece.min(limit).min(self.raw.allowance);
                    let start = self.inbox.len();
                    self.inbox.resize(start + most, 0);
                    let read = self.stream.try_read(&mut self.inbox[start..]);
                    let length = read.as_ref().copied().unwrap_or(0);
                    self.inbox.truncate(start + length);
                    self.raw.allowance -= length;
                    if length == self.piece {
                        self.piece = (self.piece * 2).min(CARRIER_READ);
                    }
                    read
                }
            };
            match read {
                Ok(0) => {
                    self.closed = true;
                    // Nobody else can end a sealed stream.
                    self.said_goodbye |= matches!(self.layer, Layer::Carrier { .. });
                }
                Ok(length) => {
                    taken += length;
                    self.decrypt()?;
                    if self.layer.is_handshaking() {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.turn.fetch_add(taken, Ordering::Relaxed);
        Ok(self.inbox.len() - before)
    }

    /// Moves what TLS has decrypted of the bytes read into the inbox.
    fn decrypt(&mut self) -> Result<(), ConnError> {
        let Layer::Tls(tls) = &mut self.layer else { return Ok(()) };
        let state = match tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // The alert tells the peer the reason; without it the peer sees the closed socket.
                let _ = tls.write_tls(&mut Socket(&*self.stream));
                return Err(error.into());
            }
        };
        let mut waiting = state.plaintext_bytes_to_read();
        while waiting > 0 {
            let mut reader = tls.reader();
            let chunk = reader.fill_buf()?;
            let length = chunk.len();
            self.inbox.extend_from_slice(chunk);
            reader.consume(length);
            waiting -= length;
        }
        if state.peer_has_closed() {
            (self.closed, self.said_goodbye) = (true, true);
        }
        Ok(())
    }

    /// Bytes still missing of the frame that has begun to arrive, at least one; the length of a
    /// header if none has begun.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub fn missing(&self) -> Result<usize, ConnError> {
        let waiting = self.inbox.len() - self.parsed;
        let length = RawFrame::length(&self.inbox[self.parsed..])?.unwrap_or(HEADER);
        Ok(length.saturating_sub(waiting).max(1))
    }

    /// The bytes that were read and are no complete frame yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.inbox[self.parsed..]
    }

    /// Whether the stream has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the peer closed in order, as [`Conn::close`] does, rather than by a broken line or a
    /// killed process.
    #[must_use]
    pub fn has_said_goodbye(&self) -> bool {
        self.said_goodbye
    }

    /// The next complete frame among the bytes read, borrowed until the next call. What the peer
    /// says of the effort is taken here, and returned to nobody.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub fn next_frame(&mut self) -> Result<Option<RawFrame<'_>>, ConnError> {
        while let Some((frame, length)) = RawFrame::parse(&self.inbox[self.parsed..])? {
            let start = self.parsed;
            self.parsed += length;
            match effort_of(frame)? {
                // The kernel loads a module for it, which is nothing for strangers.
                Some(_) if self.is_strange => return Err(ConnError::Unexpected("Effort".into())),
                Some(effort) => _ = self.set_effort(effort),
                None => {
                    self.last = start;
                    return Ok(RawFrame::parse(&self.inbox[start..])?.map(|(frame, _)| frame));
                }
            }
        }
        self.inbox.drain(..self.parsed);
        self.parsed = 0;
        if self.inbox.capacity() > self.kept {
            self.inbox.shrink_to(self.kept / 4);
        }
        Ok(None)
    }

    /// Has the frame that was returned last be the next one again. Nothing may have been read
    /// since.
    pub fn put_back(&mut self) {
        self.parsed = self.last;
    }

    /// Waits until the stream has bytes to read or, if the send buffer has bytes, takes some. Other
    /// tasks and deadlines get their turn now and then, also if the stream always has bytes.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub async fn ready(&self) -> Result<(), ConnError> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// As [`Conn::ready`], for a task that waits for several connections.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), ConnError>> {
        let polled = match self.poll_readable(cx) {
            Poll::Pending if self.wants_write() => self.stream.poll_write_ready(cx),
            polled => polled,
        };
        polled.map_err(ConnError::from)
    }

    async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.turn.load(Ordering::Relaxed) >= MOST_A_TURN {
            self.turn.store(0, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !self.raw.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.stream.poll_read_ready(cx)
    }

    /// Sends a `close_notify` alert (RFC 8446, 6.1), or the end of a sealed stream, if the stream
    /// takes it.
    pub fn close(&mut self) {
        match &mut self.layer {
            Layer::Tls(tls) => {
                tls.send_close_notify();
                let _ = self.try_flush();
            }
            Layer::Carrier { .. } => {
                if self.try_flush().is_ok_and(|is_flushed| is_flushed) {
                    // It can fail only for a stream that has ended.
                    let _ = self.stream.shutdown_write();
                }
            }
        }
    }
}

/// The interval of pings to a peer that waits for this side.
pub const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// Bytes that are read of a sealed stream at a time, at first and at most: many streams carry
/// little, and each has room for what it reads.
const CARRIER_FIRST: usize = 4 << 10;
const CARRIER_READ: usize = 64 << 10;
/// Bytes of the stream that one call of [`Conn::try_fill`] takes: more than any frame needs.
const MOST_TAKEN: usize = 2 * RAW_MOST;
/// Bytes of the stream after which a task that reads leaves other tasks their turn.
const MOST_A_TURN: usize = RAW_MOST;
