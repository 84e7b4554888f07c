//! What interfaces carry in a month, kept across transfers, and how much they may.
//!
//! The [`Ledger`] is the files: one an interface, in which every process books before it sends. An
//! [`Allowance`] is what one transfer has booked of it, and how much of that its connections have
//! used.

mod allowance;
mod ledger;

pub use allowance::{Account, Allowance, Room};
pub use ledger::{Booking, Ledger};
