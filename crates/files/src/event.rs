//! Events of a transfer for its observer: the progress display, the JSON stream, the tests.

use std::net::SocketAddr;
use std::path::PathBuf;

use units::{Bytes, PathId, Rate, Span};

use peer::{Fingerprint, PathEvent, PathState};

use crate::{DryRun, Error, Listed};

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
        /// The number of the transfer at this host: 0 with [`send`](crate::send) and
        /// [`fetch`](crate::fetch), which have one; a host that listens counts from 1.
        transfer: u32,
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
    Path {
        /// As in [`Event::Started`].
        transfer: u32,
        /// The path, and its state.
        event: PathEvent,
    },
    /// A periodic report, several times a second.
    Progress(Progress),
    /// A file is complete: verified, synced and under its final name.
    FileDone {
        /// As in [`Event::Started`].
        transfer: u32,
        /// Its name as announced.
        name: String,
        /// Its size.
        size: Bytes,
        /// BLAKE3 of its contents in hexadecimal, as `b3sum` prints it. `None` for a file with
        /// holes.
        blake3: Option<String>,
    },
    /// What the transfer would do, with [`TransferOptions::dry_run`](crate::TransferOptions). It
    /// ends with this event, and transfers nothing.
    DryRun(DryRun),
    /// What a server offers, with [`FetchOptions::list`](crate::FetchOptions). The fetch ends with
    /// this event.
    Listing(Vec<Listed>),
    /// A transfer of a host that goes on listening is over.
    Ended {
        /// As in [`Event::Started`].
        transfer: u32,
        /// What it moved, or why it failed.
        result: Result<Summary, Failed>,
    },
    /// A file or folder could not be read, or is of a kind that is not sent: it is left out, and
    /// the transfer continues. Only the first thousand are reported; [`Summary::left_out`] counts
    /// all.
    LeftOut {
        /// Its path, here or at the server.
        path: PathBuf,
        /// The reason, in words.
        reason: String,
    },
    /// A message for a person; the transfer continues.
    Notice {
        /// The message.
        text: String,
    },
}

/// Why one of the transfers of a listening host failed: an [`Error`] as an observer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The exit code of a process that has only this transfer.
    pub exit_code: u8,
    /// The cause, and what to do.
    pub text: String,
}

impl From<&Error> for Failed {
    fn from(error: &Error) -> Failed {
        Failed { exit_code: error.exit_code(), text: error.to_string() }
    }
}

/// A snapshot of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// As in [`Event::Started`].
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
    /// nothing. [`TransferOptions`](crate::TransferOptions) say how long the transfer waits.
    pub standstill: Option<Standstill>,
    /// Bytes sent more than once so far.
    pub repeated: Bytes,
    /// Rate of all paths over the best rate that any single path would have given, where both are
    /// known.
    pub gain: Option<f64>,
    /// A snapshot of each path.
    pub paths: Vec<PathProgress>,
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
    /// Number of the path in its session, as in [`peer::PathEvent`]; the name stays with it.
    pub path: PathId,
    /// As in [`peer::PathEvent`].
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
    /// Entries whose owner could not be set at the sink, with
    /// [`Selection::archive`](crate::Selection).
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
    pub(crate) fn after(mut self, first: Option<Summary>) -> Summary {
        if let Some(first) = first {
            self.moved += first.moved;
            self.repeated += first.repeated;
            self.elapsed += first.elapsed;
            self.sync += first.sync;
        }
        self
    }

    /// This summary, although a session after it has failed.
    ///
    /// # Errors
    /// The error of that session, if its caller has stopped it.
    pub(crate) fn unless_stopped(self, error: Error, events: &Events) -> Result<Summary, Error> {
        if matches!(error, Error::Stopped { .. }) {
            return Err(error);
        }
        let text = format!("what changed while it was sent could not be sent once more: {error}");
        let _ = events.send(Event::Notice { text });
        Ok(self)
    }
}

impl From<peer::Event> for Event {
    fn from(event: peer::Event) -> Event {
        match event {
            peer::Event::Path(event) => Event::Path { transfer: 0, event },
            peer::Event::Notice { text } => Event::Notice { text },
        }
    }
}
