//! The vocabulary of events.

use std::net::SocketAddr;
use std::path::PathBuf;

use units::Bytes;

use crate::{DryRun, FeedProgress, Listed, PathEvent, Progress, Summary};

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The host is reachable at these addresses; all of them share one port.
    Listening {
        /// Addresses that a peer may use, most useful first.
        addresses: Vec<SocketAddr>,
    },
    /// The host can be met at a relay.
    Meeting {
        /// The relay: its host, its port, a comma, and the fingerprint of its key.
        via: String,
        /// A code with which it can be met there too, for a while.
        code: Option<String>,
    },
    /// Programs of this host, or of its network, may connect here.
    Accepting {
        /// For what: `SOCKS`, `HTTP` or `forward`, for example.
        what: String,
        /// The address, or the path of a Unix socket.
        address: String,
    },
    /// Both sides are authenticated and agree on the files.
    Started {
        /// The number of the transfer at this host: 0 where there is only one; a host that listens
        /// counts from 1.
        transfer: u32,
        /// The fingerprint of the other side's key.
        peer: String,
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
    /// A report of a feed, each second in which something has changed.
    Feed(FeedProgress),
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
    /// What the transfer would do, if it was asked for that alone. It ends with this event, and
    /// transfers nothing.
    DryRun(DryRun),
    /// What a server offers, if that was asked for. The fetch ends with this event.
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
    /// A message for a person; nothing ends.
    Notice {
        /// The message.
        text: String,
    },
    /// A message for those who want to know everything: a connection began or ended, for example.
    Detail {
        /// The message.
        text: String,
    },
}

impl Event {
    /// The memory of its texts in bytes, as far as peers decide on it.
    pub(crate) fn text_bytes(&self) -> usize {
        let entry = |name: &String| name.len() + ENTRY;
        match self {
            Event::Notice { text } | Event::Detail { text } => text.len(),
            Event::Path { event, .. } => event.name.len() + event.why.len(),
            Event::FileDone { name, blake3, .. } => {
                name.len() + blake3.as_ref().map_or(0, String::len)
            }
            Event::LeftOut { path, reason } => path.as_os_str().len() + reason.len(),
            Event::Ended { result: Err(failed), .. } => failed.text.len(),
            Event::DryRun(dry_run) => {
                dry_run.changes.iter().map(|change| entry(&change.name)).sum()
            }
            Event::Listing(listing) => listing.iter().map(|listed| entry(&listed.name)).sum(),
            Event::Progress(progress) => progress.current.as_ref().map_or(0, String::len),
            Event::Listening { .. }
            | Event::Accepting { .. }
            | Event::Meeting { .. }
            | Event::Started { .. }
            | Event::Feed(_)
            | Event::Ended { result: Ok(_), .. } => 0,
        }
    }
}

/// What an entry of a list takes beside its name, in bytes.
const ENTRY: usize = 64;

/// Why one of the transfers of a listening host failed: an error as an observer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The exit code of a process that has only this transfer.
    pub exit_code: u8,
    /// The cause, and what to do.
    pub text: String,
}
