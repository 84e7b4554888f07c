//! The transfers of a case, and what they took.

use report::tidy::{Key, Kind, Measure, Schema, Value};
use report::{Mean, mean};
use units::Bytes;

use super::settings::{Fluid, SarSettings, initial_rates};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::Data;
use crate::testbed::{Carrier, Estimate, Measured, Trial};

/// What transfers a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    A,
    B,
    Sar,
    Mptcp,
}

impl By {
    pub(super) const ALL: [By; 4] = [By::A, By::B, By::Sar, By::Mptcp];

    /// What it is called in tables and pictures.
    pub(super) fn name(self) -> &'static str {
        match self {
            By::A => "A",
            By::B => "B",
            By::Sar => "SAR",
            By::Mptcp => "MPTCP",
        }
    }

    /// The paper measures bandwidths at the start for its own algorithm alone: the other two know
    /// them.
    fn carrier(self, trial: &link::config::Network) -> Carrier {
        let (scheduler, known) = match self {
            By::A => ("static", initial_rates(trial)),
            By::B => ("adjustable-block", initial_rates(trial)),
            By::Sar => ("self-adaptive", Vec::new()),
            By::Mptcp => return Carrier::Mptcp { congestion_control: "cubic" },
        };
        Carrier::Ours { scheduler, known }
    }
}

/// All transfers of one size, in turn.
#[derive(Clone, Debug)]
pub(super) struct SizeTrials {
    pub(super) size: Bytes,
    pub(super) fluid: Fluid,
    /// By what, and each round's result.
    rounds: Vec<(By, Vec<Measured>)>,
}

/// All transfers of a case.
#[derive(Clone, Debug)]
pub(super) struct Trials {
    settings: SarSettings,
    pub(super) sizes: Vec<SizeTrials>,
    /// Why there is no MPTCP among them, if so.
    pub(super) no_mptcp: Option<String>,
}

/// A round of everything is run before the next, so that what changes on the machine meets all
/// alike.
struct Plan {
    trials: Vec<Trial>,
    by: Vec<By>,
    fluids: Vec<Fluid>,
}

/// What opening connections, starting programs and comparing files takes beside a transfer, in
/// seconds.
const ASIDE: f64 = 0.6;

fn plan(settings: &SarSettings, with_mptcp: bool) -> Result<Plan, StudyError> {
    let by: Vec<By> = By::ALL.into_iter().filter(|by| with_mptcp || *by != By::Mptcp).collect();
    let (mut trials, mut fluids) = (Vec::new(), Vec::new());
    for &size in &settings.sizes {
        let network = settings.network(size)?;
        fluids.push(
            Fluid::of(&network, size, &settings.found).ok_or_else(|| settings.carries_nothing())?,
        );
        let of = |by: &By| Trial {
            network: network.clone(),
            bytes: size,
            carrier: by.carrier(&network),
        };
        trials.extend(by.iter().map(of));
    }
    let round = trials.clone();
    for _ in 1..settings.runs {
        trials.extend(round.iter().cloned());
    }
    Ok(Plan { trials, by, fluids })
}

/// What the transfers of a case take at least.
pub(super) fn estimate(lab: &Lab<'_>, case: &'static str) -> Result<Estimate, StudyError> {
    let settings = SarSettings::read(lab, case)?;
    let plan = plan(&settings, no_mptcp(lab).is_none())?;
    let round: f64 = plan
        .fluids
        .iter()
        .map(|fluid| {
            let each = plan
                .by
                .iter()
                .map(|by| if matches!(by, By::A | By::B) { fluid.a } else { fluid.ideal });
            each.map(|seconds| seconds + ASIDE).sum::<f64>()
        })
        .sum();
    Ok(Estimate { transfers: plan.trials.len(), seconds: round * f64::from(settings.runs) })
}

fn no_mptcp(lab: &Lab<'_>) -> Option<String> {
    lab.context.experiment.testbed.as_ref()?.no_mptcp().map(str::to_owned)
}

impl Trials {
    /// Runs a case, unless an earlier figure did.
    pub(super) fn of(lab: &Lab<'_>, case: &'static str) -> Result<Trials, StudyError> {
        let settings = SarSettings::read(lab, case)?;
        let no_mptcp = no_mptcp(lab);
        let Plan { trials, by, fluids } = plan(&settings, no_mptcp.is_none())?;
        let measured = lab.transfer(&trials)?;
        let mut measured = measured.iter().cloned();
        let mut sizes: Vec<SizeTrials> = settings
            .sizes
            .iter()
            .zip(fluids)
            .map(|(&size, fluid)| SizeTrials {
                size,
                fluid,
                rounds: by.iter().map(|by| (*by, Vec::new())).collect(),
            })
            .collect();
        for _ in 0..settings.runs {
            for (_, results) in sizes.iter_mut().flat_map(|sized| &mut sized.rounds) {
                results.push(measured.next().expect("as many results as transfers"));
            }
        }
        Ok(Trials { settings, sizes, no_mptcp })
    }

    pub(super) fn found(&self) -> &super::settings::Found {
        &self.settings.found
    }

    pub(super) fn runs(&self) -> u32 {
        self.settings.runs
    }

    /// The means of a measure over all rounds, by size.
    pub(super) fn over_sizes(&self, measure: impl Fn(&SizeTrials) -> Vec<f64>) -> Vec<(f64, Mean)> {
        let point = |sized: &SizeTrials| Some((sized.megabytes(), mean(&measure(sized))?));
        self.sizes.iter().filter_map(point).collect()
    }

    /// The mean of a measure over all rounds and sizes, as the paper gives them.
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
                    "what carried it: A, B, SAR, the kernel's MPTCP; fluid is what fluids would \
                     do",
                ),
                Key::new("round", Kind::Integer, "", "which of the repetitions"),
                Key::new("path", Kind::Text, "", "of which path, if of one"),
            ],
            MEASURES.iter().map(|(name, unit, meaning)| Measure::new(*name, *unit, *meaning)),
        );
        let mut rows = Vec::new();
        for sized in &self.sizes {
            let bytes = Value::Integer(i64::try_from(sized.size.0).unwrap_or(i64::MAX));
            let Fluid { ideal, a, idle_a, .. } = sized.fluid;
            for (measure, value) in [("ideal", ideal), ("closed_form", a), ("idle", idle_a)] {
                rows.push((
                    vec![bytes.clone(), "fluid".into(), Value::Missing, Value::Missing],
                    measure.to_owned(),
                    value,
                ));
            }
            for (by, results) in &sized.rounds {
                for (round, measured) in (1_i64..).zip(results) {
                    let keys = |path| vec![bytes.clone(), by.name().into(), round.into(), path];
                    let mut row = |path, measure: &str, value| {
                        rows.push((keys(path), measure.to_owned(), value))
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

    fn results(&self, by: By) -> &[Measured] {
        self.rounds.iter().find(|(other, _)| *other == by).map_or(&[], |(_, results)| results)
    }

    /// Seconds of every round.
    pub(super) fn times(&self, by: By) -> Vec<f64> {
        self.results(by).iter().map(|measured| measured.seconds).collect()
    }

    /// The share of another's time that SAR saves, round by round.
    pub(super) fn saved(&self, against: By) -> Vec<f64> {
        let pairs = self.results(By::Sar).iter().zip(self.results(against));
        pairs.map(|(sar, other)| 1.0 - sar.seconds / other.seconds).collect()
    }

    /// Idle seconds of every round.
    pub(super) fn idle(&self, by: By) -> Vec<f64> {
        self.results(by).iter().filter_map(Measured::idle).collect()
    }

    /// Idle over all time of every round.
    pub(super) fn idle_ratio(&self, by: By) -> Vec<f64> {
        self.results(by)
            .iter()
            .filter_map(|measured| Some(measured.idle()? / measured.seconds))
            .collect()
    }
}
