//! Files that change while they are sent. One that only grew is sent as it was, its first bytes;
//! all others are left out.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use wire::files::Changed;
use wire::files::FileFrame;

use crate::Error;

/// What is done about files that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Every change ends the transfer.
    None,
    /// A file may grow; every other change ends the transfer.
    Growth,
    /// A large file may grow; one that changes otherwise, or that cannot be read, is left out, and
    /// so is a small one that grew: another session follows, which sends it whole.
    Follow,
    /// A file may grow; one that changes otherwise, or that cannot be read, is left out.
    All,
}

impl Tolerance {
    /// The tolerance for so many files. Nothing would be left of a single one.
    pub(crate) fn of(is_strict: bool, files: usize) -> Tolerance {
        match (is_strict, files) {
            (true, _) => Tolerance::None,
            (false, 0 | 1) => Tolerance::Growth,
            (false, _) => Tolerance::All,
        }
    }
}

/// The changes that were seen.
#[derive(Default)]
pub(crate) struct FileChanges {
    seen: Mutex<SeenChanges>,
    /// Held while a file that grew is compared with what was sent of it.
    judging: Mutex<BTreeSet<usize>>,
}

#[derive(Default)]
struct SeenChanges {
    /// In the order in which they were seen.
    all: Vec<FileChange>,
    grown: BTreeSet<usize>,
    left_out: BTreeSet<usize>,
}

/// A change of the file with this index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileChange {
    pub(crate) entry: usize,
    /// Why it is left out; `None` if it only grew.
    pub(crate) left_out: Option<String>,
}

impl FileChange {
    /// The frame that tells the sink of it.
    pub(crate) fn frame(&self) -> FileFrame<'_> {
        let entry = u32::try_from(self.entry).expect("a tree holds fewer");
        let reason = self.left_out.as_deref().unwrap_or_default();
        FileFrame::Changed(Changed { entry, is_left_out: self.left_out.is_some(), reason })
    }
}

impl FileChanges {
    /// The file was longer than its size when it was read.
    pub(super) fn note_grown(&self, entry: usize) {
        let mut seen = self.seen();
        if seen.grown.insert(entry) {
            seen.all.push(FileChange { entry, left_out: None });
        }
    }

    /// The file is left out because of `error`.
    pub(super) fn leave_out(&self, entry: usize, error: &Error) {
        let mut seen = self.seen();
        if seen.left_out.insert(entry) {
            seen.all.push(FileChange { entry, left_out: Some(reason(error)) });
        }
    }

    /// Whether the file grew.
    pub(super) fn has_grown(&self, entry: usize) -> bool {
        self.seen().grown.contains(&entry)
    }

    /// Whether the file is left out.
    pub(crate) fn is_left_out(&self, entry: usize) -> bool {
        self.seen().left_out.contains(&entry)
    }

    /// The number of files that are left out.
    pub(crate) fn left_out(&self) -> usize {
        self.seen().left_out.len()
    }

    /// The changes behind the first `known` ones.
    pub(crate) fn since(&self, known: usize) -> Vec<FileChange> {
        self.seen().all.get(known..).unwrap_or_default().to_vec()
    }

    /// Calls `judge` once for a file that grew, whoever asks; others wait for it.
    pub(super) fn judge_once(&self, entry: usize, judge: impl FnOnce()) {
        let mut judged = self.judging.lock().expect("no panic while held");
        if judged.insert(entry) {
            judge();
        }
    }

    fn seen(&self) -> MutexGuard<'_, SeenChanges> {
        self.seen.lock().expect("no panic while held")
    }
}

/// Why a file is left out, in words.
fn reason(error: &Error) -> String {
    match error {
        // Without the number that the standard library adds.
        Error::Source { source, .. } => {
            source.to_string().split(" (os error").next().unwrap_or_default().into()
        }
        _ => "it changed while it was sent".into(),
    }
}
