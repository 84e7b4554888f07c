//! What a transfer would do, and what a server offers.

use units::Bytes;

/// What a transfer would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRun {
    /// The number of the transfer, as in [`Event::Started`](crate::Event::Started).
    pub transfer: u32,
    /// The changes at the sink, in the order of the tree; what would be deleted comes last.
    pub changes: Vec<PlannedChange>,
    /// Data that would be sent, as far as an earlier attempt has not sent them.
    pub sent: Bytes,
    /// Number of files that would stay as they are.
    pub unchanged: usize,
    /// Their size.
    pub unchanged_size: Bytes,
}

/// A change of one entry at the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChange {
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
    /// There is another one in its place, which stays.
    Keep,
    /// Its contents are there; owner, mode or extended attributes would be set.
    Update,
    /// It is at the sink only.
    Delete,
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

/// An entry that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path, as it would arrive.
    pub name: String,
    /// What it is.
    pub what: Changed,
    /// Its modification time in nanoseconds since 1970; `None` for a further name of a file.
    pub mtime: Option<i64>,
}
