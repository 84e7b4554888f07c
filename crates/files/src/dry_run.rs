//! Dry runs: what a transfer would do.

use events::{Action, Changed, DryRun, PlannedChange};
use transfer::Tree;
use units::Bytes;
use wire::Emit;
use wire::files::FileFrame;
use wire::files::{Deletes, MAX_RANGES, Range};
use wire::manifest::Kind;

use crate::protocol::{Want, ranges, want_frames};
use crate::sink::{DOOMED_BYTES, Fate, Survey};

/// The most memory of what would be deleted: a name takes some more here than at the sink.
const DELETED_BYTES: usize = 2 * DOOMED_BYTES;

/// The entries of a tree by what a sink would do with them.
pub(crate) struct Verdict {
    pub(crate) wanted: Want,
    pub(crate) created: Want,
    pub(crate) replaced: Want,
    pub(crate) kept: Want,
    pub(crate) updated: Want,
    /// What would be deleted.
    deleted: Vec<PlannedChange>,
    /// The memory that the names of `deleted` take, in bytes.
    deleted_bytes: usize,
}

impl Verdict {
    /// Nothing would happen to any of `entries`.
    pub(crate) fn new(entries: usize) -> Verdict {
        let [wanted, created, replaced, kept, updated] = [(); 5].map(|()| Want::new(entries));
        let (deleted, deleted_bytes) = (Vec::new(), 0);
        Verdict { wanted, created, replaced, kept, updated, deleted, deleted_bytes }
    }

    /// What a survey of the sink found.
    pub(crate) fn of(survey: &Survey, tree: &Tree) -> Verdict {
        let mut verdict = Verdict::new(tree.entries().len());
        let of_tree = "the survey is of this tree";
        for range in survey.ranges(tree) {
            verdict.wanted.add(range).expect(of_tree);
        }
        for (entries, fate) in [
            (&mut verdict.created, Fate::Created),
            (&mut verdict.replaced, Fate::Replaced),
            (&mut verdict.kept, Fate::Kept),
            (&mut verdict.updated, Fate::Updated),
        ] {
            for range in ranges(survey.of_fate(fate)) {
                entries.add(range).expect(of_tree);
            }
        }
        for doomed in &survey.at_end.doomed {
            verdict.delete(&doomed.deletes());
        }
        verdict
    }

    /// Emits a survey, from which the other side makes its own verdict.
    pub(crate) fn emit(survey: &Survey, tree: &Tree, out: &mut Vec<u8>) {
        want_frames(&survey.ranges(tree)).for_each(|frame| frame.emit(out));
        let parts = |fate| {
            let all = ranges(survey.of_fate(fate));
            all.chunks(MAX_RANGES).map(<[Range]>::to_vec).collect::<Vec<_>>()
        };
        for part in parts(Fate::Created) {
            FileFrame::Creates(part).emit(out);
        }
        for part in parts(Fate::Replaced) {
            FileFrame::Replaces(part).emit(out);
        }
        for part in parts(Fate::Kept) {
            FileFrame::Keeps(part).emit(out);
        }
        for part in parts(Fate::Updated) {
            FileFrame::Updates(part).emit(out);
        }
        for doomed in &survey.at_end.doomed {
            FileFrame::Deletes(doomed.deletes()).emit(out);
        }
    }

    /// Adds what would be deleted; `None` if it is more than any sink lists.
    pub(crate) fn delete(&mut self, deletes: &Deletes<'_>) -> Option<()> {
        self.deleted_bytes += size_of::<PlannedChange>() + deletes.path.len();
        if self.deleted_bytes > DELETED_BYTES {
            return None;
        }
        let name = String::from_utf8_lossy(deletes.path).into_owned();
        let is_folder = deletes.is_folder;
        let what = if is_folder { Changed::Folder } else { Changed::File(Bytes(deletes.size)) };
        self.deleted.push(PlannedChange { action: Action::Delete, name, what });
        Some(())
    }

    /// The verdict on `tree`, for people.
    pub(crate) fn dry_run(self, tree: &Tree) -> DryRun {
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
            let action = if self.created.has(index) {
                Action::Create
            } else if self.replaced.has(index) {
                Action::Replace
            } else if self.kept.has(index) {
                Action::Keep
            } else if self.updated.has(index) {
                Action::Update
            } else {
                if let Changed::File(size) = what {
                    dry_run.unchanged += 1;
                    dry_run.unchanged_size += size;
                }
                continue;
            };
            let name = String::from_utf8_lossy(&entry.path).into_owned();
            dry_run.changes.push(PlannedChange { action, name, what });
        }
        dry_run.changes.extend(self.deleted);
        dry_run
    }
}
