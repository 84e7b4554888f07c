//! The commands, each with its arguments.

pub(crate) mod cp;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod far;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod keys;
pub(crate) mod paths;
pub(crate) mod receive;
pub(crate) mod reproduce;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod simulate;

use std::io;

use files::Error;

use crate::cli::{Cli, Command};
use crate::transfer::Ended;

/// Does what the command line asks.
///
/// # Errors
/// Whatever ends the command without success.
pub(crate) fn run(cli: Cli) -> Result<(), Ended> {
    match cli.command {
        Command::Cp(args) => cp::run(args),
        Command::Far => far::run(),
        Command::Receive(args) => receive::run(args),
        Command::Send(args) => send::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Get(args) => get::run(args),
        Command::Paths(args) => paths::run(&args).map_err(Ended::from),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Emulate(args) => emulated(&args),
        Command::Simulate(args) => simulate::run(&args).map_err(Ended::from),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Keys(args) => keys::run(args).map_err(Ended::from),
        Command::Completions(args) => generate::completions(&args).map_err(Ended::from),
        Command::Man(args) => generate::man(&args).map_err(Ended::from),
    }
}

/// `emulate` ends as the command did that it ran.
fn emulated(args: &emulate::cli::EmulateArgs) -> Result<(), Ended> {
    match emulate::cli::run(args) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Ended::Code(code)),
        Err(error) => Err(Error::system("emulate the network", io::Error::other(error)).into()),
    }
}
