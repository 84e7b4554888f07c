//! The cases of a figure and their runs: real ones, and those of the simulator.

use std::str::FromStr;

use scenario::Setting;
use units::{Bytes, Rate, Seed, Span};

use super::{LIVE, cases};
use crate::cache::RunCache;
use crate::error::StudyError;
use crate::figure::{Context, Figure, Lab};
use crate::gateway_trial::{GatewayMeasured, GatewayTrial};
use crate::sizes::scaled;
use crate::testbed::Estimate;

/// The number of real runs of each case, unless the context has another one.
const RUNS: u32 = 1;
/// Real runs last for so many times the longest simulated transfer, and for the rest: they have to
/// be told how long before they begin.
const MARGIN: f64 = 1.5;
const REST: f64 = 4.0;
/// Namespaces and programs of a run, in seconds.
const ASIDE: f64 = 3.0;

/// A file with some of its values set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GatewayCase {
    /// Its name in tables and pictures.
    pub(super) name: String,
    /// The number of the file among those of the figure.
    pub(super) file: usize,
    /// The values.
    pub(super) settings: Vec<(&'static str, String)>,
    /// The transfers whose size is scaled, and with whose end a run ends; without any it is as long
    /// as the file says.
    pub(super) transfers: &'static [&'static str],
    /// How long they take at least, in times of one alone on one line.
    pub(super) load: f64,
    /// Whether real gateways can do this.
    pub(super) is_real: bool,
}

/// What the runs of a case have given.
#[derive(Clone, Debug)]
pub(super) struct GatewayRuns {
    pub(super) name: String,
    /// One for each run; nothing of what real gateways cannot do.
    pub(super) real: Vec<GatewayMeasured>,
    /// One for each seed.
    pub(super) simulated: Vec<GatewayMeasured>,
}

/// Runs the cases of a figure.
pub(super) fn run(lab: &Lab<'_>, cases: &[GatewayCase]) -> Result<Vec<GatewayRuns>, StudyError> {
    let mut counts = Vec::new();
    let mut trials = Vec::new();
    for case in cases {
        let trial = trial(lab, case)?;
        let scenario = trial.scenario()?;
        counts.push(scenario.runs as usize);
        for number in 0..u64::from(scenario.runs) {
            trials.push(GatewayTrial { seed: Seed(scenario.seed.0 + number), ..trial.clone() });
        }
    }
    let mut rest = lab.simulated_gateways(&trials)?.into_iter();
    let simulated: Vec<Vec<GatewayMeasured>> =
        counts.iter().map(|count| rest.by_ref().take(*count).collect()).collect();
    // Round by round: changes on the machine then affect all cases alike.
    let mut round = Vec::new();
    let mut before = 0;
    for ((case, runs), count) in cases.iter().zip(&simulated).zip(&counts) {
        if case.is_real {
            round.push(real(&trials[before], case.transfers, runs)?);
        }
        before += count;
    }
    let real_runs = lab.context.seeds.unwrap_or(RUNS);
    let again = |number: u32| {
        let seed = move |trial: &GatewayTrial| Seed(trial.seed.0 + u64::from(number));
        round.iter().map(move |trial| GatewayTrial { seed: seed(trial), ..trial.clone() })
    };
    let all: Vec<GatewayTrial> = (0..real_runs).flat_map(again).collect();
    let measured = lab.gateways(&all)?;
    let mut number = 0;
    let runs = cases.iter().zip(simulated).map(|(case, simulated)| {
        let of_case = measured.iter().skip(number).step_by(round.len().max(1)).cloned();
        let real = if case.is_real { of_case.collect() } else { Vec::new() };
        number += usize::from(case.is_real);
        GatewayRuns { name: case.name.clone(), real, simulated }
    });
    Ok(runs.collect())
}

/// The file of a case with its values, and its size scaled.
fn trial(lab: &Lab<'_>, case: &GatewayCase) -> Result<GatewayTrial, StudyError> {
    let (file, text) = &lab.files[case.file];
    let set =
        |(key, value): &(&str, String)| Setting { key: (*key).to_owned(), value: value.clone() };
    let mut settings: Vec<Setting> = case.settings.iter().map(set).collect();
    if !case.transfers.is_empty() {
        let size = scaled(parameter(file, text, "size")?, lab.context.experiment.scale);
        settings.push(set(&("size", format!("{} B", size.0))));
    }
    Ok(GatewayTrial { file: file.clone(), text: text.clone(), settings, seed: Seed(0) })
}

/// A parameter of a file, which is a quantity.
fn parameter<T: FromStr>(file: &str, text: &str, name: &str) -> Result<T, StudyError> {
    let value = text
        .parse::<toml::Table>()
        .ok()
        .and_then(|table| table.get("parameters")?.get(name)?.as_str()?.parse().ok());
    value.ok_or_else(|| StudyError::Lacks {
        file: file.to_owned(),
        missing: format!("`parameters` has no `{name}`, or not one with a unit"),
    })
}

/// The real run: as the simulated ones, but no longer than its transfers need.
fn real(
    trial: &GatewayTrial,
    transfers: &[&str],
    simulated: &[GatewayMeasured],
) -> Result<GatewayTrial, StudyError> {
    if transfers.is_empty() {
        return Ok(trial.clone());
    }
    let mut longest = 0.0_f64;
    for run in simulated {
        for flow in transfers {
            let missing = || StudyError::Lacks {
                file: trial.file.clone(),
                missing: format!("`duration` is too short for flow.{flow}, or there is none"),
            };
            longest = longest.max(run.completion(flow).ok_or_else(missing)?);
        }
    }
    let duration = Span::from_secs_f64((MARGIN * longest + REST).ceil());
    let value = format!("{} s", duration.as_millis() / 1_000);
    let mut real = trial.clone();
    real.settings.push(Setting { key: "duration".into(), value });
    Ok(real)
}

/// The time of the real runs, at the rate of their lines. Figures share runs.
pub(super) fn estimate(
    context: &Context,
    figures: &[&'static Figure],
) -> Result<Estimate, StudyError> {
    let cache = RunCache::default();
    let mut known: Vec<GatewayTrial> = Vec::new();
    let mut seconds = 0.0;
    for figure in figures {
        let lab = Lab::new(context, &LIVE, figure, &|_, _| {}, &cache)?;
        for case in cases(figure.name, context.experiment.quick) {
            let trial = trial(&lab, &case)?;
            if !case.is_real || known.contains(&trial) {
                continue;
            }
            seconds += ASIDE;
            if case.transfers.is_empty() {
                seconds += trial.scenario()?.duration.as_secs_f64();
            } else {
                let size: Bytes = parameter(&trial.file, &trial.text, "size")?;
                let rate: Rate = parameter(&trial.file, &trial.text, "rate")?;
                let alone = (scaled(size, context.experiment.scale) / rate).as_secs_f64();
                seconds += REST + MARGIN * case.load * alone;
            }
            known.push(trial);
        }
    }
    let runs = context.seeds.unwrap_or(RUNS);
    Ok(Estimate { runs: known.len() * runs as usize, seconds: seconds * f64::from(runs) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::runs;
    use super::*;
    use crate::testbed::Experiment;

    #[test]
    fn real_runs_last_for_what_the_simulator_needs_and_a_margin() {
        let trial = GatewayTrial {
            file: "a.toml".into(),
            text: String::new(),
            settings: Vec::new(),
            seed: Seed(0),
        };
        let both = ["one", "other"];
        let found = real(&trial, &both, &runs(&[("one", 10.2), ("other", 3.0)])).unwrap();
        assert_eq!(found.settings, [Setting::parse("duration=20 s").unwrap()]);
        let mut unfinished = runs(&[("one", 10.2)]);
        unfinished[0].flows[0].completion = None;
        assert_eq!(real(&trial, &[], &unfinished).unwrap(), trial);
        let error = real(&trial, &both, &unfinished).unwrap_err().to_string();
        assert!(error.contains("too short for flow.one"), "{error}");
    }

    #[test]
    fn the_estimate_counts_shared_runs_once() {
        let experiment = Experiment { scale: 0.1, ..Experiment::default() };
        let context = Context { papers: None, seeds: Some(2), jobs: 1, experiment };
        let of = |names: &[&str]| {
            let figures = names.iter().map(|name| LIVE.figure(name).unwrap());
            estimate(&context, &figures.collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(of(&["8b", "8c", "14"]), of(&["8b"]));
        // 10 MB take 8 s on a line of 10 Mbit/s.
        let alone = of(&["14"]);
        assert_eq!(alone.runs, 4);
        assert!((alone.seconds - 2.0 * (7.0 + 12.0 + 7.0 + 6.0)).abs() < 1e-9, "{alone:?}");
    }

    #[test]
    fn sizes_are_scaled_and_have_to_be_there() {
        let experiment = Experiment { scale: 0.2, ..Experiment::default() };
        let context = Context { papers: None, seeds: None, jobs: 1, experiment };
        let cache = RunCache::default();
        let figure = LIVE.figure("9a").unwrap();
        let mut lab = Lab::new(&context, &LIVE, figure, &|_, _| {}, &cache).unwrap();
        let case = &cases("9a", false)[0];
        let found = trial(&lab, case).unwrap();
        assert_eq!(found.settings, [Setting::parse("size=20000000 B").unwrap()]);
        lab.files[case.file].1 = lab.files[case.file].1.replace("size = \"100 MB\"", "");
        let error = trial(&lab, case).unwrap_err().to_string();
        assert!(error.contains("has no `size`"), "{error}");
    }
}
