//! What a connection can be asked about itself.

use policy::bottleneck::Summary;
use units::{Bytes, Span, SubflowId};

use super::{Connection, ConnectionState};
use crate::path::{Binding, Path};
use crate::stream::recv::RecvStream;
use crate::stream::send::SendStream;
use crate::subflow::{Stats, Subflow};

impl Connection {
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
        Bytes(self.streams.receiving(stream).map_or(0, RecvStream::next))
    }

    /// Bytes of a stream that arrived beyond a gap, each once.
    #[must_use]
    pub fn beyond_gaps(&self, stream: u32) -> Bytes {
        Bytes(self.streams.receiving(stream).map_or(0, RecvStream::beyond_gaps))
    }

    /// Bytes written into a stream and not acknowledged; zero for a completed stream.
    #[must_use]
    pub fn undelivered(&self, stream: u32) -> Bytes {
        let sending = self.streams.sending().get(stream);
        Bytes(sending.map_or(0, |sending| sending.written() - sending.delivered()))
    }

    /// Bytes written into a stream and never sent.
    #[must_use]
    #[inline]
    pub fn unsent(&self, stream: u32) -> Bytes {
        Bytes(self.streams.sending().get(stream).map_or(0, SendStream::unsent))
    }

    /// The sum of the congestion windows of all open paths.
    #[must_use]
    pub fn window(&self) -> Bytes {
        self.paths.subflows().map(|subflow| self.paths.window(subflow.id())).sum()
    }

    /// The congestion window of a path; zero unless it is open.
    #[must_use]
    pub fn path_window(&self, path: SubflowId) -> Bytes {
        self.paths.window(path)
    }

    /// The smoothed round-trip time of a path; `None` unless it is open.
    #[must_use]
    pub fn smoothed_rtt(&self, path: SubflowId) -> Option<Span> {
        self.subflow(path)?.rtt().smoothed()
    }

    /// The probe timeout of a path; `None` unless it is open.
    #[must_use]
    pub fn probe_timeout(&self, path: SubflowId) -> Option<Span> {
        self.subflow(path).map(Subflow::timeout)
    }

    /// The counters of a path; `None` unless it is open.
    #[must_use]
    pub fn stats(&self, path: SubflowId) -> Option<&Stats> {
        self.subflow(path).map(Subflow::stats)
    }

    /// The bottleneck of a path, named by the lowest path number that shares it. `None` if none is
    /// known, and with a single path.
    #[must_use]
    pub fn bottleneck(&self, path: SubflowId) -> Option<SubflowId> {
        self.paths.bottleneck(path)
    }

    /// The statistics of a path's one-way delays (RFC 8382); `None` with a single path.
    #[must_use]
    pub fn delays(&self, path: SubflowId) -> Option<Summary> {
        self.paths.delays(path)
    }

    /// The numbers of all paths that are not retired.
    pub fn paths(&self) -> impl Iterator<Item = SubflowId> + '_ {
        self.paths.iter().map(|path| path.id)
    }

    /// Whether nothing gets through: acknowledgements are overdue on every open path, or none is
    /// open.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        !self.paths.iter().any(Path::is_live)
    }

    /// The present receive buffer.
    #[must_use]
    pub fn receive_buffer(&self) -> Bytes {
        self.flow.buffer()
    }

    /// The packet number expected next on a path, for [`Packet::parse`](wire::ptcp::Packet::parse).
    #[must_use]
    pub fn expected_number(&self, path: SubflowId) -> u64 {
        let open = self.paths.get(path).map(|path| path.acks.expected());
        open.or_else(|| self.expected_while_closing(path)).unwrap_or(0)
    }

    /// Whether the connection is opening or open.
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.state, ConnectionState::Opening | ConnectionState::Open)
    }

    /// The subflow of an open path.
    pub(super) fn subflow(&self, path: SubflowId) -> Option<&Subflow<Binding>> {
        self.paths.get(path)?.subflow()
    }
}
