//! A plain TCP endpoint as a state machine, for the baselines and the cross traffic of simulations.
//!
//! An [`Endpoint`] counts bytes instead of carrying them: [`wire::tcp::Segment`] holds the fields
//! of a header. It has no clock and no socket. One congestion controller may own several endpoints
//! as its subflows, so each call takes it as an argument.
//!
//! ```
//! use policy::cc::{Reno, Uncoupled};
//! use tcp::{Config, Endpoint};
//! use units::{Bytes, Span, SubflowId, Time};
//!
//! let id = SubflowId(0);
//! let mut near = (Endpoint::client(Config::default(), id), Uncoupled::new(Reno::default()));
//! let mut far = (Endpoint::server(Config::default(), id), Uncoupled::new(Reno::default()));
//! near.0.open(Time::ZERO, &mut near.1);
//! near.0.write(Bytes(5_000));
//! // Segments arrive at once here; a simulation delays them on links.
//! let now = Time::ZERO + Span::from_millis(1);
//! while far.0.received() < Bytes(5_000) {
//!     for (from, to) in [(0, 1), (1, 0)] {
//!         let ends = if from < to { (&mut near, &mut far) } else { (&mut far, &mut near) };
//!         while let Some(transmit) = ends.0.0.poll_send(now, &mut ends.0.1) {
//!             ends.1.0.handle_segment(now, &transmit.segment, false, &mut ends.1.1);
//!         }
//!     }
//! }
//! ```
//!
//! | subject | file | source |
//! |---|---|---|
//! | opening and closing | `endpoint.rs` | RFC 9293 |
//! | what answers for a connection that is over | `time_wait.rs` | RFC 9293 |
//! | scoreboard: packets in flight, lost or delivered | `sender/scoreboard.rs` | RFC 2018, RFC 6675 |
//! | acknowledgements, recovery, undo | `sender/ack.rs` | RFC 5681, 6582, 6675, 8985, 3522 |
//! | timers | `sender/timer.rs` | RFC 6298, RFC 8985 section 7 |
//! | choice of the next segment | `sender/mod.rs` | RFC 9937, RFC 9293 |
//! | marks, as acknowledgements tell of them | `accurate_ecn.rs`; `sender/ack.rs` | RFC 9768; RFC 3168 |
//! | reassembly and acknowledging | `receiver.rs` | RFC 1122, 2018, 2883, 3168, 9768 |
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod accurate_ecn;
mod config;
mod endpoint;
mod out_of_order;
mod receiver;
mod search;
mod sender;
mod time_wait;

pub use config::{Config, Detection};
pub use endpoint::{Endpoint, Event, Transmit};
pub use sender::Stats;
pub use time_wait::TimeWait;

/// The deadline of a timer that is not set.
const NEVER: units::Time = units::Time::from_nanos(u64::MAX);
