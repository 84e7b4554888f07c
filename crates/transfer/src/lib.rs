//! A file transfer over several paths as a state machine: sender, receiver, journal, digests.
//!
//! Nothing here reads a clock, a file or a socket. A driver feeds [`Sender`] and [`Receiver`] with
//! `handle_*`, drains them with `poll_*`, and carries out what they return.
//!
//! A transfer carries a [`Tree`]. The files that the receiver wants become objects ([`Packing`]):
//! one object for each large file, one for several small files. Objects lie one behind the other in
//! a linear [`Layout`], each starting at a multiple of [`BLOCK`]; an [`Extent`] is a range of that
//! layout.
#![no_std]
// Panics that a caller can cause are documented; the other `expect`s state an invariant and why it
// holds.
#![allow(clippy::missing_panics_doc)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod digest;
mod error;
mod extent;
pub mod journal;
mod layout;
mod packing;
mod receiver;
mod sender;
mod tree;

pub use digest::Cv;
pub use error::PeerError;
pub use extent::{Extent, ExtentSet};
pub use layout::{BLOCK, GRAIN, Layout, LayoutError, MAX_OBJECTS, MAX_POSITION, Place};
pub use packing::{Object, Packing, Piece};
pub use receiver::{Block, Fresh, Receiver, Verdict};
pub use sender::{
    Class, PathReport, PathState, PathTraits, Reason, Sample, Sender, SenderConfig, SenderEvent,
    Totals, Transmit,
};
pub use tree::{MAX_ENTRIES, Tree, TreeError};
