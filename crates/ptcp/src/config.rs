//! What a connection can do.

use units::{Bytes, Span};

/// What happens to data that has been sent and not acknowledged when a subflow's window shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restripe {
    /// What is taken for lost goes to whichever path has room next.
    Lost,
    /// The paper's rule (section 2, *Packet Re-striping*): so does everything outside the shrunk
    /// window, lost or not.
    Window,
}

/// What a connection can do. Both ends are supposed to agree on the windows; everything else is
/// each end's own business.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Config {
    /// The largest UDP payload to begin with.
    pub datagram: Bytes,
    /// The largest UDP payload that a path is probed for (RFC 8899).
    pub max_datagram: Bytes,
    /// The congestion window to begin with, in packets.
    pub initial_window: u32,
    /// The receive buffer to begin with.
    pub receive_buffer: Bytes,
    /// The receive buffer never grows beyond.
    pub max_receive_buffer: Bytes,
    /// How long an acknowledgement may wait for a second packet.
    pub max_ack_delay: Span,
    /// No retransmission timeout is shorter than this.
    pub min_timeout: Span,
    /// Whether packets may be marked instead of dropped (RFC 3168).
    pub ecn: bool,
    /// Whether packets are spread over the round trip where the controller does not ask for it
    /// anyway.
    pub pacing: bool,
    /// Whether slow start may end by delay (RFC 9406).
    pub hystart: bool,
    /// What moves when a window shrinks.
    pub restripe: Restripe,
    /// Whether idle paths repeat what slower ones still owe (opportunistic retransmission).
    pub reinject: bool,
    /// Whether two paths that seem to share a bottleneck are told apart by cutting one's window,
    /// once ([`Connection::bottleneck`](crate::Connection::bottleneck)).
    pub test_bottlenecks: bool,
    /// Streams that the peer may have open at the same time. A stream is open until both its halves
    /// have ended: ours by [`Connection::finish`](crate::Connection::finish) or
    /// [`reset`](crate::Connection::reset).
    pub max_streams: u32,
    /// Datagrams that may wait to be sent.
    pub max_datagrams: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            datagram: Bytes(1_252),
            max_datagram: Bytes(1_472),
            initial_window: 10,
            receive_buffer: Bytes::mib(2),
            max_receive_buffer: Bytes::mib(128),
            max_ack_delay: Span::from_millis(25),
            min_timeout: Span::from_millis(200),
            ecn: false,
            pacing: true,
            hystart: true,
            restripe: Restripe::Lost,
            reinject: true,
            test_bottlenecks: false,
            max_streams: 128,
            max_datagrams: 256,
        }
    }
}
