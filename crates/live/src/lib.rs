//! Scenario files with real hosts.
//!
//! [`Plan::new`] turns a scenario into a network of namespaces and into the flows of each host.
//! [`run`] carries it out: the links of `emulate` between real kernels, and in each namespace a
//! process that runs [`flow_end`]; in that of a background gateway or a relay it is one of the
//! front end's. [`Comparison`] puts the results beside those of the simulator.

mod compare;
mod completions;
mod describe;
mod error;
pub mod flow_end;
mod gateways;
pub mod messages;
mod plan;
mod relays;
mod run;
mod supported;
mod watch;

pub use compare::{Comparison, FlowRow, LinkRow};
pub use completions::CompletionRow;
pub use describe::{
    Answer, Begin, Description, FlowEnd, FlowKey, PathEnd, Side, Source, StripedSettings, Traffic,
    Write,
};
pub use error::PlanError;
pub use gateways::{GatewayEnd, GatewayPath, GatewayResult, GatewaySite, Meet, WaitCount};
pub use plan::Plan;
pub use relays::{RELAY_PORT, RelayEnd, RelayHop, RelayKey};
pub use run::{FlowResult, Outcome, Process, RunError, run, run_unless};
