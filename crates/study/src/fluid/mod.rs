//! The fluid study: all sources of an instance under rate control, over relays or links as fluids.
//!
//! | module | subject |
//! |---|---|
//! | [`Fleet`], [`Fluid`] | sources, and what of their rates is received |
//! | [`max_min`] | initial rates |
//! | [`control`] | the paper's numerical study: rate control alone |
//! | [`search`] | the same with reselection, until every demand is met |
//! | [`churn`] | the same while sources come and go and capacities change, against the optimum over time |
//! | [`Routes`], [`lp`], [`mesh`] | paths over several links, their optimum as a linear program, and a study of them |
//!
//! The network is that of the paper's evaluation (one receiver, one relay per path, bottlenecks
//! only between relays and receiver), or any other that [`Routes`] over links describe.
//!
//! ```
//! use overlay::{Config, Initial, Instance, Selection};
//! use scenario::relays::Sharing;
//! use study::fluid::Fleet;
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

pub mod churn;
pub mod control;
mod fleet;
pub mod lp;
mod maxmin;
pub mod mesh;
mod relays;
mod routes;
pub mod search;

pub use fleet::Fleet;
pub use maxmin::max_min;
pub use relays::Fluid;
pub use routes::Routes;
