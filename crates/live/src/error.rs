//! Why a scenario cannot be carried out.

use emulate::mesh;
use scenario::ScenarioError;
use thiserror::Error;

/// The flows of a scenario: each has a port.
pub(crate) const MOST_FLOWS: u16 = 60_000;

/// Why a scenario cannot be carried out by real hosts.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A flow has a key that real hosts cannot follow.
    #[error("flow.{flow}: `{key}`: {reason}")]
    Flow {
        /// The flow.
        flow: String,
        /// The key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// A pair of gateways has a setting that the product's have not.
    #[error("gateway.{gateway}: `{key}`: {reason}")]
    Gateway {
        /// The pair.
        gateway: String,
        /// The key.
        key: &'static str,
        /// The reason.
        reason: String,
    },
    /// A node with a relay that a real one cannot be.
    #[error("`relays`: the node '{node}': {reason}")]
    Relay {
        /// The node.
        node: String,
        /// The reason.
        reason: &'static str,
    },
    /// A measure that only the simulator has.
    #[error("`measure`: '{0}' is only simulated: real hosts have no common view of a packet")]
    Measure(&'static str),
    /// Flows that differ in what is set for a host.
    #[error("flow.{flow}: `tcp.ecn`: all TCP flows of the host '{host}' need the same value")]
    Ecn {
        /// The flow that differs from those before.
        flow: String,
        /// The host.
        host: String,
    },
    /// Too many flows.
    #[error("an emulated scenario has up to {MOST_FLOWS} flows")]
    TooManyFlows,
    /// Too many hosts, devices or addresses.
    #[error("{0}")]
    Full(#[from] mesh::PlanError),
    /// There is no route for a flow.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
}
