//! What paths are for, as the side that dials has it.

use std::collections::BTreeMap;

use units::SubflowId;

use crate::{Class, PathStanding};

/// What was asked for, by path.
#[derive(Debug, Default)]
pub(super) struct Standings(BTreeMap<SubflowId, PathStanding>);

impl Standings {
    /// These, in place of those before.
    pub(super) fn set(&mut self, all: Vec<PathStanding>) {
        self.0 = all.into_iter().map(|one| (one.path, one)).collect();
    }

    /// Notes something of a path, which is a usual one until then.
    pub(super) fn note(&mut self, path: SubflowId, note: impl FnOnce(&mut PathStanding)) {
        let usual = PathStanding { path, class: Class::Usual, rate: None, is_background: false };
        note(self.0.entry(path).or_insert(usual));
    }

    /// A path has ended. Whether anything was noted of it.
    pub(super) fn forget(&mut self, path: SubflowId) -> bool {
        self.0.remove(&path).is_some()
    }

    /// What was noted of a path.
    pub(super) fn of(&self, path: SubflowId) -> Option<PathStanding> {
        self.0.get(&path).copied()
    }

    /// All, in the order of their paths.
    pub(super) fn all(&self) -> Vec<PathStanding> {
        self.0.values().copied().collect()
    }
}
