//! Scenario files: networks, flows and measures in TOML, run in the simulator.
//!
//! ```
//! use scenario::{Document, RunOptions};
//!
//! let text = r#"
//!     name = "one flow"
//!     duration = "10 s"
//!     warmup = "2 s"
//!     [[link]]
//!     name = "bottleneck"
//!     between = ["near", "far"]
//!     rate = "10 Mbit/s"
//!     delay = "10 ms"
//!     queue = "20 packets"
//!     [[flow]]
//!     name = "bulk"
//!     from = "near"
//!     to = "far"
//!     controller = "reno"
//! "#;
//! let scenario = Document::new(text, "one-flow.toml")?.scenario(&[])?;
//! let run = scenario.run(scenario.seed, RunOptions::default())?;
//! let goodput = run.measure("all", "", "goodput").expect("it is always measured");
//! assert!(goodput > 9.0, "{goodput} Mbit/s");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Document`] reads files, [`Scenario::run`] runs one seed, [`sweep`] all combinations of a
//! sweep's values and seeds over all processors.

mod build;
pub mod chart;
mod deadlines;
pub mod distribution;
mod draw;
mod error;
mod far_clock;
pub mod file;
mod flow_state;
pub mod host;
mod listing;
mod measure;
mod measures;
mod packet;
pub mod pcap;
mod quantities;
mod registry;
pub mod relays;
pub mod results;
mod run;
mod samples;
mod series;
pub mod sweep;
pub mod threads;
pub mod watch;

pub use build::{Built, Ends, FlowLayout, GatewayEnds, GatewayLayout, RunLayout};
pub use error::ScenarioError;
pub use far_clock::FarClock;
pub use file::{Document, Scenario, Setting};
pub use measure::{CompletedRequest, DelayCount};
pub use measures::{MEASURES, Measure, Measures, MeasuresIter};
pub use packet::{Ecn, Packet, Piece};
pub use registry::Registry;
pub use run::{Run, RunOptions};
pub use samples::{SenderSample, Watch};
pub use series::{FlowSeries, LinkSeries, PathSeries, Series};
