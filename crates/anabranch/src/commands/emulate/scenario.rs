//! `emulate SCENARIO`: its flows between real hosts.

use std::env;
use std::io;

use ::scenario::{Document, Registry, RunOptions, Scenario};
use emulate::cli::EXIT_INVALID;
use emulate::{EmulationError, gain_privilege};
use files::Error;
use live::flow_end::{self, FlowEndError};
use live::{Comparison, Outcome, RunError};
use serde::Serialize;
use units::Seed;

use super::{EmulateCommandArgs, relay_end};
use crate::commands::simulate::show;
use crate::exit::Failure;
use crate::host_process;

/// What `--json` and `--report` write.
#[derive(Serialize)]
struct ScenarioResults<'a> {
    #[serde(flatten)]
    comparison: &'a Comparison,
    /// The run between real hosts.
    run: &'a Outcome,
}

/// Runs a scenario file with real hosts.
///
/// # Errors
/// [`Error::usage`] if the file is invalid, or has what real hosts cannot do; [`Error::System`] if
/// the network could not be emulated, or a flow failed; [`Failure::Code`] of a run that does not
/// count, with `--strict`.
pub(super) fn run(args: &EmulateCommandArgs, registry: &Registry) -> Result<(), Failure> {
    let file = &args.network.network;
    let scenario = Document::load_with(file, registry.clone())
        .and_then(|document| document.scenario(&args.settings))
        .map_err(|error| Error::usage(error.to_string()))?;
    if let Some(late) = &scenario.late {
        errln!("warning: {late}");
    }
    let seed = args.seed.map_or(scenario.seed, Seed);
    let real = emulated(&scenario, seed).map_err(|error| match error {
        RunError::Plan(_) => Error::usage(format!("{}: {error}", file.display())),
        other => Error::system("emulate the scenario", io::Error::other(other)),
    })?;
    let simulated = if args.compare {
        let run = scenario.run(seed, RunOptions::default());
        Some(run.map_err(|error| Error::usage(format!("{}: {error}", file.display())))?)
    } else {
        None
    };
    let comparison = Comparison::new(&scenario, seed.0, &real, simulated.as_ref());
    let json = || {
        let results = ScenarioResults { comparison: &comparison, run: &real };
        serde_json::to_string(&results).expect("results have only plain fields")
    };
    if let Some(path) = &args.network.report {
        std::fs::write(path, json() + "\n")
            .map_err(|error| Error::system(format!("write {}", path.display()), error))?;
    }
    if args.json {
        show(format_args!("{}\n", json()))?;
    } else if args.compare {
        show(comparison.table())?;
    } else {
        show(comparison.table_of_real())?;
    }
    for why in &real.report.why {
        errln!("emulate: this run does not count: {why}");
    }
    if args.network.strict && !real.report.valid {
        return Err(Failure::Code(EXIT_INVALID));
    }
    Ok(())
}

/// The run between real hosts: this program is the process of each.
fn emulated(scenario: &Scenario, seed: Seed) -> Result<Outcome, RunError> {
    // First what needs no privilege.
    live::Plan::new(scenario, seed)?;
    gain_privilege()?;
    let program = env::current_exe()
        .map_err(|error| EmulationError::World { doing: "finding this program".into(), error })?;
    live::run(scenario, seed, |process| host_process::command(&program, process))
}

/// `anabranch flow-end`: the process of one host.
///
/// # Errors
/// [`Error::System`] if a flow failed, or the emulator is gone.
pub(crate) fn flow_end(registry: &Registry) -> Result<(), Failure> {
    match flow_end::run(registry, relay_end::client, io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => Ok(()),
        // The emulator says it.
        Err(FlowEndError::Flow { .. }) => Err(Failure::Code(10)),
        Err(FlowEndError::Messages(error)) => {
            Err(Error::system("talk with the emulator", error).into())
        }
    }
}
