//! Dry runs: what a transfer would do.

use transfer::Tree;
use units::Bytes;
use wire::Frame;
use wire::frame::MAX_RANGES;
use wire::manifest::Kind;

use crate::protocol::{Want, ranges, want_frames};
use crate::sink::Survey;

/// What a transfer would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// The changes at the sink, in the order of the tree.
    pub changes: Vec<Change>,
    /// Data that would be sent, as far as an earlier attempt has not sent them.
    pub sent: Bytes,
    /// Number of files that would stay as they are.
    pub unchanged: usize,
    /// Their size.
    pub unchanged_size: Bytes,
}

/// A change of one entry at the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What would happen.
    pub action: Action,
    /// The entry's path.
    pub name: String,
    /// What it is.
    pub what: Changed,
}

/// What would happen to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It does not exist yet.
    Create,
    /// There is another one in its place.
    Replace,
}

/// The kind of an entry that would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A file of this size, holes included.
    File(Bytes),
    /// A folder.
    Folder,
    /// A link, or a further name of a file.
    Link,
}

/// The entries of a tree by what a sink would do with them.
pub(crate) struct Verdict {
    pub(crate) wanted: Want,
    pub(crate) created: Want,
    pub(crate) replaced: Want,
}

impl Verdict {
    /// Nothing would happen to any of `entries`.
    pub(crate) fn new(entries: usize) -> Verdict {
        let [wanted, created, replaced] = [(); 3].map(|()| Want::new(entries));
        Verdict { wanted, created, replaced }
    }

    /// What a survey of the sink found.
    pub(crate) fn of(survey: &Survey, tree: &Tree) -> Verdict {
        let mut verdict = Verdict::new(tree.entries().len());
        let of_tree = "the survey is of this tree";
        for range in survey.ranges(tree) {
            verdict.wanted.add(range).expect(of_tree);
        }
        for range in ranges(survey.created.iter().copied()) {
            verdict.created.add(range).expect(of_tree);
        }
        for range in ranges(survey.replaced.iter().copied()) {
            verdict.replaced.add(range).expect(of_tree);
        }
        verdict
    }

    /// The frames of a survey, from which the other side makes its own verdict.
    pub(crate) fn frames(survey: &Survey, tree: &Tree) -> Vec<Frame<'static>> {
        let mut frames: Vec<Frame<'static>> = want_frames(&survey.ranges(tree)).collect();
        for part in ranges(survey.created.iter().copied()).chunks(MAX_RANGES) {
            frames.push(Frame::Creates(part.to_vec()));
        }
        for part in ranges(survey.replaced.iter().copied()).chunks(MAX_RANGES) {
            frames.push(Frame::Replaces(part.to_vec()));
        }
        frames
    }

    /// The verdict on `tree`, for people.
    pub(crate) fn dry_run(&self, tree: &Tree) -> DryRun {
        let mut dry_run = DryRun::default();
        for (index, entry) in tree.entries().iter().enumerate() {
            let what = match &entry.kind {
                Kind::File(file) => {
                    if self.wanted.has(index) {
                        dry_run.sent += Bytes(file.data_len());
                    }
                    Changed::File(Bytes(file.size))
                }
                Kind::Directory { .. } => Changed::Folder,
                Kind::Symlink { .. } | Kind::HardLink { .. } => Changed::Link,
            };
            let action = match (self.created.has(index), self.replaced.has(index), what) {
                (true, ..) => Action::Create,
                (_, true, _) => Action::Replace,
                (.., Changed::File(size)) => {
                    dry_run.unchanged += 1;
                    dry_run.unchanged_size += size;
                    continue;
                }
                _ => continue,
            };
            let name = String::from_utf8_lossy(&entry.path).into_owned();
            dry_run.changes.push(Change { action, name, what });
        }
        dry_run
    }
}
