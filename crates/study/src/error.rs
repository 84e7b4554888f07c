//! Why there is no figure.

use std::fmt;
use std::path::PathBuf;

use link::config::ConfigError;
use link::config::reader::nearest;
use report::WriteError;
use report::tidy::TidyError;
use scenario::ScenarioError;
use thiserror::Error;

/// Why a figure was not made.
#[derive(Debug, Error)]
pub enum StudyError {
    /// A file of the paper makes no sense. For whoever edited it.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// There are no edited files where they were said to be.
    #[error("{} is no folder: copy the files there that you want to change, for example from an \
             earlier --out", .0.display())]
    NoPapers(PathBuf),
    /// An edited file lacks what the figure is made of.
    #[error("{file}: {missing}; the figure needs it")]
    Lacks {
        /// Which file.
        file: String,
        /// What it lacks.
        missing: String,
    },
    /// A figure of real transfers, and nothing to run them.
    #[error("the figure is made of real transfers, and there is nothing here that runs them")]
    NoTestbed,
    /// A real transfer failed.
    #[error("{0}")]
    Testbed(String),
    /// Somebody asked to stop; this is the signal's number.
    #[error("stopped by signal {0}")]
    Stopped(u8),
    /// The output's folder cannot be made.
    #[error("cannot make the folder {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A table cannot be written.
    #[error(transparent)]
    Tidy(#[from] TidyError),
}

impl From<ConfigError> for StudyError {
    fn from(error: ConfigError) -> StudyError {
        StudyError::Scenario(error.into())
    }
}

/// A paper or figure that there is not. Its text has the nearest name and all others.
#[derive(Clone, Debug)]
pub struct Unknown {
    kind: &'static str,
    found: String,
    known: Vec<&'static str>,
}

impl Unknown {
    pub(crate) fn new(
        kind: &'static str,
        found: &str,
        known: impl Iterator<Item = &'static str>,
    ) -> Unknown {
        Unknown { kind, found: found.to_owned(), known: known.collect() }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no {} '{}'", self.kind, self.found)?;
        if let Some(nearest) = nearest(&self.found, self.known.iter().copied()) {
            write!(f, " (did you mean '{nearest}'?)")?;
        }
        write!(f, "; there are {}", self.known.join(", "))
    }
}

impl std::error::Error for Unknown {}
