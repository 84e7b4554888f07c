//! Events of a transfer for its observer: the progress display, the JSON stream, the tests.

use std::net::SocketAddr;

use units::{Bytes, PathId, Rate, Span};

use peer::{Fingerprint, PathEvent, PathState};

/// The channel of events. Unbounded, because a transfer never waits for its display.
pub type Events = tokio::sync::mpsc::UnboundedSender<Event>;

/// An event of a transfer.
#[derive(Clone, Debug)]
pub enum Event {
    /// The receiver is reachable at these addresses; all of them share one port.
    Listening {
        /// Addresses that a sender may use, most useful first.
        addresses: Vec<SocketAddr>,
    },
    /// Both sides are authenticated and agree on the files.
    Started {
        /// The other side's key.
        peer: Fingerprint,
        /// Regular files in the transfer, including those that are already at the sink.
        files: usize,
        /// Bytes of all files; holes do not count.
        total: Bytes,
        /// Bytes of `total` that are at the sink already: unchanged files, and data of an earlier
        /// attempt.
        resumed: Bytes,
    },
    /// A path changed its state.
    Path(PathEvent),
    /// A periodic report, several times a second.
    Progress(Progress),
    /// A file is complete: verified, synced and under its final name.
    FileDone {
        /// Its name as announced.
        name: String,
        /// Its size.
        size: Bytes,
        /// BLAKE3 of its contents in hexadecimal, as `b3sum` prints it. `None` for a file with
        /// holes.
        blake3: Option<String>,
    },
    /// A message for a person; the transfer continues.
    Notice {
        /// The message.
        text: String,
    },
}

/// A snapshot of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Time since the first connection attempt.
    pub elapsed: Span,
    /// Bytes acknowledged by the receiver (at the receiver: received), earlier attempts included.
    pub done: Bytes,
    /// Bytes of all files; of a stream, those that its sender has read so far.
    pub total: Bytes,
    /// Whether it is a stream whose end is not known yet.
    pub is_growing: bool,
    /// Recent rate of all paths together.
    pub rate: Rate,
    /// Expected time to the end.
    pub eta: Option<Span>,
    /// Bytes sent more than once so far.
    pub repeated: Bytes,
    /// Rate of all paths over the best rate that any single path would have given, where both are
    /// known.
    pub gain: Option<f64>,
    /// A snapshot of each path.
    pub paths: Vec<PathProgress>,
}

/// A snapshot of a path.
#[derive(Clone, Debug)]
pub struct PathProgress {
    /// Number of the path in its session.
    pub path: PathId,
    /// As in [`peer::PathEvent`].
    pub name: String,
    /// Its state.
    pub state: PathState,
    /// Local address, once connected.
    pub local: Option<SocketAddr>,
    /// Remote address.
    pub remote: SocketAddr,
    /// Recent rate.
    pub rate: Rate,
    /// Smoothed round-trip time as the kernel sees it.
    pub rtt: Span,
    /// Bytes acknowledged over it.
    pub done: Bytes,
    /// Share of all bytes of this session that it carried, 0 to 1.
    pub share: f64,
    /// The kernel's congestion control on it.
    pub congestion_control: String,
    /// TCP segments sent again.
    pub retransmits: u64,
    /// Its connections; zero at the listening side, which does not count them.
    pub connections: usize,
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
    /// Paths at the end.
    pub paths: Vec<PathProgress>,
}

impl From<peer::Event> for Event {
    fn from(event: peer::Event) -> Event {
        match event {
            peer::Event::Path(event) => Event::Path(event),
            peer::Event::Notice { text } => Event::Notice { text },
        }
    }
}

/// Adapts the channel of a transfer's events to events of paths.
#[must_use]
pub fn path_events(events: &Events) -> peer::Events {
    let events = events.clone();
    peer::Events::new(move |event| {
        // Without an observer the transfer goes on all the same.
        let _ = events.send(event.into());
    })
}
