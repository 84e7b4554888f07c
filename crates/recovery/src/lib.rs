//! What every reliable transport needs once: round-trip times, delivery rates, loss detection by
//! time, rate reduction, pacing, and the end of slow start by delay.
//!
//! All of it counts bytes and knows no sequence numbers, so that TCP and transports with packet
//! numbers of their own share it.
#![no_std]

#[cfg(test)]
extern crate std;

mod delivery_rate;
mod hystart;
mod pacer;
mod rack;
mod rate_reduction;
mod rtt;

pub use delivery_rate::{DeliveryRate, SendSnapshot};
pub use hystart::HyStart;
pub use pacer::Pacer;
pub use rack::Rack;
pub use rate_reduction::RateReduction;
pub use rtt::RoundTrip;
