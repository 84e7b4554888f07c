//! The sending side of files: found ([`walk`]), filtered ([`patterns`]), and read by blocks
//! ([`read`]), from anywhere or from below one directory ([`root`]). [`hashes`] sends a fetching
//! side the hashes of all blocks.

pub(crate) mod hashes;
mod patterns;
mod read;
mod root;
mod walk;

pub(crate) use patterns::PATTERNS_BYTES;
pub(crate) use read::{Buffer, Source, Supply};
pub(crate) use root::SourceRoot;
