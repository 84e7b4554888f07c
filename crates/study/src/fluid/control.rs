//! The paper's numerical study of rate control (section 6): a setting and a seed give an outcome.

use overlay::{Instance, Selection, optimum};
use scenario::relays::{RateStudy, convergence};
use units::Seed;

use super::fleet::Fleet;
use super::routes::Routes;

/// The results of a run. Rates are relative to the sum of all demands: the paper's normalised
/// aggregate source rate.
#[derive(Clone, Debug, PartialEq)]
pub struct FluidOutcome {
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

impl FluidOutcome {
    /// The relative distance of the value below the optimum; zero if the optimum is zero.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.optimum > 0.0 { 1.0 - self.value / self.optimum } else { 0.0 }
    }
}

/// The sources of a run under rate control.
#[must_use]
pub fn fleet(
    setting: &RateStudy,
    instance: &Instance,
    paths: impl Into<Routes>,
    seed: Seed,
) -> Fleet {
    Fleet::new(instance, paths, &setting.control, setting.initial, setting.sharing, seed)
}

/// One run of rate control over the initially chosen paths.
#[must_use]
pub fn run(setting: &RateStudy, seed: Seed) -> FluidOutcome {
    let instance = setting.instance(seed);
    let selection = setting.chooser(&instance, seed).select(setting.sources, setting.paths);
    control(setting, &instance, &selection, seed)
}

/// As [`run`], for given sources, relays and paths.
#[must_use]
pub fn control(
    setting: &RateStudy,
    instance: &Instance,
    selection: &Selection,
    seed: Seed,
) -> FluidOutcome {
    let best = optimum(instance, selection).rate.as_f64();
    follow(setting, fleet(setting, instance, selection, seed), instance, best)
}

/// Runs a fleet for the number of intervals of the setting. `optimum` is in bit/s.
pub(super) fn follow(
    setting: &RateStudy,
    mut fleet: Fleet,
    instance: &Instance,
    optimum: f64,
) -> FluidOutcome {
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
    FluidOutcome { optimum: optimum / demand, value, excess: mean(&excesses), time, rates }
}

/// The mean; zero of no values.
pub(super) fn mean(samples: &[f64]) -> f64 {
    let (sum, count) =
        samples.iter().fold((0.0, 0.0), |(sum, count), sample| (sum + sample, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
