//! Rate control and reselection while the network changes: sources come and go, capacities change.
//! An extension: the network of the paper is static, and rates restart with each selection.

use overlay::{Chooser, Draws, Instance, Reselect, Sample, Selection, optimum, reselect};
use scenario::relays::RateStudy;
use units::{Rate, Seed};

use super::control::{fleet, mean};
use super::relays::offers;

/// A demand counts as met if the rate is short of it by at most this share, as in
/// [`search`](super::search).
const TOLERANCE: f64 = 0.01;

/// The kind of changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// At each change, a random selection of this share of the sources toggles between active and
    /// inactive.
    Sources(f64),
    /// At each change, every capacity becomes its initial value times a factor that is drawn
    /// uniformly from 1 ± this value (at most 1).
    Capacities(f64),
}

/// A setting with changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Churn {
    /// Sources, relays, paths, control, and the number of intervals; `settled` and `band` are not
    /// used.
    pub setting: RateStudy,
    /// The kind of changes.
    pub change: Change,
    /// Control intervals between two changes.
    pub every: usize,
    /// The reselection of paths by sources whose demand is not met; `None` for fixed paths.
    pub reselection: Option<Reselection>,
}

/// Reselection during rate control: paths that are kept keep their rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reselection {
    /// The paths that are drawn anew.
    pub rule: Reselect,
    /// Whether a source draws two relays and takes the one that would give more.
    pub two_choices: bool,
    /// Control intervals per iteration. The mean rate over the last half decides whether a demand
    /// is met, within 1 %.
    pub every: usize,
}

/// The results of a run. Rates are relative to the sum of the demands of all sources, active or
/// not.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The rate in each control interval.
    pub rates: Vec<f64>,
    /// The optimum over the paths of that interval.
    pub optima: Vec<f64>,
    /// The optimum over any paths in that interval: the smaller of all demands and all capacities.
    pub bounds: Vec<f64>,
    /// Control intervals between two changes.
    pub every: usize,
}

impl Course {
    /// The received share of the optimum over the paths of each interval, in the whole run.
    #[must_use]
    pub fn kept(&self) -> f64 {
        let possible = mean(&self.optima);
        if possible > 0.0 { mean(&self.rates) / possible } else { 1.0 }
    }

    /// The received share of the optimum over any paths, in the whole run.
    #[must_use]
    pub fn served(&self) -> f64 {
        let possible = mean(&self.bounds);
        if possible > 0.0 { mean(&self.rates) / possible } else { 1.0 }
    }

    /// For the start and each change, the number of intervals until the rate reached this share of
    /// the optimum; `None` if the next change came first.
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
    let mut fleet = fleet(setting, &full, &selection, seed);
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
    /// Whether the rates of this interval count for the decision whether a demand is met.
    fn counts(&self, interval: usize) -> bool {
        interval % self.every >= self.every / 2
    }

    /// Draws paths anew; `sums` are the sums of the rates over the intervals that count.
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
