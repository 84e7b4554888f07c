//! Errors in network files.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use units::ParseError;

use crate::opportunities::TraceError;

pub(super) type Result<T, E = ConfigError> = core::result::Result<T, E>;

/// An error in a file, with its location.
#[derive(Debug)]
pub struct ConfigError {
    /// The name of the file.
    pub file: String,
    /// The line, from 1; `None` for errors of the whole file.
    pub line: Option<usize>,
    /// The key with its tables: `link.wifi.up.rate`. Empty for errors of the whole file.
    pub key: String,
    /// The problem.
    pub problem: Problem,
}

/// A problem with a key or its value.
#[derive(Debug)]
pub enum Problem {
    /// The file cannot be read.
    Read(std::io::Error),
    /// A trace file cannot be read.
    ReadTrace {
        /// The path of the trace.
        path: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// A trace file is not valid.
    Trace {
        /// The path of the trace.
        path: String,
        /// The error in the trace.
        error: Box<TraceError>,
    },
    /// The text is not TOML.
    Syntax(String),
    /// An unknown key.
    UnknownKey {
        /// The most similar known key.
        nearest: Option<&'static str>,
        /// The known keys.
        known: Box<str>,
    },
    /// A required key is missing.
    Missing,
    /// The value has the wrong type.
    Type {
        /// The expected type.
        wanted: &'static str,
        /// The type of the value.
        found: &'static str,
    },
    /// The value is not a quantity with the right unit.
    Quantity(ParseError),
    /// The value is not one of the allowed words.
    UnknownWord {
        /// The value.
        found: Box<str>,
        /// The most similar allowed word.
        nearest: Option<Box<str>>,
        /// The allowed words.
        known: Box<str>,
    },
    /// The value is not valid here.
    Sense(&'static str),
    /// The value is not valid here, with a message that depends on it.
    Because(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Read(error) => write!(f, "{error}"),
            Problem::ReadTrace { path, error } => write!(f, "{path}: {error}"),
            Problem::Trace { path, error } => write!(f, "{path}:{}: {}", error.line, error.problem),
            Problem::Syntax(message) | Problem::Because(message) => write!(f, "{message}"),
            Problem::UnknownKey { nearest: Some(nearest), known } => {
                write!(f, "no such key; did you mean `{nearest}`? There are: {known}")
            }
            Problem::UnknownKey { nearest: None, known } => {
                write!(f, "no such key; there are: {known}")
            }
            Problem::Missing => write!(f, "is missing"),
            Problem::Type { wanted, found } => write!(f, "wants {wanted}, not {found}"),
            Problem::Quantity(error) => write!(f, "{error}"),
            Problem::UnknownWord { found, nearest: Some(nearest), known } => {
                write!(
                    f,
                    "'{found}' is not known here; did you mean '{nearest}'? There are: {known}"
                )
            }
            Problem::UnknownWord { found, nearest: None, known } => {
                write!(f, "'{found}' is not known here; there are: {known}")
            }
            Problem::Sense(message) => write!(f, "{message}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Read(error) | Problem::ReadTrace { error, .. } => Some(error),
            Problem::Trace { error, .. } => Some(&**error),
            Problem::Quantity(error) => Some(error),
            _ => None,
        }
    }
}
