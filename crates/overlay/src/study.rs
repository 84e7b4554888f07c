//! The paper's numerical study of rate control (section 6): a setting and a seed give an outcome.

use alloc::vec::Vec;

use units::{Rate, Seed};

use crate::choice::{Choice, Chooser};
use crate::controller::Config;
use crate::fleet::Fleet;
use crate::fluid::Sharing;
use crate::instance::{Instance, Selection};
use crate::optimum::optimum;
use crate::random::Draws;
use crate::routes::Routes;
use crate::start::Initial;

/// The demands of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Demands {
    /// The same demand for all.
    Equal(Rate),
    /// One of these for each source, with equal probability.
    OneOf(Vec<Rate>),
}

/// A setting of the study; its random parts come from the seed of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The number of sources.
    pub sources: usize,
    /// The number of relays.
    pub relays: u32,
    /// The skew b: relay j of 1, 2, … has a capacity in proportion to `j` to the power of -b.
    pub skew: f64,
    /// The sum of all capacities over the sum of all demands, f.
    pub supply: f64,
    /// The demands.
    pub demands: Demands,
    /// The number of paths per source, k.
    pub paths: usize,
    /// The choice of the paths.
    pub choice: Choice,
    /// The rate control.
    pub control: Config,
    /// The initial rates.
    pub initial: Initial,
    /// The division of relay capacities.
    pub sharing: Sharing,
    /// The number of control intervals of a run.
    pub intervals: usize,
    /// The number of last intervals over which the value is averaged.
    pub settled: usize,
    /// Relative distance from the value within which a run counts as converged.
    pub band: f64,
}

/// The paper's setting in the middle of its ranges: 100 sources of 1.2 Mbit/s, 100 relays, b 0.5, f
/// 1, two paths chosen uniformly, AIAD from max-min rates with ε 0.01, 10,000 intervals of which
/// the last 5,000 count, within 2 %.
impl Default for Setting {
    fn default() -> Setting {
        Setting {
            sources: 100,
            relays: 100,
            skew: 0.5,
            supply: 1.0,
            demands: Demands::Equal(Rate::kbit(1_200)),
            paths: 2,
            choice: Choice::Uniform,
            control: Config::aiad(0.01),
            initial: Initial::MaxMin,
            sharing: Sharing::MaxMin,
            intervals: 10_000,
            settled: 5_000,
            band: 0.02,
        }
    }
}

impl Setting {
    /// The sources and relays of a run.
    #[must_use]
    pub fn instance(&self, seed: Seed) -> Instance {
        let mut draws = Draws::new(seed.stream("demands"));
        let demand = |_| match &self.demands {
            Demands::Equal(rate) => *rate,
            Demands::OneOf(rates) => rates[draws.below(rates.len())],
        };
        let demands: Vec<Rate> = (0..self.sources).map(demand).collect();
        let supply = self.supply * demands.iter().copied().sum::<Rate>().as_f64();
        let share = |relay: u32| libm::pow(f64::from(relay), -self.skew);
        let shares: f64 = (1..=self.relays).map(share).sum();
        let capacities = (1..=self.relays)
            .map(|relay| Rate::from_bits_f64(supply * share(relay) / shares))
            .collect();
        Instance { demands, capacities }
    }

    /// The path chooser of a run.
    #[must_use]
    pub fn chooser(&self, instance: &Instance, seed: Seed) -> Chooser {
        Chooser::new(self.choice, &instance.capacities, seed.stream("paths"))
    }

    /// The sources of a run under rate control.
    #[must_use]
    pub fn fleet(&self, instance: &Instance, paths: impl Into<Routes>, seed: Seed) -> Fleet {
        Fleet::new(instance, paths, &self.control, self.initial, self.sharing, seed)
    }
}

/// The results of a run. Rates are relative to the sum of all demands: the paper's normalised
/// aggregate source rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The optimum over the paths of the run.
    pub optimum: f64,
    /// The rate in each control interval.
    pub rates: Vec<f64>,
    /// The convergence value: the mean of the last intervals.
    pub value: f64,
    /// The mean by which the set rates exceeded the received rates in the last intervals: the cost
    /// of the probes.
    pub excess: f64,
    /// The convergence time: the interval, counted from 1, from which on all rates are within the
    /// band around the value; `None` if the last one is not.
    pub time: Option<usize>,
}

impl Outcome {
    /// The relative distance of the value below the optimum; zero if the optimum is zero.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.optimum > 0.0 { 1.0 - self.value / self.optimum } else { 0.0 }
    }
}

/// One run of rate control over the initially chosen paths.
#[must_use]
pub fn run(setting: &Setting, seed: Seed) -> Outcome {
    let instance = setting.instance(seed);
    let selection = setting.chooser(&instance, seed).select(setting.sources, setting.paths);
    control(setting, &instance, &selection, seed)
}

/// As [`run`], for given sources, relays and paths.
#[must_use]
pub fn control(
    setting: &Setting,
    instance: &Instance,
    selection: &Selection,
    seed: Seed,
) -> Outcome {
    let best = optimum(instance, selection).rate.as_f64();
    follow(setting, setting.fleet(instance, selection, seed), instance, best)
}

/// Runs a fleet for the number of intervals of the setting. `optimum` is in bit/s.
pub(crate) fn follow(
    setting: &Setting,
    mut fleet: Fleet,
    instance: &Instance,
    optimum: f64,
) -> Outcome {
    let demand = instance.demand().as_f64();
    let settled = setting.intervals.saturating_sub(setting.settled);
    let (mut rates, mut excesses) = (Vec::with_capacity(setting.intervals), Vec::new());
    for interval in 0..setting.intervals {
        rates.push(fleet.step() / demand);
        if interval >= settled {
            excesses.push(fleet.sent().iter().sum::<f64>() / demand - rates[interval]);
        }
    }
    let value = mean(&rates[settled..]);
    let time = convergence(&rates, value, setting.band);
    Outcome { optimum: optimum / demand, value, excess: mean(&excesses), time, rates }
}

/// The interval, counted from 1, from which on all rates are within the share `band` of `value`;
/// `None` if the last one is not.
#[must_use]
pub fn convergence(rates: &[f64], value: f64, band: f64) -> Option<usize> {
    let is_outside = |rate: &f64| (rate - value).abs() > band * value;
    let time = rates.iter().rposition(is_outside).map_or(1, |last| last + 2);
    (time <= rates.len()).then_some(time)
}

/// The mean; zero of no values.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    let (sum, count) =
        samples.iter().fold((0.0, 0.0), |(sum, count), sample| (sum + sample, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
