//! What the command line looks like; each command's arguments stand with the command.
#![expect(clippy::format_push_string, reason = "a few short lines, and easier to read")]

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    cp, demo, doctor, emulate, far, generate, get, keys, paths, receive, reproduce, send, serve,
    simulate,
};
use crate::exit::{EXIT_CODES, Failure};

/// Bulk data over every path there is between two places.
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, about, disable_help_subcommand = true, after_long_help = after_long_help())]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files to or from another host that ssh reaches; the data goes over every path, not
    /// through ssh
    Cp(cp::CpArgs),
    /// What cp starts on the other host
    #[command(hide = true)]
    Far,
    /// Wait for a transfer and write its files
    Receive(receive::ReceiveArgs),
    /// Send files over every path to a receiver
    Send(send::SendArgs),
    /// Offer a folder to hosts that may get files from it
    Serve(serve::ServeArgs),
    /// Get files over every path from a host that serves them, or one file from several
    Get(get::GetArgs),
    /// Show which paths there are, and why a device is none
    Paths(paths::PathsArgs),
    /// Find out what holds the paths back, and which command mends it
    Doctor(doctor::DoctorArgs),
    /// Watch one file move over three emulated paths, under each scheduler
    Demo(demo::DemoArgs),
    /// Run a command over emulated links between two network namespaces
    Emulate(emulate::EmulateArgs),
    /// Run a scenario file in the simulator: topology, flows, controllers, sweeps
    Simulate(simulate::SimulateArgs),
    /// Set the figures of a paper, or of a theory, beside ours: tables, pictures, a page
    Reproduce(reproduce::ReproduceArgs),
    /// Show this host's key; say which hosts may send or get without a token
    Keys(keys::KeysArgs),
    /// Print a completion script for a shell
    Completions(generate::CompletionsArgs),
    /// Print the manual, or write its pages into a folder
    Man(generate::ManArgs),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// The command's own.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Cp(args) => cp::run(args),
            Command::Far => far::run(),
            Command::Receive(args) => receive::run(args),
            Command::Send(args) => send::run(args),
            Command::Serve(args) => serve::run(args),
            Command::Get(args) => get::run(args),
            Command::Paths(args) => paths::run(&args).map_err(Failure::from),
            Command::Doctor(args) => doctor::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Emulate(args) => emulate::run(&args),
            Command::Simulate(args) => simulate::run(&args).map_err(Failure::from),
            Command::Reproduce(args) => reproduce::run(&args),
            Command::Keys(args) => keys::run(args).map_err(Failure::from),
            Command::Completions(args) => {
                generate::completions(&args, Cli::command()).map_err(Failure::from)
            }
            Command::Man(args) => generate::man(&args, Cli::command()).map_err(Failure::from),
        }
    }
}

fn after_long_help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in EXIT_CODES {
        text.push_str(&format!("  {code:>3}  {meaning}\n"));
    }
    text.push_str(
        "\nA token never travels in arguments, where other users of the machine could read it: \
         paste it at the prompt, pipe it in, or set ANABRANCH_TOKEN.",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
