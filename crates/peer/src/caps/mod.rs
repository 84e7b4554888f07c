//! Monthly caps of interfaces, and the bytes that each carried, counted over all transfers.
//!
//! The ledger has a file for each interface, in which every process books bytes before it sends
//! them. An [`Allowance`] is the booking of one process for one interface; an [`Account`] counts
//! the bytes of one connection against it.

mod allowance;
mod ledger;

pub use allowance::{Account, Allowance, Room};
pub(crate) use ledger::{Booking, Ledger};
