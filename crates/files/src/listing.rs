//! Lists of what a server offers.

use transfer::Tree;
use units::Bytes;
use wire::manifest::Kind;

use events::{Changed, Listed};

/// The entries of a tree, in its order.
pub(crate) fn listing(tree: &Tree) -> Vec<Listed> {
    let entries = tree.entries().iter();
    let listed = entries.map(|entry| {
        let (what, mtime) = match &entry.kind {
            Kind::File(file) => (Changed::File(Bytes(file.size)), Some(file.mtime)),
            Kind::Directory { mtime, .. } => (Changed::Folder, Some(*mtime)),
            Kind::Symlink { mtime, .. } => (Changed::Link, Some(*mtime)),
            Kind::HardLink { .. } => (Changed::Link, None),
        };
        Listed { name: String::from_utf8_lossy(&entry.path).into_owned(), what, mtime }
    });
    listed.collect()
}
