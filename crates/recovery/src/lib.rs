//! The parts that reliable transports have in common: round-trip times, delivery rates, loss
//! detection by time (RACK), proportional rate reduction, pacing, `HyStart++`, and one-way delays.
//! [`PathControl`] is the sender half of one path that TCP and striped connections share; their
//! scoreboards, which find losses and begin and end recovery, stand apart.
//!
//! Everything counts bytes and none of it knows sequence numbers, so TCP and transports with packet
//! numbers share it.
#![no_std]

#[cfg(test)]
extern crate std;

mod delivery_rate;
mod hystart;
mod one_way;
mod pacer;
mod path_control;
mod rack;
mod rate_reduction;
mod rtt;
mod sending;

pub use delivery_rate::{DeliveryRate, SendSnapshot};
pub use hystart::HyStart;
pub use one_way::OneWayDelay;
pub use pacer::Pacer;
pub use path_control::{OwnPacing, Pace, PathControl};
pub use rack::Rack;
pub use rate_reduction::RateReduction;
pub use rtt::RoundTrip;
pub use sending::{SendLimit, SendPhase, Sending};
