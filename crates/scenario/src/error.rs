//! Why a scenario cannot be run.

use netsim::TopologyError;
use thiserror::Error;

use crate::file::ConfigError;

/// Why a scenario cannot be run. All of these are for whoever wrote the file.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file makes no sense.
    #[error(transparent)]
    File(#[from] ConfigError),
    /// Its links do not lead where its flows want to go.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}
