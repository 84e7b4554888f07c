//! Files that arrive: compared with what is there ([`survey`]), staged ([`staging`], [`large`]),
//! verified ([`session`]), synced and named ([`settle`]).
//!
//! Small files wait whole in a hidden folder, large ones as a part and a journal. Everything below
//! the receiving folder is reached beneath it, through no link ([`directory`]).

mod attend;
mod directory;
mod large;
mod session;
mod settle;
mod staging;
mod survey;
#[cfg(test)]
mod tests;

pub(crate) use attend::{SinkEnd, attend};
pub(crate) use directory::Directory;
pub(crate) use session::{Mailbox, SinkSession, finish_files};
pub(crate) use staging::Staging;
pub(crate) use survey::Survey;
