//! `emulate`: a command over emulated links between two network namespaces, the flows of a scenario
//! file between a namespace for each host, or a mesh of hosts, routers and address translators for
//! other programs.

pub(crate) mod gateway_end;
pub(crate) mod relay_end;
pub(crate) mod scenario;

use std::io;
use std::path::Path;

use ::scenario::{Registry, Setting};
use emulate::cli::{CliError, EmulateArgs as NetworkArgs};
use files::Error;

use super::simulate::setting;
use crate::exit::Failure;

/// Arguments of `emulate`.
///
/// With a network file, COMMAND runs in one of two network namespaces, near and far, which are
/// joined by the links of the file, each a device called like the link in both, with the addresses
/// `10.77.i.1` near and `10.77.i.2` far (`fd77:i::1` and `fd77:i::2`) for the link number i.
/// COMMAND finds `ANABRANCH_FAR` (the first far address), `ANABRANCH_LINKS`, `ANABRANCH_NEAR_ADDRS`
/// and `ANABRANCH_FAR_ADDRS` in its environment. The schedule's clock starts with the first SYN or
/// the first TCP or UDP payload.
///
/// With a scenario file, each host of its flows is a network namespace, and the flows are traffic
/// of the kernel's TCP and UDP over links as the simulator has them.
///
/// With a mesh file, which lists hosts, routers and address translators, the network is there until
/// standard input ends. Lines of JSON on standard output say how to run commands on its hosts, and
/// lines on standard input change it: see docs/mesh.md.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EmulateCommandArgs {
    #[command(flatten)]
    network: NetworkArgs,
    /// Of a scenario file: run the simulator too, with the same seed, and compare
    #[arg(long)]
    compare: bool,
    /// Of a scenario file: print the results as JSON
    #[arg(long)]
    json: bool,
    /// Of a scenario file: change a value, as `simulate --set` does
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<Setting>,
    /// Of a scenario file: the seed, instead of the file's first one
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl EmulateCommandArgs {
    /// The first option that is of scenario files alone.
    fn of_scenarios(&self) -> Option<&'static str> {
        let given = [
            ("--compare", self.compare),
            ("--json", self.json),
            ("--set", !self.settings.is_empty()),
            ("--seed", self.seed.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// The first option, or COMMAND, that is of network files alone.
    fn of_networks(&self) -> Option<&'static str> {
        let NetworkArgs { far, loopback, bytes, ideal, command, .. } = &self.network;
        let given = [
            ("COMMAND", !command.is_empty()),
            ("--far", far.is_some()),
            ("--loopback", *loopback),
            ("--bytes", bytes.is_some()),
            ("--ideal", ideal.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// `anabranch emulate`; `registry` has what a scenario file may name.
///
/// # Errors
/// [`Failure::Code`] with the exit code of the command that ran; [`Error::System`] if the network
/// could not be emulated; [`Error::usage`] if the file or an argument is invalid.
pub(crate) fn run(args: &EmulateCommandArgs, registry: &Registry) -> Result<(), Failure> {
    let file = &args.network.network;
    if has_table(file, "flow") {
        if let Some(option) = args.of_networks() {
            let text =
                format!("{}: {option} is for network files, and this is a scenario", show(file));
            return Err(Error::usage(text).into());
        }
        return scenario::run(args, registry);
    }
    if let Some(option) = args.of_scenarios() {
        let text = format!("{}: {option} is for scenario files, and this has no flows", show(file));
        return Err(Error::usage(text).into());
    }
    if has_table(file, "host") {
        if let Some(option) = args.of_networks() {
            let text = format!("{}: {option} is for network files, and this is a mesh", show(file));
            return Err(Error::usage(text).into());
        }
        return conclude(emulate::cli::run_mesh(&args.network));
    }
    if let Some(payload) = args.network.ideal {
        let ideal = emulate::cli::ideal(&args.network, payload).map_err(cannot)?;
        outln!("{:.6}", ideal.as_secs_f64());
        return Ok(());
    }
    if args.network.command.is_empty() {
        let text = format!(
            "{}: a network file wants a command to run over it: add -- COMMAND",
            show(file)
        );
        return Err(Error::usage(text).into());
    }
    conclude(emulate::cli::run(&args.network))
}

fn conclude(result: Result<u8, CliError>) -> Result<(), Failure> {
    match result {
        Ok(0) => Ok(()),
        Ok(code) => Err(Failure::Code(code)),
        Err(error) => Err(cannot(error)),
    }
}

fn cannot(error: CliError) -> Failure {
    Error::system("emulate the network", io::Error::other(error)).into()
}

/// Whether the file has this table: the flows of a scenario, the hosts of a mesh. What cannot be
/// read is left to the reader of network files, which says why.
fn has_table(file: &Path, name: &str) -> bool {
    let table = link::config::reader::read_text(file)
        .ok()
        .and_then(|text| text.parse::<toml::Table>().ok());
    table.is_some_and(|table| table.contains_key(name))
}

fn show(file: &Path) -> std::path::Display<'_> {
    file.display()
}
