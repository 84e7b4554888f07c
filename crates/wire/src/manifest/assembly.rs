//! Entries out of the parts of a manifest.

use alloc::vec::Vec;

use super::{AttributesOf, Entry, File, Kind, MAX_EXTENTS, NAME, Part, ascend};
use crate::WireError;

/// Puts the entries of a manifest together from the parts of its chunks.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    entries: Vec<Entry>,
    attributes: AttributesOf,
    /// Whether attributes are taken.
    is_archive: bool,
}

impl Assembly {
    /// A manifest without any entry so far, whose entries may have attributes if it `is_archive`.
    #[must_use]
    pub fn new(is_archive: bool) -> Assembly {
        Assembly { is_archive, ..Assembly::default() }
    }

    /// Adds the next part.
    ///
    /// # Errors
    /// If it does not continue the last entry; if it is an attribute, and nobody asked for any.
    pub fn add(&mut self, part: Part) -> Result<(), WireError> {
        let bad = |field| WireError::Field { frame: NAME, field };
        match part {
            Part::Entry(entry) => {
                self.entries.push(entry);
                Ok(())
            }
            Part::Extents(more) => self.add_extents(more),
            Part::Owner(_) | Part::Attribute(_) if !self.is_archive => Err(bad("owner")),
            Part::Owner(attributes) => {
                let may_have = self.entries.last().is_some_and(|entry| match &entry.kind {
                    Kind::File(file) => !file.is_stream(),
                    Kind::Directory { .. } | Kind::Symlink { .. } => true,
                    Kind::HardLink { .. } => false,
                });
                let index = self.entries.len().wrapping_sub(1);
                if !may_have || self.attributes.insert(index, attributes).is_some() {
                    return Err(bad("owner"));
                }
                Ok(())
            }
            Part::Attribute(more) => {
                let is_link = |entry: &Entry| matches!(entry.kind, Kind::Symlink { .. });
                let index = self.entries.len().wrapping_sub(1);
                let attributes = self.attributes.get_mut(&index);
                let attributes = attributes.filter(|_| !self.entries.last().is_some_and(is_link));
                attributes.ok_or(bad("attribute"))?.add(more).map_err(bad)
            }
        }
    }

    fn add_extents(&mut self, more: Vec<(u64, u64)>) -> Result<(), WireError> {
        if let Some(Kind::File(File { size, data: Some(data), .. })) =
            self.entries.last_mut().map(|entry| &mut entry.kind)
            && let Some((offset, len)) = data.last()
            && data.len() + more.len() <= MAX_EXTENTS
            && ascend(&more, Some(offset + len), *size)
        {
            data.extend(more);
            return Ok(());
        }
        Err(WireError::Field { frame: NAME, field: "list of data extents" })
    }

    /// The entries so far.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All entries, and their attributes.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Entry>, AttributesOf) {
        (self.entries, self.attributes)
    }
}
