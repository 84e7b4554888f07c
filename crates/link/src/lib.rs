//! One link as a state machine: rate, delay, queue and its management, loss and their schedules.
//!
//! A [`Link`] is one direction of a link, without protocols, sockets or clocks: the caller hands in
//! packets with their size and the time, and takes them out when they arrive at the far end. The
//! emulator drives it in real time, the simulator in virtual time.
//!
//! ```
//! use link::{Link, Outcome, Profile};
//! use units::{Bytes, Rate, Seed, Span, Time};
//!
//! let profile = Profile::new(Rate::mbit(12), Span::from_millis(10));
//! let mut link = Link::new(profile, Seed(1));
//! assert_eq!(link.enqueue(Time::ZERO, Bytes(1_500), "packet"), Outcome::Queued);
//! // 1 ms on the wire, 10 ms of propagation.
//! assert_eq!(link.poll_deadline(), Some(Time::ZERO + Span::from_millis(11)));
//! let delivery = link.poll_deliver(Time::ZERO + Span::from_millis(11)).expect("it is due");
//! assert_eq!(delivery.packet, "packet");
//! ```
//!
//! Network files ([`config`], feature `toml`) describe several links in TOML. [`schedule::ideal`]
//! is the fluid time that all of them together need for an amount of data.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "toml"))]
extern crate std;

mod amend;
mod aqm;
mod area;
mod capacity;
#[cfg(feature = "toml")]
pub mod config;
mod counters;
mod dated;
mod impairments;
mod jitter;
mod ledger;
mod limit;
mod link;
mod loss;
mod offer;
mod opportunities;
mod profile;
mod rate;
pub mod schedule;
mod shared_profile;
mod trace;
mod varying;
mod wire;

pub use amend::Amendment;
pub use aqm::{Aqm, Bucket, CoDel, DualPi2, FqCoDel, Pie, Red, Threshold};
pub use area::{QueueArea, QueueLevels};
pub use counters::{Counters, Tally};
pub use dated::Dated;
pub use jitter::{Jitter, Spread};
pub use ledger::Dropped;
pub use limit::Limit;
pub use link::Link;
pub use loss::{GilbertElliott, Loss};
pub use offer::{Delivery, Offer, Outcome};
pub use opportunities::{OPPORTUNITY, Opportunities, TraceError, TraceProblem};
pub use profile::{Blackout, Profile, Reorder};
pub use rate::{Change, RateCursor, RatePlan, Redraw};
pub use shared_profile::{Room, SharedProfile};
pub use trace::Trace;
pub use wire::Wire;
