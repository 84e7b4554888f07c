//! The sending side of files: named by a command or a request ([`root`]), with wildcards
//! ([`globs`]), found ([`walk`]), filtered ([`patterns`]), and read by blocks ([`read`]); those
//! that change meanwhile are left out, or sent as they were ([`changes`]).
//! [`hashes`] sends a fetching side the hashes of all blocks. Standard input and pipes are read by
//! [`stream`].

mod budget;
mod changes;
mod globs;
pub(crate) mod hashes;
mod holes;
mod patterns;
mod read;
mod root;
mod spool;
mod stamp;
mod stream;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use changes::Tolerance;
pub(crate) use globs::is_glob;
pub use globs::matches_glob;
pub use patterns::pattern;
pub(crate) use patterns::{PATTERNS_BYTES, Patterns};
pub(crate) use read::{Buffer, Source, Supply};
pub(crate) use root::{SourceRoot, open_directory};
pub(crate) use spool::StreamSpool;
pub(crate) use stream::Stream;
pub(crate) use walk::check_name;
pub use walk::folder_name;
