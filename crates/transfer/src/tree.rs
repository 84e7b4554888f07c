//! The contents of a transfer: files, directories and links under one folder.

use alloc::string::String;
use alloc::vec::Vec;

use units::Bytes;
use wire::manifest::{Attributes, AttributesOf, Entry, File, Kind};

use crate::layout::MAX_POSITION;

/// The largest number of entries in a tree.
pub const MAX_ENTRIES: usize = 1 << 22;

/// Entries that can exist together under one folder. The constructor checks this, so that the code
/// that creates them need not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    entries: Vec<Entry>,
    /// Owners and extended attributes, by entry.
    attributes: AttributesOf,
    files: usize,
    data: Bytes,
}

/// Why entries make no tree. If they came from a peer, each of these is a violation of the
/// protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// More than [`MAX_ENTRIES`].
    #[error("{0} entries are more than {MAX_ENTRIES}; send them in parts")]
    TooMany(usize),
    /// An entry is not possible by itself.
    #[error("{path}: this {field} is not possible")]
    Entry {
        /// The entry's path.
        path: String,
        /// The field at fault.
        field: &'static str,
    },
    /// Two entries with one path, or an entry below another that is no directory.
    #[error("there are two of the name {0}, or something below it, though it is no folder")]
    Taken(String),
    /// A hard link to an entry that is not an earlier file.
    #[error("{0} is another name of something that is no file before it")]
    Link(String),
    /// A stream among other entries.
    #[error("{0} is a stream, whose size nobody knows yet: it must be sent alone")]
    Stream(String),
    /// More data than [`MAX_POSITION`].
    #[error("the files are too large together")]
    TooLarge,
}

impl Tree {
    /// Checks that the entries can exist together.
    ///
    /// # Errors
    /// The first problem found.
    pub fn new(entries: Vec<Entry>) -> Result<Tree, TreeError> {
        Tree::with_attributes(entries, AttributesOf::new())
    }

    /// As [`Tree::new`], with owners and extended attributes.
    ///
    /// # Errors
    /// The first problem found.
    pub fn with_attributes(
        entries: Vec<Entry>,
        attributes: AttributesOf,
    ) -> Result<Tree, TreeError> {
        check_count(entries.len())?;
        let (mut files, mut data) = (0, 0u64);
        for (index, entry) in entries.iter().enumerate() {
            entry.check().map_err(|field| TreeError::Entry { path: shown(entry), field })?;
            match &entry.kind {
                Kind::File(file) => {
                    files += 1;
                    if file.is_stream() && entries.len() > 1 {
                        return Err(TreeError::Stream(shown(entry)));
                    }
                    data = data.saturating_add(file.data_len());
                }
                Kind::HardLink { to } => {
                    let before = usize::try_from(*to).ok().and_then(|to| entries[..index].get(to));
                    if !before.is_some_and(|entry| matches!(entry.kind, Kind::File(_))) {
                        return Err(TreeError::Link(shown(entry)));
                    }
                }
                Kind::Directory { .. } | Kind::Symlink { .. } => {}
            }
        }
        if data > MAX_POSITION {
            return Err(TreeError::TooLarge);
        }
        check_names(&entries)?;
        let mut tree = Tree { entries, attributes, files, data: Bytes(data) };
        if tree.is_stream() {
            tree.data = Bytes::ZERO;
        }
        Ok(tree)
    }

    /// All entries, in the order of the manifest.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Owners and extended attributes of the entries that have any, by index.
    #[must_use]
    pub fn attributes_of(&self) -> &AttributesOf {
        &self.attributes
    }

    /// Owner and extended attributes of the entry of this index.
    #[must_use]
    pub fn attributes(&self, index: usize) -> Option<&Attributes> {
        self.attributes.get(&index)
    }

    /// The regular files with their indices. Hard links do not count.
    pub fn files(&self) -> impl Iterator<Item = (usize, &File)> + '_ {
        self.entries.iter().enumerate().filter_map(|(index, entry)| match &entry.kind {
            Kind::File(file) => Some((index, file)),
            Kind::Directory { .. } | Kind::Symlink { .. } | Kind::HardLink { .. } => None,
        })
    }

    /// The regular file of this index.
    #[must_use]
    pub fn file(&self, index: usize) -> Option<&File> {
        match &self.entries.get(index)?.kind {
            Kind::File(file) => Some(file),
            Kind::Directory { .. } | Kind::Symlink { .. } | Kind::HardLink { .. } => None,
        }
    }

    /// The number of regular files.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files
    }

    /// Whether its one entry is a stream.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.file(0).is_some_and(File::is_stream)
    }

    /// The data of all files together; holes do not count, nor does a stream.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.data
    }
}

/// Refuses more entries than a tree may have.
fn check_count(count: usize) -> Result<(), TreeError> {
    if count > MAX_ENTRIES { Err(TreeError::TooMany(count)) } else { Ok(()) }
}

/// Finds colliding names. In the order by components, the entries below a path follow it directly,
/// so comparing neighbours is enough.
fn check_names(entries: &[Entry]) -> Result<(), TreeError> {
    let components = |index: usize| entries[index].path.split(|&byte| byte == b'/');
    let mut order: Vec<usize> = (0..entries.len()).collect();
    // A sender that walks a folder in order has sorted already.
    if !order.is_sorted_by(|&a, &b| components(a).lt(components(b))) {
        order.sort_by(|&a, &b| components(a).cmp(components(b)));
    }
    for pair in order.windows(2) {
        let (first, second) = (&entries[pair[0]], &entries[pair[1]]);
        let Some(rest) = second.path.strip_prefix(&first.path[..]) else { continue };
        let is_below = rest.first() == Some(&b'/');
        if rest.is_empty() || is_below && !matches!(first.kind, Kind::Directory { .. }) {
            return Err(TreeError::Taken(shown(first)));
        }
    }
    Ok(())
}

fn shown(entry: &Entry) -> String {
    String::from_utf8_lossy(&entry.path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_a_bounded_number_of_entries() {
        assert_eq!(check_count(0), Ok(()));
        assert_eq!(check_count(MAX_ENTRIES), Ok(()));
        let more = MAX_ENTRIES + 1;
        assert_eq!(check_count(more), Err(TreeError::TooMany(more)));
    }
}
