//! The configuration of a connection.

use units::{Bytes, Span};
use wire::effort::Effort;
use wire::ptcp::{ConnectionParameters, MIN_FULL};

/// The data that moves to other paths when a subflow's window shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restripe {
    /// Lost data only; it goes to the next path with room.
    Lost,
    /// The paper's rule (section 2, *Packet Re-striping*): all data outside the shrunk window, lost
    /// or not.
    Window,
}

/// The configuration of a connection. The ends of one with a handshake of its own, as in the
/// simulator, must have the same; with one made outside each tells the other
/// ([`Config::parameters`]).
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Config {
    /// The initial largest UDP payload.
    pub datagram: Bytes,
    /// The largest UDP payload that a path is probed for (RFC 8899).
    pub max_datagram: Bytes,
    /// The initial congestion window, in packets.
    pub initial_window: u32,
    /// The initial receive buffer.
    pub receive_buffer: Bytes,
    /// The largest receive buffer.
    pub max_receive_buffer: Bytes,
    /// How streams whose data nobody reads leave the others room. `None`: any stream may hold half
    /// of the largest receive buffer.
    pub slow_streams: Option<SlowStreams>,
    /// The longest wait of an acknowledgement for a second packet.
    pub max_ack_delay: Span,
    /// The least retransmission timeout.
    pub min_timeout: Span,
    /// The longest time from the first packet to the end of the handshake; `None`: any.
    pub handshake_timeout: Option<Span>,
    /// The longest time without a packet of the peer, at least three probe timeouts; `None`: any.
    /// An application that is silent for longer keeps the connection alive by
    /// [`Connection::ping`](crate::Connection::ping).
    pub idle_timeout: Option<Span>,
    /// Whether packets are ECN-capable (RFC 3168).
    pub ecn: bool,
    /// Whether ECN-capable packets say that their congestion control is scalable: ECT(1) (RFC
    /// 9331).
    pub is_scalable: bool,
    /// Whether packets are paced over the round trip if the controller sets no rate.
    pub pacing: bool,
    /// Whether slow start may end by delay (`HyStart++`, RFC 9406).
    pub hystart: bool,
    /// The data that moves when a window shrinks.
    pub restripe: Restripe,
    /// Whether idle paths repeat data in flight on slower ones (opportunistic retransmission).
    pub reinject: bool,
    /// Whether two paths that seem to share a bottleneck are tested by a cut of one's window, once
    /// ([`Connection::bottleneck`](crate::Connection::bottleneck)).
    pub test_bottlenecks: bool,
    /// Streams that the peer may have open at the same time. A stream is open until both its halves
    /// have ended for the peer, so that up to twice as many are kept while acknowledgements are on
    /// their way; the local half ends by [`Connection::finish`](crate::Connection::finish) or
    /// [`reset`](crate::Connection::reset).
    pub max_streams: u32,
    /// The most datagrams that wait to be sent.
    pub max_datagrams: u32,
    /// Whether the driver holds the bytes of streams: then data counts as read when the application
    /// says so ([`Connection::read`](crate::Connection::read)), and
    /// [`Connection::poll_progress`](crate::Connection::poll_progress) tells what of a stream need
    /// not be kept. Otherwise data is read as it arrives.
    pub holds_bytes: bool,
    /// Whether [`Connection::poll_lost`](crate::Connection::poll_lost) tells of each packet that is
    /// declared lost.
    pub tells_losses: bool,
    /// Whether this end is in the background, and wants the peer to be. The connection only tells
    /// the peer: the caller chooses the controller.
    pub effort: Effort,
}

/// Shares of a receive buffer among streams, of which some are not read (dynamic thresholds,
/// Choudhury and Hahne 1998). Each of [`Config::max_streams`] has its first window for itself, so
/// that none waits for another; a stream is granted `1 / share` of what is left of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStreams {
    /// What a stream may hold at first, and at least.
    pub first: Bytes,
    /// A stream may hold the first window and this part of what is left.
    pub share: u32,
}

impl Config {
    /// What may be sent of a new stream before the first update.
    #[must_use]
    pub fn stream_window(&self) -> Bytes {
        self.slow_streams.map_or(self.receive_buffer, |slow| slow.first.min(self.receive_buffer))
    }

    /// The size to which a path with packets of this size falls back: the initial one, then that
    /// which every path has to carry.
    pub(crate) fn fallback(&self, datagram: Bytes) -> Option<Bytes> {
        [self.datagram, MIN_FULL].into_iter().find(|size| datagram > *size)
    }

    /// What the peer is told of it in the handshake.
    #[must_use]
    pub fn parameters(&self) -> ConnectionParameters {
        ConnectionParameters {
            receive_buffer: self.receive_buffer,
            stream_window: self.stream_window(),
            max_datagram: self.max_datagram,
            max_ack_delay: self.max_ack_delay,
            idle_timeout: self.idle_timeout,
            max_streams: self.max_streams,
            effort: self.effort,
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            datagram: Bytes(1_252),
            max_datagram: Bytes(1_472),
            initial_window: 10,
            receive_buffer: Bytes::mib(2),
            max_receive_buffer: Bytes::mib(128),
            slow_streams: None,
            max_ack_delay: Span::from_millis(25),
            min_timeout: Span::from_millis(200),
            handshake_timeout: Some(Span::from_secs(10)),
            idle_timeout: Some(Span::from_secs(30)),
            ecn: false,
            is_scalable: false,
            pacing: true,
            hystart: true,
            restripe: Restripe::Lost,
            reinject: true,
            test_bottlenecks: false,
            max_streams: 128,
            max_datagrams: 256,
            holds_bytes: false,
            tells_losses: false,
            effort: Effort::Usual,
        }
    }
}
