//! Many sources, each with a demand, deliver over a few relays each: rate control and path choice.
//!
//! Source and section of each rule: "Application-layer multipath data transfer via TCP: Schemes and
//! performance tradeoffs" (2007), called *the paper* throughout. Each source alone, from what it
//! measures, shifts its rates between its paths ([`Controller`]) and draws other paths where its
//! demand is not met ([`Reselect`]).
//!
//! | module | subject |
//! |---|---|
//! | [`Controller`] | one source's rates, a control interval at a time; knows no network |
//! | [`Routes`] | paths over several links, which they may share |
//! | [`max_min`] | initial rates |
//! | [`Fluid`] | what relays, or links, deliver of the rates that are set |
//! | [`optimum()`] | the most that any control could deliver over one link a path, as a maximum flow |
//! | `lp` | the same for any routes, as a linear program (feature `lp`, on by default, wants `std`) |
//! | [`Chooser`], [`reselect()`] | path choice and reselection |
//! | [`study`], [`search`] | the paper's numerical study: rate control alone, and with reselection |
//! | [`churn`] | the same while sources come and go and capacities change, against the optimum over time |
//! | `mesh` | the same over several hops to several destinations (feature `lp`) |
//!
//! Rates that somebody states (demands, capacities) are [`units::Rate`]. Rates that the control
//! computes with are real numbers in bit/s: an increment may be a fraction of a bit, and a rounded
//! one would bias the probing.
//!
//! The network is the paper's evaluation setting, one receiver, one relay a path, and only the hop
//! from the relay to the receiver binds, or any other that [`Routes`] over links describe: several
//! hops, several destinations.
//!
//! ```
//! use overlay::{Config, Fleet, Initial, Instance, Selection, Sharing};
//! use units::{Rate, Seed};
//!
//! // Two sources on two relays; the second can use only the second relay.
//! let instance = Instance { demands: vec![Rate::mbit(6); 2], capacities: vec![Rate::mbit(6); 2] };
//! let selection = Selection::new(2, vec![0, 1, 1, 0]);
//! let mut fleet = Fleet::new(&instance, &selection, &Config::aiad(0.01), Initial::Zero, Sharing::MaxMin, Seed(1));
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
pub mod study;

pub use choice::{Choice, Chooser, Reselect, Sample, reselect};
pub use controller::{Config, Controller, Detect, Seen};
pub use fleet::{Fleet, Initial};
pub use fluid::{Fluid, Sharing};
pub use instance::{Instance, Selection};
pub use maxmin::max_min;
pub use optimum::{Optimum, optimum};
pub use routes::Routes;
