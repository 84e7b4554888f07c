//! Errors in making figures.

use std::fmt;
use std::path::PathBuf;

use link::config::ConfigError;
use link::config::reader::nearest;
use report::WriteError;
use report::tidy::TidyError;
use scenario::ScenarioError;
use thiserror::Error;

/// An error in making a figure.
#[derive(Debug, Error)]
pub enum StudyError {
    /// An edited file of the paper is not valid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The folder of edited files does not exist.
    #[error("{} is no folder: copy the files there that you want to change, for example from an \
             earlier --out", .0.display())]
    NoPapers(PathBuf),
    /// An edited file lacks data that the figure needs.
    #[error("{file}: {missing}; the figure needs it")]
    Lacks {
        /// The file.
        file: String,
        /// The missing data.
        missing: String,
    },
    /// The figure needs real transfers, and there is no testbed.
    #[error("the figure is made of real transfers, and there is nothing here that runs them")]
    NoTestbed,
    /// A real transfer failed.
    #[error("{0}")]
    Testbed(String),
    /// Stopped by a signal of this number.
    #[error("stopped by signal {0}")]
    Stopped(u8),
    /// The output folder cannot be made.
    #[error("cannot make the folder {}: {source}", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The error of the system.
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

/// An unknown name of a paper or figure. The message has the nearest name and all known names.
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
