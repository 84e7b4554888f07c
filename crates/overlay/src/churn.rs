//! Rate control while the network changes underneath: sources come and go, capacities change. Past the paper, whose network stands still.

use alloc::vec::Vec;

use units::{Rate, Seed};

use crate::instance::Instance;
use crate::optimum::optimum;
use crate::random::Draws;
use crate::study::{Setting, mean};

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// At each change this share of the sources, drawn anew, goes if it is there, and comes back if it is not.
    Sources(f64),
    /// At each change every capacity becomes its own of the setting times a factor, drawn uniformly up to this far from one; at most 1.
    Capacities(f64),
}

/// A setting in which something changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Churn {
    /// Sources, relays, paths and control. Its intervals are those of a run; what it says of settling does not count here.
    pub setting: Setting,
    /// What changes.
    pub change: Change,
    /// Control intervals from one change to the next.
    pub every: usize,
}

/// What became of a run. Rates are shares of all the demands that there would be if no source had gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The rate in each control interval.
    pub rates: Vec<f64>,
    /// The most that any control could reach over the run's paths in that interval.
    pub optima: Vec<f64>,
    /// Control intervals from one change to the next.
    pub every: usize,
}

impl Course {
    /// What arrived in the whole run, as a share of what could have.
    #[must_use]
    pub fn kept(&self) -> f64 {
        let possible = mean(&self.optima);
        if possible > 0.0 { mean(&self.rates) / possible } else { 1.0 }
    }

    /// For each change, the beginning included, how many intervals passed until the rate was this share of the optimum; `None` where the
    /// next change came first.
    pub fn recoveries(&self, share: f64) -> impl Iterator<Item = Option<usize>> {
        let spans = self.rates.chunks(self.every).zip(self.optima.chunks(self.every));
        spans.map(move |(rates, optima)| rates.iter().zip(optima).position(|(rate, best)| *rate >= share * best))
    }
}

/// One run over the paths of a first choice; they stay.
///
/// # Panics
///
/// If changes are zero intervals apart.
#[must_use]
pub fn run(churn: &Churn, seed: Seed) -> Course {
    let setting = &churn.setting;
    let full = setting.instance(seed);
    let selection = setting.chooser(&full, seed).select(setting.sources, setting.paths);
    let mut fleet = setting.fleet(&full, &selection, seed);
    let mut draws = Draws::new(seed.stream("changes"));
    let mut current = full.clone();
    let demand = full.demand().as_f64();
    let best = |current: &Instance| optimum(current, &selection).rate.as_f64() / demand;
    let mut course = Course { rates: Vec::new(), optima: Vec::new(), every: churn.every };
    let mut most = best(&current);
    for interval in 0..setting.intervals {
        if interval > 0 && interval.is_multiple_of(churn.every) {
            change(churn.change, &full, &mut current, &mut draws);
            current.demands.iter().enumerate().for_each(|(source, &rate)| fleet.handle_demand(source, rate));
            current.capacities.iter().enumerate().for_each(|(relay, &rate)| fleet.handle_capacity(relay, rate));
            most = best(&current);
        }
        course.rates.push(fleet.step() / demand);
        course.optima.push(most);
    }
    course
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
                *capacity = Rate::from_bits_f64(own.as_f64() * (1.0 + spread * (2.0 * draws.unit() - 1.0)));
            }
        }
    }
}
