//! Files that changed at the source after both sides agreed on them.

use std::collections::BTreeSet;
use std::sync::MutexGuard;

use peer::ConnError;
use units::Bytes;
use wire::files::Changed;

use super::SinkSession;
use crate::Error;
use crate::left_out::LeftOuts;
use crate::sink::settle::Completed;
use events::Event;

/// Files that changed meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Files that get no name.
    entries: BTreeSet<usize>,
    /// Files that only grew.
    grown: BTreeSet<usize>,
    /// The first of those without a name, for people.
    left_out: LeftOuts,
}

impl Missing {
    /// Whether the file of this index gets no name.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.entries.contains(&index)
    }

    /// The files that get no name, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().copied()
    }

    /// Whether all files get their names.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl SinkSession {
    /// Handles the news of a file that changed. Returns the object that is left out with it, if
    /// there is one: nothing of it will come.
    pub(crate) fn handle_changed(&self, changed: &Changed<'_>) -> Result<Option<usize>, ConnError> {
        let entry = usize::try_from(changed.entry).unwrap_or(usize::MAX);
        let Some(size) = self.tree().file(entry).map(|file| file.size) else {
            return Err(ConnError::Unexpected("Changed of what is no file".into()));
        };
        let shown = self.target.directory.shown(&self.tree().entries()[entry].path);
        let object = self.target.packing.object_of_large(entry);
        let mut missing = self.missing();
        if missing.has(entry) {
            return Ok(object);
        }
        let mut reason = changed.reason;
        if !changed.is_left_out {
            if !missing.grown.insert(entry) {
                return Ok(None);
            }
            let whole = object.and_then(|object| self.layout().object_extent(object));
            let is_known = !whole.is_some_and(|whole| self.journaled.intersects(whole));
            let is_followed = self.is_followed && object.is_none() && self.tree().file_count() > 1;
            if is_known && !is_followed {
                let path = shown.display();
                let size = Bytes(size);
                let text = format!("{path} grew while it was sent: its first {size} arrive");
                self.events.notice(text);
                return Ok(None);
            }
            // The source cannot compare what an earlier attempt sent with what is there.
            reason = if is_known { "" } else { "it changed between two attempts" };
        }
        if self.delivery.is_some() {
            drop(missing);
            return Err(self.fail(Error::SourceChanged { path: shown }));
        }
        missing.entries.insert(entry);
        let reason = if reason.is_empty() { "it changed while it was sent" } else { reason };
        missing.left_out.add(shown, reason.to_string());
        drop(missing);
        let Some(object) = object else { return Ok(None) };
        if self.core().handle_left_out(object) {
            self.unnamed().push(Completed::LeftOut(object));
        }
        Ok(Some(object))
    }

    /// The number of files that get no name because they changed.
    pub(crate) fn left_out(&self) -> usize {
        self.missing().entries.len()
    }

    /// An event for each of these files that is known by name.
    pub(crate) fn left_out_events(&self) -> Vec<Event> {
        self.missing().left_out.events().collect()
    }

    pub(super) fn missing(&self) -> MutexGuard<'_, Missing> {
        self.target.missing()
    }
}
