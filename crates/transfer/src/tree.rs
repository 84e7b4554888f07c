//! What a transfer brings: files, directories and links under one folder.

use alloc::string::String;
use alloc::vec::Vec;

use units::Bytes;
use wire::manifest::{Entry, File, Kind};

use crate::layout::MAX_POSITION;

/// The most entries that a tree may have.
pub const MAX_ENTRIES: usize = 1 << 22;

/// Entries that can stand together under one folder: checked, so that whoever makes them there need
/// not doubt them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    entries: Vec<Entry>,
    files: usize,
    data: Bytes,
}

/// Why entries make no tree. All of these are the peer's fault when they came from a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// More than [`MAX_ENTRIES`].
    #[error("{0} entries are more than {MAX_ENTRIES}; send them in parts")]
    TooMany(usize),
    /// An entry is not possible by itself.
    #[error("{path}: this {field} is not possible")]
    Entry {
        /// Which.
        path: String,
        /// What of it.
        field: &'static str,
    },
    /// Two entries of one path, or something else where a directory is needed.
    #[error("there are two of the name {0}, or something below it, though it is no folder")]
    Taken(String),
    /// A hard link to what is no file before it.
    #[error("{0} is another name of something that is no file before it")]
    Link(String),
    /// More data than there are positions.
    #[error("the files are too large together")]
    TooLarge,
}

impl Tree {
    /// Checks that the entries can stand together.
    ///
    /// # Errors
    /// The first reason why they cannot.
    pub fn new(entries: Vec<Entry>) -> Result<Tree, TreeError> {
        if entries.len() > MAX_ENTRIES {
            return Err(TreeError::TooMany(entries.len()));
        }
        let (mut files, mut data) = (0, 0u64);
        for (index, entry) in entries.iter().enumerate() {
            entry.check().map_err(|field| TreeError::Entry { path: shown(entry), field })?;
            match &entry.kind {
                Kind::File(file) => {
                    files += 1;
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
        Ok(Tree { entries, files, data: Bytes(data) })
    }

    /// All entries, in the order of the manifest.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The regular files among them, with their indices; hard links are no files of their own.
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

    /// How many regular files there are.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.files
    }

    /// All data of all files; holes are none.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.data
    }
}

/// Finds names that collide: compared component by component, what is below a path follows it
/// directly, so only neighbours can.
fn check_names(entries: &[Entry]) -> Result<(), TreeError> {
    let components = |index: usize| entries[index].path.split(|&byte| byte == b'/');
    let mut order: Vec<usize> = (0..entries.len()).collect();
    // Whoever walks a folder in order has sorted already.
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
