//! The local end of a path: interfaces, addresses and routes, sockets, and the kernel's counters.
//!
//! [`interfaces::discover`] lists the local paths towards an address. [`socket::connect`] opens a
//! connection over one of them, [`socket::listen`] takes connections in, and [`counters`] reads
//! what the kernel counts on each. Nothing here knows who is at the other end.

pub mod clock;
pub mod congestion;
pub mod counters;
mod error;
pub mod interfaces;
pub mod socket;

pub use clock::Clock;
pub use congestion::CongestionControl;
pub use error::Error;
