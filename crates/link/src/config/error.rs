//! What is wrong with a network file.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use units::ParseError;

use crate::opportunities::TraceError;

pub(super) type Result<T, E = ConfigError> = core::result::Result<T, E>;

/// What is wrong, and where.
#[derive(Debug)]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1; `None` where it is about the file as a whole.
    pub line: Option<usize>,
    /// The key, with its tables: `link.wifi.up.rate`. Empty where it is about the file as a whole.
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a key or its value.
#[derive(Debug)]
pub enum Problem {
    /// The file cannot be read.
    Read(std::io::Error),
    /// The trace that it names cannot be read.
    ReadTrace {
        /// Where it was looked for.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The trace that it names is not understood.
    Trace {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        error: Box<TraceError>,
    },
    /// It is no TOML.
    Syntax(String),
    /// There is no such key.
    UnknownKey {
        /// The most similar one.
        nearest: Option<&'static str>,
    },
    /// A key that is required is not there.
    Missing,
    /// The value is of another type.
    Type {
        /// What was expected.
        wanted: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// The value is no quantity of the right unit.
    Quantity(ParseError),
    /// The value is none of the words that may stand here.
    UnknownWord {
        /// What is there.
        found: String,
        /// The most similar one of those that may stand here.
        nearest: Option<String>,
    },
    /// The value makes no sense here.
    Sense(&'static str),
    /// The value makes no sense here, in words that depend on it.
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
            Problem::UnknownKey { nearest: Some(nearest) } => {
                write!(f, "no such key; did you mean `{nearest}`?")
            }
            Problem::UnknownKey { nearest: None } => write!(f, "no such key"),
            Problem::Missing => write!(f, "is missing"),
            Problem::Type { wanted, found } => write!(f, "wants {wanted}, not {found}"),
            Problem::Quantity(error) => write!(f, "{error}"),
            Problem::UnknownWord { found, nearest: Some(nearest) } => {
                write!(f, "'{found}' is not known here; did you mean '{nearest}'?")
            }
            Problem::UnknownWord { found, nearest: None } => {
                write!(f, "'{found}' is not known here")
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
