//! Rate control and path choice for many sources that each send a demand over a few relays.
//!
//! Source and section of each rule: "Application-layer multipath data transfer via TCP: Schemes and
//! performance tradeoffs" (2007), called *the paper* throughout. Each source shifts its rates
//! between its paths by its own measurements ([`Controller`]) and draws other paths while its
//! demand is not met ([`Reselect`]).
//!
//! | item | subject |
//! |---|---|
//! | [`Source`] | one live source: draws, intervals, reselection, estimates that age |
//! | [`Trials`] | the few best of many ways, for data that is there at any time |
//! | [`Controller`] | the rates of one source, interval by interval; independent of the network |
//! | [`Chooser`], [`reselect()`] | path choice and reselection |
//! | [`Bucket`] | the tokens by which a driver hands out data |
//! | [`Peak`] | the capacity of a relay, as the collector sees it |
//! | [`optimum()`] | the optimum for one link per path, as a maximum flow |
//!
//! Given rates (demands, capacities) are [`units::Rate`]. Rates inside the control are floats in
//! bit/s: an increment may be a fraction of a bit, and rounding would bias the probing.
//!
//! ```
//! use overlay::{Config, Controller, ProbeResult};
//! use units::{Rate, Seed};
//!
//! // Two paths for 6 Mbit/s; the second carries no more than 2.
//! let mut control = Controller::new(Config::aiad(0.01), Rate::mbit(6), &[0.0, 0.0], Seed(1));
//! let mut result = None;
//! for _ in 0..500 {
//!     control.handle_interval(result);
//!     result = control.probed().map(|probed| {
//!         let set = control.rates().nth(probed).expect("one of the two");
//!         let received = if probed == 1 { set.min(2e6) } else { set };
//!         ProbeResult { received, overloaded: false, arrived: 1.0 }
//!     });
//! }
//! assert!(control.rates().sum::<f64>() > 0.98 * 6e6);
//! assert!(control.rates().nth(1) < Some(2.1e6));
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bucket;
mod choice;
mod controller;
mod instance;
mod optimum;
mod peak;
mod random;
mod source;
mod start;
mod trials;

pub use bucket::Bucket;
pub use choice::{Choice, Chooser, Reselect, Sample, reselect};
pub use controller::{Config, Controller, Detect, ProbeResult};
pub use instance::{Instance, Selection};
pub use optimum::{Optimum, optimum};
pub use peak::Peak;
pub use random::Draws;
pub use source::{
    Demand, Output, Pace, PathReport, PathView, ReportError, SetupError, Source, SourceConfig,
};
pub use start::Initial;
pub use trials::{Delivered, Exchange, ExchangeReason, TrialConfig, Trials};
