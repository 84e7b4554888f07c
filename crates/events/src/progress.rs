//! Snapshots of a transfer, and its result.

use std::net::SocketAddr;

use units::{Bytes, PathId, Rate, Span};

use crate::PathState;

/// A snapshot of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// As in [`Event::Started`](crate::Event::Started).
    pub transfer: u32,
    /// Time since the first connection attempt.
    pub elapsed: Span,
    /// Bytes acknowledged by the receiver (at the receiver: received), earlier attempts included.
    pub done: Bytes,
    /// Bytes of all files; of a stream, those that its sender has read so far.
    pub total: Bytes,
    /// Regular files in the transfer, including those that were at the sink before it.
    pub files: usize,
    /// The files of those that are complete at the sink.
    pub files_done: usize,
    /// The name of the file whose data are on their way.
    pub current: Option<String>,
    /// Whether it is a stream whose end is not known yet.
    pub is_growing: bool,
    /// Recent rate of all paths together.
    pub rate: Rate,
    /// Expected time to the end.
    pub eta: Option<Span>,
    /// For how long nothing has arrived at the receiver, once that is so long that rates mean
    /// nothing.
    pub standstill: Option<Standstill>,
    /// Bytes sent more than once so far.
    pub repeated: Bytes,
    /// Rate of all paths over the best rate that any single path would have given, where both are
    /// known.
    pub gain: Option<f64>,
    /// A snapshot of each path.
    pub paths: Vec<PathProgress>,
}

/// A snapshot of a feed, at its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedProgress {
    /// Time since the feed began.
    pub elapsed: Span,
    /// The streams that are read.
    pub streams: usize,
    /// Records that have come to the collector's disk since then.
    pub kept: u64,
    /// What is here, files and the spool included, and not at the collector.
    pub waiting: Bytes,
    /// For how long the oldest of that has waited, as far as the feed has seen it.
    pub oldest: Option<Span>,
    /// Records that were dropped before they were sent: a spool was full, datagrams came too fast.
    pub dropped: u64,
    /// How its demand is met, if it has one.
    pub demand: Option<FeedDemand>,
}

/// How the demand of a feed is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedDemand {
    /// What it has to send in a second, with what clears its backlog.
    pub rate: Rate,
    /// Whether its paths carry that; `None` until it was looked at.
    pub satisfied: Option<bool>,
    /// For how long that has been so.
    pub since: Span,
    /// How often it has chosen paths, the first choice included.
    pub draws: u64,
    /// The paths in use.
    pub paths: Vec<FeedPath>,
}

/// A path of a feed with a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPath {
    /// Its name for people.
    pub name: String,
    /// The rate that it is to have, y; `None` while data goes over all paths in turns.
    pub set: Option<Rate>,
    /// The rate at which records arrive over it, x.
    pub received: Rate,
}

/// A transfer of which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standstill {
    /// For how long.
    pub since: Span,
    /// For how long it waits in all.
    pub patience: Span,
}

/// A snapshot of a path.
#[derive(Clone, Debug)]
pub struct PathProgress {
    /// Number of the path in its session, as in [`PathEvent`](crate::PathEvent); the name stays
    /// with it.
    pub path: PathId,
    /// As in [`PathEvent`](crate::PathEvent).
    pub name: String,
    /// Its state.
    pub state: PathState,
    /// Local address, once connected.
    pub local: Option<SocketAddr>,
    /// Remote address; unknown at the listening side, where connections of several ports are one
    /// path.
    pub remote: Option<SocketAddr>,
    /// Recent rate.
    pub rate: Rate,
    /// Smoothed round-trip time as the kernel sees it, if it is known.
    pub rtt: Option<Span>,
    /// Bytes acknowledged over it.
    pub done: Bytes,
    /// Share of all bytes of this session that it carried, 0 to 1.
    pub share: f64,
    /// The kernel's congestion control on it, if it is known.
    pub congestion_control: Option<String>,
    /// TCP segments sent again, if that is known.
    pub retransmits: Option<u64>,
    /// Changes of the keys of its striped connection; `None` over TCP and at the listening side.
    pub key_updates: Option<u64>,
    /// Its connections; `None` at the listening side, which does not count them.
    pub connections: Option<usize>,
    /// What the background is like there, at the side that sends; `None` if it is not in the
    /// background, or the kernel alone knows.
    pub background: Option<Background>,
}

/// What a sender in the background makes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Whether others have the line: less than three quarters of what it carried at best in the
    /// last minutes is asked of it.
    pub is_backed_off: bool,
    /// For how long that was so.
    pub backed_off: Span,
    /// What the line carried at best in the last minutes; `None` before it is known.
    pub best: Option<Rate>,
    /// The longest queue that was seen: the largest delay less the smallest one.
    pub queue: Option<Span>,
}

/// The result of a successful transfer.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Files completed.
    pub files: usize,
    /// Bytes of all files.
    pub total: Bytes,
    /// Bytes that this session transferred, without earlier data and without repeats.
    pub moved: Bytes,
    /// Bytes sent more than once in this session.
    pub repeated: Bytes,
    /// From the first connection attempt to the last verified byte.
    pub elapsed: Span,
    /// Time spent in the final sync to disk.
    pub sync: Span,
    /// For each path that carried data: its name and the time of its last new byte since the start;
    /// for idle time.
    pub finished_at: Vec<(String, Span)>,
    /// Entries of the source that could not be read, or changed again and again, and were left out;
    /// at a receiver only the latter.
    pub left_out: usize,
    /// Entries whose owner could not be set at the sink, of a transfer
    /// that keeps owners.
    pub lost_owners: usize,
    /// Entries of which an extended attribute could not be set at the sink.
    pub lost_attributes: usize,
    /// Entries whose mode or time the sink's file system does not have, and copies in the place of
    /// hard links.
    pub lost_modes: usize,
    /// Entries that the sink's file system cannot have.
    pub lost_entries: usize,
    /// Paths at the end.
    pub paths: Vec<PathProgress>,
}

impl Summary {
    /// The summary of this session and of one before it, if there was one.
    #[must_use]
    pub fn after(mut self, first: Option<Summary>) -> Summary {
        if let Some(first) = first {
            self.moved += first.moved;
            self.repeated += first.repeated;
            self.elapsed += first.elapsed;
            self.sync += first.sync;
        }
        self
    }
}
