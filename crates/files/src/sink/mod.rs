//! The receiving side of files: a tree is compared with the directory ([`survey`]); data are staged
//! ([`staging`], [`large`]) and verified ([`session`]); complete files are synced and named
//! ([`settle`]). What the source does not have may be deleted then ([`mirror`]).
//!
//! The one file of a session can go to an output, in order ([`delivery`]). Owners and attributes
//! are set as far as the receiver agreed to that ([`archive`]).
//!
//! A small file is staged complete in a hidden folder, a large one as a part and a journal. The
//! folder is this process's own ([`own`]). Every path is resolved below the receiving directory and
//! through no link ([`directory`]).

mod archive;
mod attend;
mod delivery;
mod directory;
mod lacking;
mod large;
mod links;
mod mirror;
mod own;
mod probe;
mod probe_file;
mod session;
mod settle;
mod staging;
mod survey;
#[cfg(test)]
pub(crate) mod tests;
mod times;
mod timestamps;

pub(crate) use attend::{SinkEnd, attend};
pub(crate) use directory::Directory;
pub(crate) use mirror::{DOOMED_BYTES, Mirror, NOTHING_DELETED};
pub(crate) use session::{Mailbox, PathShare, SinkSession, finish_files};
pub(crate) use staging::Staging;
pub(crate) use survey::{Fate, Survey};
