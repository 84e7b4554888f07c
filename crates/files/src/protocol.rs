//! Protocol details that both sides share: abort codes, lists of wanted entries, and limits.

use transfer::{Extent, Packing, Tree};
use wire::files::FileFrame;
use wire::files::{MAX_FILTER, Range};
use wire::manifest::{Attributes, Entry, Extended, Kind, Part};
use wire::session::AbortCode;

use peer::Conn;
use transfer::Piece;

use crate::{Error, Selection};

/// The most outstanding requests of a fetching side on one path.
pub(crate) const MOST_REQUESTS: usize = 1_024;
/// The most patterns that one side takes of the other, and the most bytes of all of them.
pub(crate) const MOST_FILTERS: usize = 256;
pub(crate) const FILTERS_BYTES: usize = 16 << 10;
/// The most folders in which a sender may have things deleted.
pub(crate) const MOST_MIRRORS: usize = 1_024;
/// The most memory that a manifest may take: some two million entries.
pub(crate) const MANIFEST_BYTES: usize = 256 << 20;
/// Approximate memory of a part of a manifest. An extent is counted where it is in the list, and
/// where it is in the layout.
pub(crate) fn footprint(part: &Part) -> usize {
    match part {
        Part::Entry(entry) => footprint_of(entry),
        Part::Extents(extents) => footprint_of_extents(extents),
        Part::Owner(attributes) => footprint_of_attributes(attributes),
        Part::Attribute(extended) => footprint_of_extended(extended),
    }
}

fn footprint_of_extents(extents: &[(u64, u64)]) -> usize {
    extents.len() * (size_of::<(u64, u64)>() + size_of::<Piece>())
}

/// Approximate memory of the owner and the extended attributes of an entry, in a map.
pub(crate) fn footprint_of_attributes(attributes: &Attributes) -> usize {
    let extended = attributes.extended.iter().map(footprint_of_extended);
    size_of::<(usize, Attributes)>() * 3 / 2 + extended.sum::<usize>()
}

/// A list grows to twice its length, and so does each allocation of a few bytes.
fn footprint_of_extended(extended: &Extended) -> usize {
    2 * size_of::<Extended>() + 32 + extended.len()
}

/// As [`footprint`], of a whole entry.
pub(crate) fn footprint_of(entry: &Entry) -> usize {
    let more = match &entry.kind {
        Kind::File(file) => file.data.as_deref().map_or(0, footprint_of_extents),
        Kind::Symlink { target, .. } => target.len(),
        Kind::Directory { .. } | Kind::HardLink { .. } => 0,
    };
    size_of::<Entry>() + entry.path.len() + more
}

/// The name of the file whose data lie at `position` of the layout.
pub(crate) fn file_at(tree: &Tree, packing: &Packing, position: u64) -> Option<String> {
    let piece = packing.pieces(Extent::new(position, 1)).next()?;
    Some(String::from_utf8_lossy(&tree.entries()[piece.entry].path).into_owned())
}

/// The abort code for a local error.
pub(crate) fn code_of(error: &Error) -> AbortCode {
    match error {
        Error::Exists { .. }
        | Error::InTheWay { .. }
        | Error::TooMuchToDelete { .. }
        | Error::NothingLeft { .. } => AbortCode::Exists,
        Error::NoSpace { .. } => AbortCode::NoSpace,
        Error::Disk { .. } | Error::Output { .. } | Error::Peer(peer::Error::System { .. }) => {
            AbortCode::Disk
        }
        Error::Integrity { .. } => AbortCode::Integrity,
        Error::SourceChanged { .. } => AbortCode::Changed,
        Error::Source { .. } | Error::Unavailable { .. } => AbortCode::Source,
        Error::Peer(peer::Error::Protocol(_)) => AbortCode::Protocol,
        Error::Peer(peer::Error::Busy { .. }) => AbortCode::Busy,
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
        AbortCode::Refused | AbortCode::Crowded | AbortCode::NoService => Error::refused(text),
        AbortCode::Busy => peer::Error::Busy { reason: text }.into(),
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

/// Entries as ranges, from their indices in order.
pub(crate) fn ranges(indices: impl IntoIterator<Item = usize>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for index in indices {
        let at = index as u64;
        match ranges.last_mut().filter(|last| last.start + last.len == at) {
            Some(last) => last.len += 1,
            None => ranges.push(Range { start: at, len: 1 }),
        }
    }
    ranges
}

impl Selection {
    /// Checks that the other side takes the patterns.
    pub(crate) fn check_filters(&self) -> Result<(), Error> {
        let all = || self.include.iter().chain(&self.exclude);
        if let Some(glob) = all().find(|glob| glob.len() > MAX_FILTER) {
            return Err(Error::usage(format!("the pattern {glob} is too long")));
        }
        Ok(())
    }

    /// Queues a frame for each pattern.
    pub(crate) fn push_filters(&self, conn: &mut Conn) {
        for (include, globs) in [(true, &self.include), (false, &self.exclude)] {
            for glob in globs {
                conn.push(&FileFrame::Filter(include, glob));
            }
        }
    }

    /// Takes a pattern of the other side; `None` if it is one too many.
    pub(crate) fn hear_filter(&mut self, include: bool, glob: &str) -> Option<()> {
        let all = || self.include.iter().chain(&self.exclude);
        let bytes: usize = all().map(String::len).sum();
        if all().count() == MOST_FILTERS || bytes + glob.len() > FILTERS_BYTES {
            return None;
        }
        let globs = if include { &mut self.include } else { &mut self.exclude };
        globs.push(glob.to_string());
        Some(())
    }
}

/// The wanted entries, as frames.
pub(crate) fn want_frames(want: &[Range]) -> impl Iterator<Item = FileFrame<'static>> {
    want.chunks(wire::files::MAX_RANGES).map(|ranges| FileFrame::Want(ranges.to_vec()))
}

/// Entries of a tree, such as those that the sink wants.
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
