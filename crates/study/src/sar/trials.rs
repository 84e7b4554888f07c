//! The transfers of a case and their results.

use report::tidy::{Key, Kind, Measure, Schema, Value};
use report::{Mean, mean};
use units::Bytes;

use super::settings::{FluidModel, SarSettings, initial_rates};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::Data;
use crate::testbed::{Carrier, Estimate, Measured, Trial};

/// The method of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    A,
    B,
    /// The default scheduler, whose idle paths also steal and copy.
    Sar,
    /// SAR by its plans alone, as in the paper.
    Plain,
    /// The same, where adjustments end for good once all paths would finish together.
    Latched,
    Mptcp,
}

impl Method {
    pub(super) const ALL: [Method; 6] =
        [Method::A, Method::B, Method::Sar, Method::Plain, Method::Latched, Method::Mptcp];

    /// Its name in tables and pictures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::A => "A",
            Method::B => "B",
            Method::Sar => "SAR",
            Method::Plain => "SAR plain",
            Method::Latched => "SAR latched",
            Method::Mptcp => "MPTCP",
        }
    }

    /// Only the paper's own algorithm measures the bandwidths at the start; A and B know them.
    fn carrier(self, trial: &link::config::Network) -> Carrier {
        let (scheduler, known) = match self {
            Method::A => ("static", initial_rates(trial)),
            Method::B => ("adjustable-block", initial_rates(trial)),
            Method::Sar => ("self-adaptive", Vec::new()),
            Method::Plain => ("sar", Vec::new()),
            Method::Latched => ("sar-latch", Vec::new()),
            Method::Mptcp => return Carrier::Mptcp { congestion_control: "cubic" },
        };
        Carrier::Ours { scheduler, known }
    }
}

/// All transfers of one size.
#[derive(Clone, Debug)]
pub(super) struct SizeTrials {
    pub(super) size: Bytes,
    pub(super) fluid: FluidModel,
    /// Method what, and each round's result.
    rounds: Vec<(Method, Vec<Measured>)>,
}

/// All transfers of a case.
#[derive(Clone, Debug)]
pub(super) struct Trials {
    settings: SarSettings,
    pub(super) sizes: Vec<SizeTrials>,
    /// The reason why MPTCP was not measured, if any.
    pub(super) no_mptcp: Option<String>,
}

/// The transfers of a case, round by round: changes on the machine then affect all methods alike.
struct Plan {
    trials: Vec<Trial>,
    methods: Vec<Method>,
    fluids: Vec<FluidModel>,
}

/// The time for starting programs, opening connections and comparing files, in seconds.
const ASIDE: f64 = 0.6;

fn plan(settings: &SarSettings, with_mptcp: bool) -> Result<Plan, StudyError> {
    let methods: Vec<Method> =
        Method::ALL.into_iter().filter(|method| with_mptcp || *method != Method::Mptcp).collect();
    let (mut trials, mut fluids) = (Vec::new(), Vec::new());
    for &size in &settings.sizes {
        let network = settings.network(size)?;
        fluids.push(
            FluidModel::of(&network, size, &settings.found)
                .ok_or_else(|| settings.carries_nothing())?,
        );
        let of = |method: &Method| Trial {
            network: network.clone(),
            bytes: size,
            carrier: method.carrier(&network),
        };
        trials.extend(methods.iter().map(of));
    }
    let round = trials.clone();
    for _ in 1..settings.runs {
        trials.extend(round.iter().cloned());
    }
    Ok(Plan { trials, methods, fluids })
}

/// A lower bound of the time of the transfers of a case.
pub(super) fn estimate(lab: &Lab<'_>, case: &'static str) -> Result<Estimate, StudyError> {
    let settings = SarSettings::read(lab, case)?;
    let plan = plan(&settings, no_mptcp(lab).is_none())?;
    let round: f64 = plan
        .fluids
        .iter()
        .map(|fluid| {
            let each = plan.methods.iter().map(|method| {
                if matches!(method, Method::A | Method::B) { fluid.a } else { fluid.ideal }
            });
            each.map(|seconds| seconds + ASIDE).sum::<f64>()
        })
        .sum();
    Ok(Estimate { runs: plan.trials.len(), seconds: round * f64::from(settings.runs) })
}

fn no_mptcp(lab: &Lab<'_>) -> Option<String> {
    lab.context.experiment.testbed.as_ref()?.no_mptcp().map(str::to_owned)
}

impl Trials {
    /// Runs a case, unless an earlier figure did.
    pub(super) fn of(lab: &Lab<'_>, case: &'static str) -> Result<Trials, StudyError> {
        let settings = SarSettings::read(lab, case)?;
        let no_mptcp = no_mptcp(lab);
        let Plan { trials, methods, fluids } = plan(&settings, no_mptcp.is_none())?;
        let measured = lab.transfer(&trials)?;
        let mut measured = measured.iter().cloned();
        let mut sizes: Vec<SizeTrials> = settings
            .sizes
            .iter()
            .zip(fluids)
            .map(|(&size, fluid)| SizeTrials {
                size,
                fluid,
                rounds: methods.iter().map(|method| (*method, Vec::new())).collect(),
            })
            .collect();
        for _ in 0..settings.runs {
            for (_, results) in sizes.iter_mut().flat_map(|trial| &mut trial.rounds) {
                results.push(measured.next().expect("as many results as transfers"));
            }
        }
        Ok(Trials { settings, sizes, no_mptcp })
    }

    pub(super) fn found(&self) -> &super::settings::PaperResults {
        &self.settings.found
    }

    pub(super) fn runs(&self) -> u32 {
        self.settings.runs
    }

    /// The means of a measure over all rounds, by size in MB.
    pub(super) fn over_sizes(&self, measure: impl Fn(&SizeTrials) -> Vec<f64>) -> Vec<(f64, Mean)> {
        let point = |trial: &SizeTrials| Some((trial.megabytes(), mean(&measure(trial))?));
        self.sizes.iter().filter_map(point).collect()
    }

    /// The mean of a measure over all rounds and sizes, as in the paper.
    pub(super) fn overall(&self, measure: impl Fn(&SizeTrials) -> Vec<f64>) -> Option<Mean> {
        mean(&self.sizes.iter().flat_map(measure).collect::<Vec<f64>>())
    }

    /// Every measure of every transfer.
    pub(super) fn data(&self) -> Data {
        let schema = Schema::new(
            [
                Key::new("bytes", Kind::Integer, "B", "the file's size"),
                Key::new(
                    "by",
                    Kind::Text,
                    "",
                    "what carried it: A, B, SAR with stealing and copies, plain (without), \
                     latched (plain, and adjustments end once paths would finish together), the \
                     kernel's MPTCP; fluid is what fluids would do",
                ),
                Key::new("round", Kind::Integer, "", "which of the repetitions"),
                Key::new("path", Kind::Text, "", "of which path, if of one"),
            ],
            MEASURES.iter().map(|(name, unit, meaning)| Measure::new(*name, *unit, *meaning)),
        );
        let mut rows = Vec::new();
        for trial in &self.sizes {
            let bytes = Value::Integer(i64::try_from(trial.size.0).unwrap_or(i64::MAX));
            let FluidModel { ideal, a, idle_a, .. } = trial.fluid;
            for (measure, value) in [("ideal", ideal), ("closed_form", a), ("idle", idle_a)] {
                rows.push((
                    vec![bytes.clone(), "fluid".into(), Value::Missing, Value::Missing],
                    measure.to_owned(),
                    value,
                ));
            }
            for (method, results) in &trial.rounds {
                for (round, measured) in (1_i64..).zip(results) {
                    let keys = |path| vec![bytes.clone(), method.name().into(), round.into(), path];
                    let mut row = |path, measure: &str, value| {
                        rows.push((keys(path), measure.to_owned(), value));
                    };
                    row(Value::Missing, "time", measured.seconds);
                    if let Some(idle) = measured.idle() {
                        row(Value::Missing, "idle", idle);
                        row(Value::Missing, "repeated", measured.repeated.as_f64());
                    }
                    row(Value::Missing, "attempts", f64::from(measured.attempts));
                    for (path, at) in &measured.finished {
                        row(path.as_str().into(), "end", *at);
                    }
                }
            }
        }
        Data { schema, rows }
    }
}

const MEASURES: &[(&str, &str, &str)] = &[
    ("ideal", "s", "all paths busy to the end, 1448 of 1500 bytes of a packet payload"),
    ("closed_form", "s", "what algorithm A takes when paths are fluids"),
    (
        "time",
        "s",
        "from the first connection attempt until the sender knows that the receiver has \
         everything, verified",
    ),
    ("idle", "s", "from the end of the first path to that of the last"),
    (
        "end",
        "s",
        "when the last byte arrived that the path was the first to bring, from the session’s start \
         at the receiver",
    ),
    ("repeated", "B", "what was sent more than once"),
    ("attempts", "", "runs until one counted: those in which the emulator was disturbed do not"),
];

impl SizeTrials {
    pub(super) fn megabytes(&self) -> f64 {
        self.size.as_f64() / 1e6
    }

    fn results(&self, method: Method) -> &[Measured] {
        self.rounds.iter().find(|(other, _)| *other == method).map_or(&[], |(_, results)| results)
    }

    /// Seconds of every round.
    pub(super) fn times(&self, method: Method) -> Vec<f64> {
        self.results(method).iter().map(|measured| measured.seconds).collect()
    }

    /// The share of another's time that a kind of SAR saves, round by round.
    pub(super) fn saved(&self, by: Method, against: Method) -> Vec<f64> {
        let pairs = self.results(by).iter().zip(self.results(against));
        pairs.map(|(sar, other)| 1.0 - sar.seconds / other.seconds).collect()
    }

    /// The ideal over the time of every round. The ideal is the same for all: 1448 of 1500 bytes.
    pub(super) fn of_ideal(&self, method: Method) -> Vec<f64> {
        self.times(method).iter().map(|time| self.fluid.ideal / time).collect()
    }

    /// Idle seconds of every round.
    pub(super) fn idle(&self, method: Method) -> Vec<f64> {
        self.results(method).iter().filter_map(Measured::idle).collect()
    }

    /// Idle over all time of every round.
    pub(super) fn idle_ratio(&self, method: Method) -> Vec<f64> {
        self.results(method)
            .iter()
            .filter_map(|measured| Some(measured.idle()? / measured.seconds))
            .collect()
    }
}
