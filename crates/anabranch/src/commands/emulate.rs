//! `emulate`: a command over emulated links between two network namespaces.

use std::io;

pub(crate) use emulate::cli::EmulateArgs;
use files::Error;

use crate::exit::Failure;

/// `anabranch emulate`.
///
/// # Errors
/// [`Failure::Code`] with the exit code of the command that ran; [`Error::System`] if the network
/// could not be emulated.
pub(crate) fn run(args: &EmulateArgs) -> Result<(), Failure> {
    match emulate::cli::run(args) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Failure::Code(code)),
        Err(error) => Err(Error::system("emulate the network", io::Error::other(error)).into()),
    }
}
