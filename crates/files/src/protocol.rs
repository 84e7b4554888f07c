//! Protocol details that both sides share: abort codes, lists of wanted entries, and limits.

use wire::Frame;
use wire::frame::{AbortCode, Range};
use wire::manifest::{Entry, Kind};

use crate::Error;

/// The most outstanding requests of a fetching side on one path.
pub(crate) const MOST_REQUESTS: usize = 1_024;
/// The most memory that a manifest may take: some two million entries.
pub(crate) const MANIFEST_BYTES: usize = 256 << 20;
/// Approximate memory of an entry.
pub(crate) fn footprint(entry: &Entry) -> usize {
    let more = match &entry.kind {
        Kind::File(file) => {
            file.data.as_ref().map_or(0, |data| data.len() * size_of::<(u64, u64)>())
        }
        Kind::Symlink { target, .. } => target.len(),
        Kind::Directory { .. } | Kind::HardLink { .. } => 0,
    };
    size_of::<Entry>() + entry.path.len() + more
}

/// The abort code for a local error.
pub(crate) fn code_of(error: &Error) -> AbortCode {
    match error {
        Error::Exists { .. } | Error::InTheWay { .. } => AbortCode::Exists,
        Error::NoSpace { .. } => AbortCode::NoSpace,
        Error::Disk { .. } | Error::Output { .. } | Error::Peer(peer::Error::System { .. }) => {
            AbortCode::Disk
        }
        Error::Integrity { .. } => AbortCode::Integrity,
        Error::SourceChanged { .. } => AbortCode::Changed,
        Error::Source { .. } | Error::Unavailable { .. } => AbortCode::Source,
        Error::Peer(peer::Error::Protocol(_)) => AbortCode::Protocol,
        _ => AbortCode::Refused,
    }
}

/// The code and the text of the abort frame for an error of the source.
pub(crate) fn source_abort(error: &Error) -> (AbortCode, String) {
    let text = match error {
        // The other side writes its own sentence about the path.
        Error::SourceChanged { path } => path.display().to_string(),
        error => error.to_string(),
    };
    (code_of(error), text)
}

/// The local error for an abort of the other side.
pub(crate) fn error_of(code: AbortCode, text: String) -> Error {
    match code {
        AbortCode::Refused | AbortCode::Crowded => Error::refused(text),
        AbortCode::Exists | AbortCode::NoSpace | AbortCode::Disk => {
            Error::Receiver { reason: text }
        }
        AbortCode::Integrity => Error::Integrity { what: "the transfer".into(), detail: text },
        AbortCode::Protocol | AbortCode::NoSession => Error::protocol(text),
        AbortCode::Source => Error::Unavailable { reason: text },
        AbortCode::Changed => Error::SourceChanged { path: text.into() },
        AbortCode::Stopped => Error::refused(format!("it was stopped: {text}")),
    }
}

/// The wanted entries, as frames.
pub(crate) fn want_frames(want: &[Range]) -> impl Iterator<Item = Frame<'static>> {
    want.chunks(wire::frame::MAX_RANGES).map(|ranges| Frame::Want(ranges.to_vec()))
}

/// The entries of a tree that the sink wants.
pub(crate) struct Want(Vec<bool>);

impl Want {
    /// An empty selection out of `entries`.
    pub(crate) fn new(entries: usize) -> Want {
        Want(vec![false; entries])
    }

    /// Adds a range; `None` if it exceeds the tree.
    pub(crate) fn add(&mut self, range: Range) -> Option<()> {
        let start = usize::try_from(range.start).ok()?;
        let end = start.checked_add(usize::try_from(range.len).ok()?)?;
        self.0.get_mut(start..end)?.fill(true);
        Some(())
    }

    /// Whether an entry is wanted.
    pub(crate) fn has(&self, entry: usize) -> bool {
        self.0[entry]
    }
}
