//! The sending side of files: named by a command or a request ([`root`]), found ([`walk`]),
//! filtered ([`patterns`]), and read by blocks ([`read`]). [`hashes`] sends a fetching side the
//! hashes of all blocks.

pub(crate) mod hashes;
mod holes;
mod patterns;
mod read;
mod root;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use patterns::{PATTERNS_BYTES, Patterns};
pub(crate) use read::{Buffer, Source, Supply};
pub(crate) use root::{SourceRoot, open_directory};
