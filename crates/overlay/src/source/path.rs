//! One path of a source.

use units::{Bytes, PathId, Rate, Span, Time};

/// A path, as its source sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// The path.
    pub path: PathId,
    /// The candidate that it goes over.
    pub candidate: usize,
    /// The rate set, y; zero while data is handed out in turns, and for a path that drains.
    pub rate: Rate,
    /// Whether the present interval probes it. It is to be written to before others: without
    /// enough data the probe proves nothing.
    pub is_probed: bool,
    /// Payload written to it.
    pub written: Bytes,
    /// Payload that the collector has received.
    pub received: Bytes,
}

/// A path in use, or one that drains.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourcePath {
    pub(super) id: PathId,
    pub(super) candidate: usize,
    pub(super) written: Bytes,
    pub(super) received: Bytes,
    /// What was written and received at the begin of the present interval.
    pub(super) at_interval: [Bytes; 2],
    /// What was received at the begin of what counts of the present draw.
    pub(super) at_count: Bytes,
    /// When it last delivered, or had no reason to.
    pub(super) progress: Time,
    pub(super) rtt: Span,
}

impl SourcePath {
    pub(super) fn new(id: PathId, candidate: usize, now: Time) -> SourcePath {
        SourcePath {
            id,
            candidate,
            written: Bytes::ZERO,
            received: Bytes::ZERO,
            at_interval: [Bytes::ZERO; 2],
            at_count: Bytes::ZERO,
            progress: now,
            rtt: Span::ZERO,
        }
    }

    /// Sets what the collector has received. Returns what is new of it.
    pub(super) fn handle_received(&mut self, now: Time, received: Bytes) -> Bytes {
        let new = received - self.received;
        if new > Bytes::ZERO {
            (self.received, self.progress) = (received, now);
        }
        new
    }

    /// Written and not received.
    pub(super) fn under_way(&self) -> Bytes {
        self.written - self.received
    }

    /// An interval begins.
    pub(super) fn begin(&mut self) {
        self.at_interval = [self.written, self.received];
    }

    /// The rate received over an interval of this length, x, in bit/s.
    pub(super) fn rate(&self, elapsed: Span) -> f64 {
        (self.received - self.at_interval[1]).as_f64() * 8.0 / elapsed.as_secs_f64()
    }

    /// The rate written in an interval of this length, in bit/s.
    pub(super) fn written_rate(&self, elapsed: Span) -> f64 {
        (self.written - self.at_interval[0]).as_f64() * 8.0 / elapsed.as_secs_f64()
    }

    pub(super) fn view(&self, rate: Rate, is_probed: bool) -> PathView {
        let SourcePath { id: path, candidate, written, received, .. } = *self;
        PathView { path, candidate, rate, is_probed, written, received }
    }
}
