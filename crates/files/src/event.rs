//! What a transfer tells whoever watches it: the progress display, the JSON stream, the tests.

use std::net::SocketAddr;

use units::{Bytes, PathId, Rate, Span};

use peer::{Fingerprint, PathEvent, PathState};

/// Where events go. Unbounded, because a transfer never waits for its display.
pub type Events = tokio::sync::mpsc::UnboundedSender<Event>;

/// Something happened in a transfer.
#[derive(Clone, Debug)]
pub enum Event {
    /// The receiver is reachable at these addresses; all of them share one port.
    Listening {
        /// Addresses that a sender may name, most useful first.
        addresses: Vec<SocketAddr>,
    },
    /// Both sides know each other and what is to be sent.
    Started {
        /// The other side's key.
        peer: Fingerprint,
        /// Regular files in the transfer, those included that need not be sent.
        files: usize,
        /// Bytes of all files; holes are none.
        total: Bytes,
        /// Of these, bytes that are there already: of files that have not changed, or from an
        /// earlier attempt.
        resumed: Bytes,
    },
    /// A path changed its state.
    Path(PathEvent),
    /// A regular report, several times a second.
    Progress(Progress),
    /// A file is complete: verified, synced and under its final name.
    FileDone {
        /// Its name as announced.
        name: String,
        /// Its size.
        size: Bytes,
        /// BLAKE3 of its contents, in hex; what `b3sum` prints. Not known of a file with holes.
        blake3: Option<String>,
    },
    /// Something worth a line to a person that ends nothing.
    Notice {
        /// The sentence.
        text: String,
    },
}

/// A transfer at one moment.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Since the first connection attempt.
    pub elapsed: Span,
    /// Acknowledged by the receiver (at the receiver: received), earlier attempts included.
    pub done: Bytes,
    /// All there is.
    pub total: Bytes,
    /// Recent rate of all paths together.
    pub rate: Rate,
    /// Expected time to the end.
    pub eta: Option<Span>,
    /// Sent more than once so far.
    pub repeated: Bytes,
    /// Rate of all paths over the best rate that any single path would have given, where both are
    /// known.
    pub gain: Option<f64>,
    /// Each path.
    pub paths: Vec<PathProgress>,
}

/// A path at one moment.
#[derive(Clone, Debug)]
pub struct PathProgress {
    /// Which.
    pub path: PathId,
    /// As in [`peer::PathEvent`].
    pub name: String,
    /// What it is doing.
    pub state: PathState,
    /// Its ends, once connected.
    pub local: Option<SocketAddr>,
    /// The other end.
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
}

/// How a transfer ended well.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Files completed.
    pub files: usize,
    /// Bytes of all files.
    pub total: Bytes,
    /// Bytes that this session moved (neither what was there before nor repeats counted).
    pub moved: Bytes,
    /// Bytes sent more than once in this session.
    pub repeated: Bytes,
    /// From the first connection attempt to the last verified byte.
    pub elapsed: Span,
    /// Time spent in the final sync to disk.
    pub sync: Span,
    /// When each path that was used brought its last new byte, as a span from the start; for idle
    /// time.
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

/// The events of paths, on their way to the observer of a transfer.
#[must_use]
pub fn path_events(events: &Events) -> peer::Events {
    let events = events.clone();
    peer::Events::new(move |event| {
        // Without an observer the transfer goes on all the same.
        let _ = events.send(event.into());
    })
}
