//! `--qlog`: the logs of striped connections.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use files::Error;
use stripe::Qlog;

use crate::name;
use crate::sanitize::clean;

/// The time in which the rest of the logs is written at the end.
const REST: Duration = Duration::from_secs(2);

/// The logs of this process: a command opens one folder.
static OPEN: OnceLock<Qlog> = OnceLock::new();

/// The flag of commands that carry data over UDP.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct QlogArgs {
    /// Write a log of each UDP connection into FOLDER, for qvis and other readers of qlog
    #[arg(long, value_name = "FOLDER", value_parser = folder, help_heading = "Over UDP")]
    qlog: Option<PathBuf>,
}

impl QlogArgs {
    /// Whether logs are asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.qlog.is_some()
    }

    /// Opens the folder of the flag, or that of the configuration.
    ///
    /// # Errors
    /// [`Error::usage`] with the folder's name if it is missing or no folder, [`Error::System`] if
    /// nothing can be written into it.
    pub(crate) fn open(&self, configured: Option<&Path>) -> Result<Option<Qlog>, Error> {
        let Some(folder) = self.qlog.as_deref().or(configured) else { return Ok(None) };
        let qlog = Qlog::into_folder(folder, |warning| {
            // A closed standard error ends nothing.
            errln!("{}: {}", name::of_program(), clean(warning));
        });
        let qlog = qlog.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Error::usage(format!("--qlog {}: {error}", folder.display()))
            }
            _ => Error::system(format!("write logs into {}", folder.display()), error),
        })?;
        Ok(Some(OPEN.get_or_init(|| qlog).clone()))
    }
}

/// A folder that exists.
fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.metadata() {
        Ok(found) if found.is_dir() => Ok(path),
        Ok(_) => Err("it is no folder".into()),
        Err(error) => Err(format!("{error}; the folder has to be there")),
    }
}

/// Writes the rest of the logs.
pub(crate) fn finish() {
    if let Some(qlog) = OPEN.get() {
        qlog.flush(REST);
    }
}
