//! The runs of a file: every case with every seed.

use overlay::{Choice, Detect, Initial, Reselect};
use report::tidy::{Key, Kind, Measure, Schema, Value};
use report::{Mean, mean};
use scenario::relays::RateStudy;
use units::Seed;

use super::settings::{Case, Settings};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::fluid;
use crate::fluid::control::FluidOutcome;
use crate::fluid::search::{self, SearchResult};
use crate::outcome::Data;
use crate::parallel::parallel;

/// The number of iterations of a search; the cap if it was given up.
pub(super) fn iterations(found: &SearchResult, cap: usize) -> f64 {
    float(found.iterations.unwrap_or(cap))
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// The index of its case in the file.
    case: usize,
    seed: u64,
    /// Measure, control interval (of measures over time) and value.
    values: Vec<(&'static str, Option<usize>, f64)>,
}

/// All runs of a file.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    file: String,
    pub(super) settings: Settings,
    all: Vec<Run>,
}

const MEASURES: &[(&str, &str, &str)] = &[
    (
        "optimum",
        "",
        "the most that any control could reach over the run's paths, as a share of all demands",
    ),
    (
        "value",
        "",
        "the convergence value: the mean rate of the last intervals, as a share of all demands",
    ),
    ("noise", "", "the standard deviation of the rate in the last intervals"),
    ("gap", "", "how far the value is below the optimum, relative to it"),
    (
        "time",
        "intervals",
        "the interval from which on all rates are within the band around the value; all if none \
         is",
    ),
    (
        "excess",
        "",
        "what sources set beyond what arrived in the last intervals, as a share of all demands",
    ),
    ("rate", "", "the rate in an interval, as a share of all demands"),
    ("reached", "intervals", "the first interval with 0.99 of all demands"),
    ("initial", "Mbit/s", "a path's max-min rate; `interval` is its number, from 1"),
    (
        "iterations",
        "",
        "the iteration in which every demand could be met; of a search that was given up, the \
         last",
    ),
    ("given_up", "", "1 if the search was given up"),
    (
        "fluid_iterations",
        "",
        "the iteration in which every demand was met where relays are fluids: same sources and \
         relays",
    ),
    ("first", "", "the rate over the first choice of paths, as a share of all demands"),
    (
        "fluid",
        "",
        "the convergence value where relays are fluids: same sources, relays, paths and rules",
    ),
    (
        "utilisation",
        "",
        "how busy the relays’ links were in the last intervals, each weighted by its capacity",
    ),
    ("retransmitted", "", "packets that relays sent again, of all that they sent"),
    ("timeouts", "", "retransmission timeouts of relays"),
    ("held", "B", "the most payload of one path that a relay ever had read and not sent"),
    ("hops", "", "packets through links"),
];

impl Runs {
    /// Runs the file `number` of the figure; `of` computes the measures of a case and a seed.
    pub(super) fn of(
        lab: &Lab<'_>,
        number: usize,
        of: impl Fn(&Settings, &Case, Seed) -> Vec<(&'static str, Option<usize>, f64)> + Sync,
    ) -> Result<Runs, StudyError> {
        let (file, text) = &lab.files[number];
        let settings = Settings::read(text, file)?;
        let seeds =
            usize::try_from(lab.context.seeds.unwrap_or(settings.runs)).expect("32 bits fit");
        let all = parallel(lab.context.jobs, settings.cases.len() * seeds, lab.progress, |index| {
            let (case, seed) = (index / seeds, settings.seed + (index % seeds) as u64);
            Run { case, seed, values: of(&settings, &settings.cases[case], Seed(seed)) }
        });
        Ok(Runs { file: file.clone(), settings, all })
    }

    /// Runs rate control over the initially chosen paths.
    pub(super) fn controlled(lab: &Lab<'_>, number: usize) -> Result<Runs, StudyError> {
        Runs::of(lab, number, |_, case, seed| {
            measures(&case.search.setting, &fluid::control::run(&case.search.setting, seed))
        })
    }

    /// Runs searches for paths over which every demand is met.
    pub(super) fn searched(lab: &Lab<'_>, number: usize) -> Result<Runs, StudyError> {
        Runs::of(lab, number, |_, case, seed| {
            let found = search::run(&case.search, seed);
            vec![
                ("iterations", None, iterations(&found, case.search.cap)),
                ("given_up", None, if found.iterations.is_none() { 1.0 } else { 0.0 }),
                ("first", None, found.first),
            ]
        })
    }

    /// The values of a measure in all runs of the wanted cases, at least one.
    pub(super) fn samples(
        &self,
        measure: &str,
        wanted: impl Fn(&Case) -> bool,
    ) -> Result<Vec<f64>, StudyError> {
        let runs = self.all.iter().filter(|run| wanted(&self.settings.cases[run.case]));
        let values = runs.flat_map(|run| run.values.iter().filter(|(name, ..)| *name == measure));
        let samples: Vec<f64> = values.map(|(.., value)| *value).collect();
        if samples.is_empty() {
            let missing = format!("no case in it yields the measure {measure} that is wanted");
            return Err(StudyError::Lacks { file: self.file.clone(), missing });
        }
        Ok(samples)
    }

    /// A measure over the intervals of the first run of a case.
    pub(super) fn course(&self, measure: &str, wanted: impl Fn(&Case) -> bool) -> Vec<(f64, f64)> {
        let run = self.all.iter().find(|run| wanted(&self.settings.cases[run.case]));
        let values =
            run.into_iter().flat_map(|run| &run.values).filter(|(name, ..)| *name == measure);
        values.filter_map(|(_, interval, value)| Some((float((*interval)?), *value))).collect()
    }

    /// The mean of a measure.
    pub(super) fn mean(
        &self,
        measure: &str,
        wanted: impl Fn(&Case) -> bool,
    ) -> Result<Option<Mean>, StudyError> {
        Ok(mean(&self.samples(measure, wanted)?))
    }

    /// The names of the cases without repetitions, in the order of the file.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for case in &self.settings.cases {
            if !names.contains(&case.name.as_str()) {
                names.push(&case.name);
            }
        }
        names
    }

    /// The seeds in words, for captions.
    pub(super) fn seeds(&self) -> String {
        let seeds = self.all.iter().map(|run| run.seed);
        let (first, last) = (seeds.clone().min().unwrap_or(0), seeds.max().unwrap_or(0));
        if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") }
    }
}

/// The measures of a run of rate control.
pub(super) fn measures(
    setting: &RateStudy,
    course: &FluidOutcome,
) -> Vec<(&'static str, Option<usize>, f64)> {
    // A run that does not settle counts with all its intervals.
    let time = course.time.unwrap_or(setting.intervals);
    vec![
        ("optimum", None, course.optimum),
        ("value", None, course.value),
        ("gap", None, course.gap()),
        ("time", None, float(time)),
        ("excess", None, course.excess),
    ]
}

/// The table of all runs of a figure.
pub(super) fn data(files: &[&Runs]) -> Data {
    let key = Key::new;
    let keys = [
        key("case", Kind::Text, "", "the case's name in the file"),
        key("b", Kind::Real, "", "relay j has a capacity in proportion to j to the power of -b"),
        key("f", Kind::Real, "", "all capacities over all demands"),
        key("k", Kind::Integer, "", "paths a source"),
        key("choice", Kind::Text, "", "how relays are drawn"),
        key("rule", Kind::Text, "", "additive or multiplicative increments"),
        key("epsilon", Kind::Real, "", "the additive increment over the demand"),
        key("start", Kind::Text, "", "the rates to begin with"),
        key("detect", Kind::Text, "", "how failure is found"),
        key("reselect", Kind::Text, "", "which paths are drawn anew"),
        key("seed", Kind::Integer, "", "the run's seed"),
        key("interval", Kind::Integer, "", "of measures over time"),
    ];
    let schema = Schema::new(
        keys,
        MEASURES.iter().map(|(name, unit, meaning)| Measure::new(*name, *unit, *meaning)),
    );
    let mut rows = Vec::new();
    for runs in files {
        for run in &runs.all {
            let keys = columns(&runs.settings.cases[run.case]);
            for (measure, interval, value) in &run.values {
                let mut keys = keys.clone();
                keys.push(Value::Integer(run.seed.cast_signed()));
                keys.push(interval.map_or(Value::Missing, integer));
                rows.push((keys, (*measure).to_owned(), *value));
            }
        }
    }
    Data { schema, rows }
}

fn columns(case: &Case) -> Vec<Value> {
    let RateStudy { skew, supply, paths, choice, control, initial, .. } = &case.search.setting;
    let choice = match choice {
        Choice::Uniform => "uniform",
        Choice::Proportional { .. } => "proportional",
    };
    let detect = match control.detect {
        Detect::Throughput(_) => "throughput",
        Detect::Packets { .. } => "packets",
        Detect::RelayOverload => "overload",
        Detect::Receiver(_) => "receiver",
    };
    let reselect = match case.search.rule {
        _ if !case.searches => Value::Missing,
        Reselect::Paths => Value::from("k"),
        Reselect::Least => Value::from("1"),
        Reselect::Everything => Value::from("all"),
    };
    vec![
        Value::from(case.name.as_str()),
        Value::Real(*skew),
        Value::Real(*supply),
        integer(*paths),
        Value::from(choice),
        Value::from(if control.beta > 0.0 { "MIMD" } else { "AIAD" }),
        Value::Real(control.epsilon),
        Value::from(if *initial == Initial::Zero { "zero" } else { "max-min" }),
        Value::from(detect),
        reselect,
    ]
}

fn integer(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(super) fn float(number: usize) -> f64 {
    number as f64
}
