//! What the peer's configuration allows.

use units::Bytes;
use wire::ptcp::ConnectionParameters;

use super::Connection;
use super::streams::StreamWindows;

impl Connection {
    /// Takes what the peer told of its configuration, before anything was sent.
    pub(super) fn set_peer(&mut self, peer: ConnectionParameters) {
        self.flow.set_peer(peer.receive_buffer);
        self.config.max_datagram = self.config.max_datagram.min(peer.max_datagram);
        // Of two timeouts the shorter one counts (RFC 9000, section 10.1).
        let both = [self.config.idle_timeout, peer.idle_timeout];
        self.config.idle_timeout = both.into_iter().flatten().min();
        self.peer = peer;
    }

    /// The data of a new stream that may be sent before the first update.
    pub(super) fn windows(&self) -> StreamWindows {
        let (Bytes(own), Bytes(peer)) = (self.config.stream_window(), self.peer.stream_window);
        StreamWindows { own, peer }
    }

    /// The peer allows more streams than at the beginning. An older message may arrive later.
    pub(super) fn raise_peer_streams(&mut self, most: u64) {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.peer.max_streams = self.peer.max_streams.max(most);
    }

    /// Whether the peer allows a further stream of this end. One more is an error to it.
    #[must_use]
    pub fn may_open_stream(&self) -> bool {
        self.streams.own_open() < self.peer.max_streams
    }
}
