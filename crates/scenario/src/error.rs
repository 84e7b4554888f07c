//! Errors of scenarios.

use netsim::TopologyError;
use thiserror::Error;

use crate::file::ConfigError;

/// An error in a scenario, to be fixed by the author of the file.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file is not valid.
    #[error(transparent)]
    File(#[from] ConfigError),
    /// Its links do not connect the ends of a flow.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Its curves over time do not fit into memory.
    #[error(
        "sample: {points} points of each of {curves} curves are too many to draw: choose a longer \
         `sample`"
    )]
    TooManySamples {
        /// The number of points.
        points: u64,
        /// The number of curves.
        curves: u64,
    },
}
