//! Congestion control and scheduling: how much each path sends, and which data goes where.
//!
//! [`cc`] holds the congestion controllers: how much each subflow may have in flight.
//!
//! [`bottleneck`] finds the subflows of a connection that share a bottleneck.
//!
//! [`line_loss`] tells losses of a line from those of a full queue.
//!
//! [`named`] finds controllers and packet schedulers by their names in scenario files.
//!
//! [`sched`] holds the block schedulers: they decide how many bytes of a file each path carries,
//! from bytes, paths and times alone. The transfer core decides which bytes those are.
//! [`sched::packet`] holds the packet schedulers of connections: they choose the subflow of the
//! next packet.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bottleneck;
pub mod cc;
pub mod line_loss;
pub mod named;
pub mod overflow;
pub mod paced;
pub mod sched;
