//! What the command line looks like; each command's arguments stand with the command.
#![expect(clippy::format_push_string, reason = "a few short lines, and easier to read")]

use clap::{Parser, Subcommand};
use emulate::cli::EmulateArgs;

use crate::commands::{
    cp, demo, doctor, generate, get, keys, paths, receive, reproduce, send, serve, simulate,
};

/// How a process ends, for `--help`, the manual page and docs/exit-codes.md (a test holds the three
/// together).
pub(crate) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "success: every byte is at the receiver, verified and synced"),
    (1, "reproduce: some figures differ from the paper's; doctor: something holds a path back"),
    (
        2,
        "usage: the command line, configuration or token makes no sense, or no file is left to \
         send",
    ),
    (3, "a source is missing or not readable, here or at the server"),
    (4, "authentication: the other host has another key than the token says, or refused this one"),
    (5, "no usable path to the other host; trying again later may help"),
    (6, "every path was lost; what arrived is kept, and the same command goes on from there"),
    (7, "integrity: the source changed underway, or bytes did not match their hash"),
    (8, "the receiving disk: full, failing, or the target exists or is of another kind"),
    (9, "the peer broke the protocol"),
    (10, "the local system refused something: sockets, keys, configuration"),
    (11, "the monthly caps of all paths are reached; what arrived is kept"),
    (12, "cp: ssh failed, or the other host lacks a version of anabranch that fits"),
    (130, "interrupted (SIGINT); what arrived is kept"),
    (143, "terminated (SIGTERM); what arrived is kept"),
];

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
    Cp(cp::Args),
    /// What cp starts on the other host
    #[command(hide = true)]
    Far,
    /// Wait for a transfer and write its files
    Receive(receive::Args),
    /// Send files over every path to a receiver
    Send(send::Args),
    /// Offer a folder to hosts that may get files from it
    Serve(serve::Args),
    /// Get files over every path from a host that serves them, or one file from several
    Get(get::Args),
    /// Show which paths there are, and why a device is none
    Paths(paths::Args),
    /// Find out what holds the paths back, and which command mends it
    Doctor(doctor::Args),
    /// Watch one file move over three emulated paths, under each scheduler
    Demo(demo::Args),
    /// Run a command over emulated links between two network namespaces
    Emulate(EmulateArgs),
    /// Run a scenario file in the simulator: topology, flows, controllers, sweeps
    Simulate(simulate::Args),
    /// Set the figures of a paper, or of a theory, beside ours: tables, pictures, a page
    Reproduce(reproduce::Args),
    /// Show this host's key; say which hosts may send or get without a token
    Keys(keys::Args),
    /// Print a completion script for a shell
    Completions(generate::CompletionsArgs),
    /// Print the manual, or write its pages into a folder
    Man(generate::ManArgs),
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
