//! Quantities shared by all crates of Anabranch: time, bytes, rates, ids, seeds.
//!
//! All of them are integers underneath, so that a computation gives the same bits on every machine.
//! Operators exist only where the result has an obvious unit: `Bytes / Rate` is a [`Span`],
//! `Rate * Span` is [`Bytes`], `Time - Time` is a [`Span`].
//!
//! ```
//! use units::{Bytes, Rate, Span};
//! assert_eq!(Bytes(1_500) / Rate::mbit(12), Span::from_millis(1));
//! assert_eq!("50 Mbit/s".parse::<Rate>(), Ok(Rate::mbit(50)));
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bucket;
mod bytes;
mod ids;
mod parse;
mod rate;
mod seed;
mod time;

pub use bucket::TokenBucket;
pub use bytes::Bytes;
pub use ids::{PathId, SubflowId};
pub use parse::ParseError;
pub use rate::Rate;
pub use seed::Seed;
pub use time::{Brief, Span, Time};
