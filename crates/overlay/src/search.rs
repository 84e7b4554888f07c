//! The paper's iterative heuristic as a whole (sections 2 and 5): control rates, reselect paths,
//! until every demand is met.

use alloc::vec;
use alloc::vec::Vec;

use units::Seed;

use crate::choice::{Reselect, Sample, reselect};
use crate::fluid::offers;
use crate::instance::{Instance, Selection};
use crate::optimum::{Optimum, optimum};
use crate::study::Setting;

/// How sources come to their rates in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rates {
    /// At once the optimum over the paths: a control without faults, to which the paper's Theorem 3
    /// applies.
    Optimal,
    /// By the setting's control, from its initial rates.
    Controlled {
        /// Control intervals an iteration.
        intervals: usize,
        /// Over how many of the last ones rates are averaged.
        averaged: usize,
    },
}

/// When the search ends, besides when no source would reselect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// As soon as the paths would allow every demand to be met, though the control may fall a
    /// little short of it.
    Feasible,
    /// Only when every source finds its demand met.
    Satisfied,
}

/// A search for paths over which every demand can be met.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Sources, relays, first choice and control; its intervals are those of
    /// [`study`](crate::study), not of the iterations here.
    pub setting: Setting,
    /// Which paths are drawn anew.
    pub rule: Reselect,
    /// Whether a source draws two relays where the paper's draws one, and keeps the one that would
    /// give it more.
    pub two_choices: bool,
    /// How sources come to their rates.
    pub rates: Rates,
    /// A source finds its demand met at this share less than it. The paper does not say; its
    /// figures depend on it.
    pub tolerance: f64,
    /// When the search ends.
    pub stop: Stop,
    /// Iterations after which it is given up.
    pub cap: usize,
}

impl Search {
    /// A search with the optimum as control, up to the paper's 1,000 iterations.
    #[must_use]
    pub fn optimal(setting: Setting, rule: Reselect) -> Search {
        Search {
            setting,
            rule,
            two_choices: false,
            rates: Rates::Optimal,
            tolerance: 0.01,
            stop: Stop::Feasible,
            cap: 1_000,
        }
    }

    /// A search with the setting's rate control: 100 intervals an iteration, of which the last 50
    /// count.
    #[must_use]
    pub fn controlled(setting: Setting, rule: Reselect) -> Search {
        Search {
            rates: Rates::Controlled { intervals: 100, averaged: 50 },
            ..Search::optimal(setting, rule)
        }
    }
}

/// What became of a search. Rates are shares of all demands together.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The iteration in which it ended, the first choice being number 1; `None` at the cap.
    pub iterations: Option<usize>,
    /// The rate over the first choice.
    pub first: f64,
    /// The rate over the last one.
    pub last: f64,
}

/// Searches from the first choice that the seed gives.
#[must_use]
pub fn run(search: &Search, seed: Seed) -> Found {
    search_in(search, &search.setting.instance(seed), seed)
}

/// As [`run`], for given sources and relays.
#[must_use]
pub fn search_in(search: &Search, instance: &Instance, seed: Seed) -> Found {
    let mut chooser = search.setting.chooser(instance, seed);
    let mut selection = chooser.select(instance.demands.len(), search.setting.paths);
    let (mut first, mut last) = (None, 0.0);
    for iteration in 1..=search.cap {
        let best = optimum(instance, &selection);
        let rates = rates(search, instance, &selection, &best, seed.stream("control"));
        last = rates.iter().sum::<f64>() / instance.demand().as_f64();
        first = first.or(Some(last));
        let satisfied = satisfied(search, instance, &selection, &rates);
        let is_feasible = search.stop == Stop::Feasible && best.rate == instance.demand();
        if is_feasible || satisfied.iter().all(|&is| is) {
            return Found { iterations: Some(iteration), first: first.unwrap_or(last), last };
        }
        let offers = offers(instance, &selection, &rates);
        let sample = if search.two_choices { Sample::Two(&offers) } else { Sample::One };
        reselect(search.rule, sample, &mut selection, &satisfied, &rates, &mut chooser);
    }
    Found { iterations: None, first: first.unwrap_or(last), last }
}

/// What arrives of each path, in bit/s.
fn rates(
    search: &Search,
    instance: &Instance,
    selection: &Selection,
    best: &Optimum,
    seed: Seed,
) -> Vec<f64> {
    match search.rates {
        Rates::Optimal => best.paths.iter().map(|rate| rate.as_f64()).collect(),
        Rates::Controlled { intervals, averaged } => {
            let mut fleet = search.setting.fleet(instance, selection, seed);
            let mut sums = vec![0.0; selection.relays().len()];
            let mut count = 0.0;
            for interval in 0..intervals {
                fleet.step();
                if interval + averaged >= intervals {
                    count += 1.0;
                    sums.iter_mut().zip(fleet.received()).for_each(|(sum, rate)| *sum += rate);
                }
            }
            sums.iter().map(|sum| sum / count).collect()
        }
    }
}

/// Which sources find their demand met.
fn satisfied(
    search: &Search,
    instance: &Instance,
    selection: &Selection,
    rates: &[f64],
) -> Vec<bool> {
    // The optimum is exact: there, whoever lacks a bit lacks it for want of paths.
    let share = if search.rates == Rates::Optimal { 1.0 } else { 1.0 - search.tolerance };
    let sums = rates.chunks(selection.paths()).map(|paths| paths.iter().sum::<f64>());
    sums.zip(&instance.demands).map(|(sum, demand)| sum >= share * demand.as_f64()).collect()
}
