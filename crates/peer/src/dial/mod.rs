//! The side that dials: plans of paths, attempts to connect, supervision.
//!
//! A [`Plan`] is a path before and between its connections; [`Keeper`] has those of a transfer, of
//! both carriers. [`Dialer`] runs a supervisor for each plan: it opens a connection, brings it into
//! the [`Session`], and replaces it when it fails. The session decides what the connections carry.

mod candidate;
mod connect;
mod dialer;
mod further;
mod gate;
mod keeper;
mod over_relays;
mod plan;
mod planning;
mod refusal;
mod resolve;
mod supervisor;
mod terms;
mod unreachable;

pub use candidate::Candidate;
pub use connect::{Connector, Opened};
pub use dialer::{Dialer, Remaining};
pub use further::{Further, Joined, MOST_CONNECTIONS, Place};
pub use gate::{Gate, Turn};
pub use keeper::Keeper;
pub use plan::{Plan, PlanKind, Via, no_such_path};
pub use planning::plan;
pub use refusal::with_remedy;
pub use resolve::resolve;
pub use supervisor::{Parting, Path, Session};
pub use terms::Terms;
pub use unreachable::no_path;
