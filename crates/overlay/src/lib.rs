//! Rate control and path choice for many sources that each send a demand over a few relays.
//!
//! Source and section of each rule: "Application-layer multipath data transfer via TCP: Schemes and
//! performance tradeoffs" (2007), called *the paper* throughout. Each source shifts its rates
//! between its paths by its own measurements ([`Controller`]) and draws other paths while its
//! demand is not met ([`Reselect`]).
//!
//! | module | subject |
//! |---|---|
//! | [`Controller`] | the rates of one source, interval by interval; independent of the network |
//! | [`Routes`] | paths over several links, possibly shared |
//! | [`max_min`] | initial rates |
//! | [`Fluid`] | the received rates, as a fluid model of relays or links |
//! | [`optimum()`] | the optimum for one link per path, as a maximum flow |
//! | `lp` | the same for any routes, as a linear program (feature `lp`, on by default, wants `std`) |
//! | [`Chooser`], [`reselect()`] | path choice and reselection |
//! | [`study`], [`search`] | the paper's numerical study: rate control alone, and with reselection |
//! | [`churn`] | the same while sources come and go and capacities change, against the optimum over time |
//! | `mesh` | the same over several hops to several destinations (feature `lp`) |
//!
//! Given rates (demands, capacities) are [`units::Rate`]. Rates inside the control are floats in
//! bit/s: an increment may be a fraction of a bit, and rounding would bias the probing.
//!
//! The network is that of the paper's evaluation (one receiver, one relay per path, bottlenecks
//! only between relays and receiver), or any other that [`Routes`] over links describe: several
//! hops, several destinations.
//!
//! ```
//! use overlay::{Config, Fleet, Initial, Instance, Selection, Sharing};
//! use units::{Rate, Seed};
//!
//! // Two sources on two relays; the second can use only the second relay.
//! let instance = Instance { demands: vec![Rate::mbit(6); 2], capacities: vec![Rate::mbit(6); 2] };
//! let selection = Selection::new(2, vec![0, 1, 1, 0]);
//! let (config, initial) = (Config::aiad(0.01), Initial::Zero);
//! let mut fleet =
//!     Fleet::new(&instance, &selection, &config, initial, Sharing::MaxMin, Seed(1));
//! let reached = (0..500).map(|_| fleet.step()).last().expect("500 intervals");
//! assert!(reached > 0.95 * 12e6);
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod choice;
pub mod churn;
mod controller;
mod fleet;
mod fluid;
mod instance;
#[cfg(feature = "lp")]
pub mod lp;
mod maxmin;
#[cfg(feature = "lp")]
pub mod mesh;
mod optimum;
mod random;
mod routes;
pub mod search;
mod source;
mod start;
pub mod study;

pub use choice::{Choice, Chooser, Reselect, Sample, reselect};
pub use controller::{Config, Controller, Detect, ProbeResult};
pub use fleet::Fleet;
pub use fluid::{Fluid, Sharing};
pub use instance::{Instance, Selection};
pub use maxmin::max_min;
pub use optimum::{Optimum, optimum};
pub use routes::Routes;
pub use source::{
    Demand, Output, Pace, PathReport, PathView, ReportError, SetupError, Source, SourceConfig,
};
pub use start::Initial;
