//! The local end of a path: interfaces, addresses and routes, sockets, and the kernel's counters.
//!
//! [`interfaces::discover`] lists the local paths towards an address. [`socket::connect`] opens a
//! connection over one of them, [`socket::listen`] opens listening sockets, and [`counters`] reads
//! the kernel's counters of a connection. [`congestion`] chooses its congestion control;
//! [`programs`] runs those of the system. Nothing here depends on the host at the other end.

pub mod clock;
pub mod congestion;
pub mod counters;
mod error;
pub mod holder;
pub mod interfaces;
pub mod programs;
mod scope;
pub mod socket;

pub use congestion::CongestionControl;
pub use error::Error;
pub use sys::clock::Clock;
