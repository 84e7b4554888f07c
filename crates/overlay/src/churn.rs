//! Rate control, and reselection beside it, while the network changes underneath: sources come and
//! go, capacities change. Past the paper, whose network stands still, and whose rates begin anew
//! with each selection.

use alloc::vec;
use alloc::vec::Vec;

use units::{Rate, Seed};

use crate::choice::{Chooser, Reselect, Sample, reselect};
use crate::fluid::offers;
use crate::instance::{Instance, Selection};
use crate::optimum::optimum;
use crate::random::Draws;
use crate::study::{Setting, mean};

/// A source finds its demand met at this share less than it, as in [`search`](crate::search).
const TOLERANCE: f64 = 0.01;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// At each change this share of the sources, drawn anew, goes if it is there, and comes back if
    /// it is not.
    Sources(f64),
    /// At each change every capacity becomes its own of the setting times a factor, drawn uniformly
    /// up to this far from one; at most 1.
    Capacities(f64),
}

/// A setting in which something changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Churn {
    /// Sources, relays, paths and control. Its intervals are those of a run; what it says of
    /// settling does not count here.
    pub setting: Setting,
    /// What changes.
    pub change: Change,
    /// Control intervals from one change to the next.
    pub every: usize,
    /// How sources whose demand is not met draw other paths; `None` if they do not.
    pub reselection: Option<Reselection>,
}

/// Reselection while rates go on: paths that are kept keep theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reselection {
    /// Which paths are drawn anew.
    pub rule: Reselect,
    /// Whether a source draws two relays for one, and keeps the one that would give it more.
    pub two_choices: bool,
    /// Control intervals an iteration. The mean over the last half of them says whether a demand is
    /// met, within 1 %.
    pub every: usize,
}

/// What became of a run. Rates are shares of all the demands that there would be if no source had
/// gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The rate in each control interval.
    pub rates: Vec<f64>,
    /// The most that any control could reach over the run's paths in that interval.
    pub optima: Vec<f64>,
    /// The most that could arrive in that interval over any paths: all demands, or all capacities.
    pub bounds: Vec<f64>,
    /// Control intervals from one change to the next.
    pub every: usize,
}

impl Course {
    /// What arrived in the whole run, as a share of what could have over the paths of each moment.
    #[must_use]
    pub fn kept(&self) -> f64 {
        let possible = mean(&self.optima);
        if possible > 0.0 { mean(&self.rates) / possible } else { 1.0 }
    }

    /// What arrived in the whole run, as a share of what could have over any paths.
    #[must_use]
    pub fn served(&self) -> f64 {
        let possible = mean(&self.bounds);
        if possible > 0.0 { mean(&self.rates) / possible } else { 1.0 }
    }

    /// For each change, the beginning included, how many intervals passed until the rate was this
    /// share of the optimum; `None` where the next change came first.
    pub fn recoveries(&self, share: f64) -> impl Iterator<Item = Option<usize>> {
        let spans = self.rates.chunks(self.every).zip(self.optima.chunks(self.every));
        spans.map(move |(rates, optima)| {
            rates.iter().zip(optima).position(|(rate, best)| *rate >= share * best)
        })
    }
}

/// One run.
///
/// # Panics
///
/// If changes, or iterations of reselection, are zero intervals apart.
#[must_use]
pub fn run(churn: &Churn, seed: Seed) -> Course {
    let setting = &churn.setting;
    let full = setting.instance(seed);
    let demand = full.demand().as_f64();
    let mut chooser = setting.chooser(&full, seed);
    let mut selection = chooser.select(setting.sources, setting.paths);
    let mut fleet = setting.fleet(&full, &selection, seed);
    let mut draws = Draws::new(seed.stream("changes"));
    let mut current = full.clone();
    let mut course =
        Course { rates: Vec::new(), optima: Vec::new(), bounds: Vec::new(), every: churn.every };
    let mut sums = vec![0.0; selection.relays().len()];
    let (mut most, mut bound) = (0.0, 0.0);
    for interval in 0..setting.intervals {
        let mut is_new = interval == 0;
        if let Some(reselection) =
            churn.reselection.filter(|reselection| interval.is_multiple_of(reselection.every))
        {
            if interval > 0 {
                reselection.draw(&current, &mut selection, &sums, &mut chooser);
                fleet.handle_paths(&selection);
                is_new = true;
            }
            sums.fill(0.0);
        }
        if interval > 0 && interval.is_multiple_of(churn.every) {
            change(churn.change, &full, &mut current, &mut draws);
            current
                .demands
                .iter()
                .enumerate()
                .for_each(|(source, &rate)| fleet.handle_demand(source, rate));
            current
                .capacities
                .iter()
                .enumerate()
                .for_each(|(relay, &rate)| fleet.handle_capacity(relay, rate));
            is_new = true;
        }
        if is_new {
            most = optimum(&current, &selection).rate.as_f64() / demand;
            bound = current.demand().min(current.capacity()).as_f64() / demand;
        }
        course.rates.push(fleet.step() / demand);
        course.optima.push(most);
        course.bounds.push(bound);
        if churn.reselection.is_some_and(|reselection| reselection.counts(interval)) {
            sums.iter_mut().zip(fleet.received()).for_each(|(sum, rate)| *sum += rate);
        }
    }
    course
}

impl Reselection {
    /// Whether rates of this interval count for whether a demand is met.
    fn counts(&self, interval: usize) -> bool {
        interval % self.every >= self.every / 2
    }

    /// Draws paths anew for those whose rates, of which these are the sums of the intervals that
    /// count, say so.
    fn draw(
        &self,
        instance: &Instance,
        selection: &mut Selection,
        sums: &[f64],
        chooser: &mut Chooser,
    ) {
        let count: f64 =
            (0..self.every).filter(|&interval| self.counts(interval)).map(|_| 1.0).sum();
        let rates: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
        let satisfied: Vec<bool> = rates
            .chunks(selection.paths())
            .zip(&instance.demands)
            .map(|(paths, demand)| paths.iter().sum::<f64>() >= (1.0 - TOLERANCE) * demand.as_f64())
            .collect();
        let offers = offers(instance, selection, &rates);
        let sample = if self.two_choices { Sample::Two(&offers) } else { Sample::One };
        reselect(self.rule, sample, selection, &satisfied, &rates, chooser);
    }
}

fn change(change: Change, full: &Instance, current: &mut Instance, draws: &mut Draws) {
    match change {
        Change::Sources(share) => {
            for (demand, &own) in current.demands.iter_mut().zip(&full.demands) {
                if draws.unit() < share {
                    *demand = if *demand == Rate::ZERO { own } else { Rate::ZERO };
                }
            }
        }
        Change::Capacities(spread) => {
            for (capacity, own) in current.capacities.iter_mut().zip(&full.capacities) {
                *capacity =
                    Rate::from_bits_f64(own.as_f64() * (1.0 + spread * (2.0 * draws.unit() - 1.0)));
            }
        }
    }
}
