//! Entries that could not be read, and were left out of a transfer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use wire::files::FileFrame;
use wire::files::LeftOut;

use events::Event;

/// The entries that were left out; the first of them by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftOuts {
    named: Vec<(PathBuf, String)>,
    count: usize,
}

/// The most entries that are named: a folder may hold any number of pipes.
pub(crate) const MOST_NAMED: usize = 1_000;

impl LeftOuts {
    /// Adds an entry with the reason. Returns the bytes of memory that this takes.
    pub(crate) fn add(&mut self, path: PathBuf, reason: String) -> usize {
        self.count += 1;
        if self.named.len() == MOST_NAMED {
            return 0;
        }
        let bytes = size_of::<(PathBuf, String)>() + path.as_os_str().len() + reason.len();
        self.named.push((path, reason));
        bytes
    }

    /// Adds what the other side says; `None` if it names more than `most`.
    pub(crate) fn hear(&mut self, left_out: &LeftOut<'_>, most: usize) -> Option<()> {
        if self.named.len() == most {
            return None;
        }
        let path = PathBuf::from(OsStr::from_bytes(left_out.path));
        self.add(path, left_out.reason.to_string());
        self.count = self.count.saturating_add(usize::try_from(left_out.more).ok()?);
        Some(())
    }

    /// The number of entries.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The entries that are known by name, with the reasons.
    pub(crate) fn named(&self) -> &[(PathBuf, String)] {
        &self.named
    }

    /// An event for each entry that is known by name.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.named
            .iter()
            .map(|(path, reason)| Event::LeftOut { path: path.clone(), reason: reason.clone() })
    }

    /// Frames that name at most `most` entries, of which the last one counts all others.
    pub(crate) fn frames(&self, most: usize) -> impl Iterator<Item = FileFrame<'_>> {
        let named = &self.named[..self.named.len().min(most)];
        let others = u32::try_from(self.count - named.len()).unwrap_or(u32::MAX);
        named.iter().enumerate().map(move |(index, (path, reason))| {
            let more = if index + 1 == named.len() { others } else { 0 };
            FileFrame::LeftOut(LeftOut { path: path.as_os_str().as_bytes(), reason, more })
        })
    }

    /// The first entry, the reason and the number of the others, for a message; `None` if there is
    /// no entry.
    pub(crate) fn in_short(&self) -> Option<String> {
        let (path, reason) = self.named.first()?;
        let others = match self.count - 1 {
            0 => String::new(),
            1 => ", and another one".into(),
            others => format!(", and {others} others"),
        };
        Some(format!("{} ({reason}){others}", path.display()))
    }
}
