//! How much to send and where.
//!
//! [`cc`] holds the congestion controllers: how much each subflow may have in flight.
//!
//! [`bottleneck`] says which subflows of a connection share a bottleneck.
//!
//! [`sched`] holds the block schedulers: they decide how many bytes of a file each path carries,
//! knowing nothing but bytes, paths and times. Which bytes those are is the business of the
//! transfer core above. [`sched::packet`] holds the packet schedulers of connections: they choose
//! the subflow that takes the next packet.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bottleneck;
pub mod cc;
pub mod sched;
mod spelling;
