//! The command line; each command's arguments are defined in the command's module.
#![expect(clippy::format_push_string, reason = "a few short lines, and easier to read")]

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use scenario::Registry;
use tracing_subscriber::filter::Targets;

use crate::commands::{
    collect, cp, demo, doctor, emulate, far, feed, gateway, generate, get, host, keys, paths, perf,
    plot, receive, relay, reproduce, send, serve, simulate, tunnel,
};
use crate::exit::{EXIT_CODES, Failure};
use crate::{log, name};

/// Moves bulk data over every network path between two hosts.
#[derive(Debug, Parser)]
#[command(
    name = name::of_program(),
    version = name::version(),
    about,
    disable_help_subcommand = true,
    after_long_help = after_long_help()
)]
pub(crate) struct Cli {
    /// Log the work of the drivers on standard error: a level (error, warn, info, debug, trace), or
    /// levels by part, as in peer=debug,files=info
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "ANABRANCH_LOG",
        value_parser = log::parse_filter,
        hide_short_help = true
    )]
    log: Option<Targets>,
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands that write events as JSON with `--json`.
const COMMANDS_WITH_EVENTS: [&str; 12] = [
    "cp",
    "receive",
    "send",
    "serve",
    "get",
    "host",
    "tunnel",
    "serve-tunnel",
    "relay",
    "feed",
    "collect",
    "gateway",
];

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files to or from a host that ssh reaches; the data goes over every path, not through
    /// ssh
    Cp(cp::CpArgs),
    /// Serve or receive for a `cp` on another host, which starts this over ssh
    #[command(hide = true)]
    Far(far::FarArgs),
    /// Wait for a transfer and write its files
    Receive(receive::ReceiveArgs),
    /// Send files over every path to a receiver
    Send(send::SendArgs),
    /// Serve a folder to hosts that are allowed to get files from it
    Serve(serve::ServeArgs),
    /// Get files over every path from a server, or one file from several servers
    Get(get::GetArgs),
    /// Carry TCP connections of other programs over every path: SOCKS and HTTP proxies, forwarded
    /// ports, transparent interception
    Tunnel(tunnel::near::TunnelArgs),
    /// Dial targets for a `tunnel` on another host that is allowed to reach them
    ServeTunnel(tunnel::far::ServeTunnelArgs),
    /// Send records to a collector as they come: lines of programs and logs
    Feed(feed::FeedArgs),
    /// Keep the records of feeds, each once and in order
    Collect(collect::CollectArgs),
    /// Carry connections between hosts that are allowed to use this one as a relay
    Relay(relay::RelayArgs),
    /// Carry the background TCP connections of hosts to other sites, out of the way of others
    Gateway(gateway::GatewayArgs),
    /// Receive, serve, dial for tunnels, collect, relay and measure at one port, as the
    /// configuration says
    Host(host::HostArgs),
    /// Show the usable paths, and why the other devices have none
    Paths(paths::PathsArgs),
    /// Diagnose what limits the paths, and print the commands that fix it
    Doctor(doctor::DoctorArgs),
    /// Measure what two hosts carry over each path and together, over TCP and over UDP
    Perf(perf::PerfArgs),
    /// Send a file over three emulated paths, with each scheduler in turn
    Demo(demo::DemoArgs),
    /// Run a command over emulated links between two network namespaces, or a scenario file with
    /// real hosts
    Emulate(emulate::EmulateCommandArgs),
    /// Run the flows of one host of `emulate SCENARIO`, which starts this in its namespace
    #[command(hide = true)]
    FlowEnd,
    /// Be the background gateway of one node of `emulate SCENARIO`, which starts this in its
    /// namespace
    #[command(hide = true)]
    GatewayEnd,
    /// Be the relay of one node of `emulate SCENARIO`, which starts this in its namespace
    #[command(hide = true)]
    RelayEnd,
    /// Run a scenario file in the simulator: topology, flows, controllers, sweeps
    Simulate(simulate::SimulateArgs),
    /// Plot the results of `simulate --out`: a measure over a parameter, or a distribution
    Plot(plot::PlotArgs),
    /// Reproduce the figures of a paper or a theory, and compare: tables, plots, a page
    Reproduce(reproduce::ReproduceArgs),
    /// Show this host's key; list, add and remove hosts that need no token
    Keys(keys::KeysArgs),
    /// Print a completion script for a shell
    Completions(generate::CompletionsArgs),
    /// Print the manual, or write its pages into a folder
    Man(generate::ManArgs),
}

impl Command {
    /// Whether the command writes events as JSON.
    pub(crate) fn writes_events(&self) -> bool {
        match self {
            Command::Cp(args) => args.is_json(),
            Command::Receive(args) => args.is_json(),
            Command::Send(args) => args.is_json(),
            Command::Serve(args) => args.is_json(),
            Command::Get(args) => args.is_json(),
            Command::Tunnel(args) => args.is_json(),
            Command::ServeTunnel(args) => args.is_json(),
            Command::Relay(args) => args.is_json(),
            Command::Feed(args) => args.is_json(),
            Command::Collect(args) => args.is_json(),
            Command::Gateway(args) => args.is_json(),
            Command::Host(args) => args.is_json(),
            _ => false,
        }
    }

    /// Whether the command uses this host's key or a token. The others start commands that may need
    /// to be debugged, or namespaces, which a process that cannot be dumped may not set up.
    fn holds_keys(&self) -> bool {
        !matches!(
            self,
            Command::Demo(_)
                | Command::Emulate(_)
                | Command::FlowEnd
                | Command::GatewayEnd
                | Command::RelayEnd
                | Command::Simulate(_)
                | Command::Plot(_)
                | Command::Reproduce(_)
                | Command::Completions(_)
                | Command::Man(_)
        )
    }
}

impl Cli {
    /// Runs the command; scenario files may name what is in `registry`.
    ///
    /// # Errors
    /// The command's own.
    pub(crate) fn run(self, registry: &Registry) -> Result<(), Failure> {
        if let Some(filter) = self.log {
            log::start(filter);
        }
        if self.command.holds_keys() {
            // A system that refuses this, such as an old container, still moves files.
            if let Err(error) = peer::private::forbid_dumps() {
                tracing::warn!(%error, "the memory of this process is not protected");
            }
        }
        match self.command {
            Command::Cp(args) => cp::run(args),
            Command::Far(args) => far::run(&args),
            Command::Receive(args) => receive::run(args),
            Command::Send(args) => send::run(args),
            Command::Serve(args) => serve::run(args),
            Command::Get(args) => get::run(args),
            Command::Tunnel(args) => tunnel::near::run(args),
            Command::ServeTunnel(args) => tunnel::far::run(args),
            Command::Relay(args) => relay::run(args),
            Command::Feed(args) => feed::run(args),
            Command::Collect(args) => collect::run(args),
            Command::Gateway(args) => gateway::run(args),
            Command::Host(args) => host::run(args),
            Command::Paths(args) => paths::run(&args).map_err(Failure::from),
            Command::Doctor(args) => doctor::run(&args),
            Command::Perf(args) => perf::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Emulate(args) => emulate::run(&args, registry),
            Command::FlowEnd => emulate::scenario::flow_end(registry),
            Command::GatewayEnd => emulate::gateway_end::run(),
            Command::RelayEnd => emulate::relay_end::run(),
            Command::Simulate(args) => simulate::run(&args, registry).map_err(Failure::from),
            Command::Plot(args) => plot::run(&args).map_err(Failure::from),
            Command::Reproduce(args) => reproduce::run(&args),
            Command::Keys(args) => keys::run(args).map_err(Failure::from),
            Command::Completions(args) => generate::completions(&args).map_err(Failure::from),
            Command::Man(args) => generate::man(&args, Cli::command()).map_err(Failure::from),
        }
    }
}

/// Whether an invalid command line asks for events as JSON: its `--json` counts for the commands
/// that have such a stream.
pub(crate) fn asks_for_events(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut is_of_transfer = false;
    for argument in arguments.into_iter().take_while(|argument| argument != "--") {
        if is_of_transfer && argument == "--json" {
            return true;
        }
        is_of_transfer |= COMMANDS_WITH_EVENTS.iter().any(|name| argument == *name);
    }
    false
}

fn after_long_help() -> String {
    let mut text = String::from("Exit codes:\n");
    for (code, meaning) in EXIT_CODES {
        text.push_str(&format!("  {code:>3}  {meaning}\n"));
    }
    text.push_str(
        "\nA token is never an argument, because other users of the machine could read it: \
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
