//! The command-line program `anabranch` as a library: [`Program`] is the whole command line, with
//! congestion controllers and packet schedulers of one's own for scenario files.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use anabranch::Program;
//! use anabranch::policy::sched::packet::{Backlog, PacketScheduler, SubflowView};
//! use anabranch::units::Time;
//!
//! /// The first path that has room.
//! #[derive(Debug)]
//! struct First;
//!
//! impl PacketScheduler for First {
//!     fn name(&self) -> &'static str {
//!         "first"
//!     }
//!
//!     fn pick(&mut self, _: Time, paths: &[SubflowView], _: &Backlog) -> Option<usize> {
//!         paths.iter().position(|path| path.has_room)
//!     }
//!
//!     fn boxed_clone(&self) -> Box<dyn PacketScheduler> {
//!         Box::new(First)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     Program::default().scheduler("first", || First).main()
//! }
//! ```
//!
//! If this is the binary `my-lab`, then `my-lab simulate scenario.toml` runs scenario files with
//! `scheduler = "first"`, and `my-lab simulate --list` names all that a file may name. The guide's
//! page "A controller or scheduler of your own" begins with an empty folder.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the descriptions of arguments are help texts, not Markdown"
)]
// `say` writes what is printed.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
mod say;
mod background;
mod cli;
mod commands;
mod complete;
mod compression;
mod config;
mod dirs;
mod examples;
mod exit;
mod flags;
mod hooks;
mod host_key;
mod host_process;
mod listen;
mod log;
mod metrics;
mod name;
mod output;
mod peers;
mod program;
mod qlog;
mod relays;
mod routes;
mod sanitize;
mod schedulers;
mod scratch;
mod signals;
mod status;
mod striped;
mod testbed;
mod threads;
mod token;
mod transfer;
mod translators;
mod via;
mod watch;

pub use policy;
pub use program::Program;
pub use units;
