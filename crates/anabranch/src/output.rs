//! A received file that goes to standard output instead of a folder.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use files::{Error, Output};

use crate::scratch::Scratch;

/// The target `-`: standard output, and a temporary folder in which data wait for their turn.
pub(crate) struct ToStdout {
    folder: Scratch,
    output: Output,
}

impl ToStdout {
    /// The target `-`, if `target` is that. A folder of that name is `./-`.
    ///
    /// # Errors
    /// If the temporary folder cannot be made.
    pub(crate) fn find(target: Option<&Path>) -> Result<Option<ToStdout>, Error> {
        if target != Some(Path::new("-")) {
            return Ok(None);
        }
        let failed = |source| Error::system("write to standard output", source);
        // Not the buffered one, which looks for the ends of lines.
        let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
        let folder = Scratch::private("output");
        let folder = folder.map_err(|source| Error::system("make a temporary folder", source))?;
        Ok(Some(ToStdout { folder, output: Output::new(File::from(stdout)) }))
    }

    /// The temporary folder; it lives as long as this.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Standard output.
    pub(crate) fn output(&self) -> Output {
        self.output.clone()
    }
}
