//! The paper's iterative heuristic (sections 2 and 5): control rates and reselect paths until every
//! demand is met.

use overlay::{Chooser, Instance, Optimum, Reselect, Sample, Selection, optimum, reselect};
use scenario::relays::RateStudy;
use units::Seed;

use super::control::fleet;
use super::relays::offers;

/// The source of the rates in an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rates {
    /// The optimum over the paths: an ideal control, to which the paper's Theorem 3 applies.
    Optimal,
    /// The rate control of the setting, from its initial rates.
    Controlled {
        /// Control intervals per iteration.
        intervals: usize,
        /// The number of last intervals over which rates are averaged.
        averaged: usize,
    },
}

/// The end of a search. It also ends when no source would reselect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The optimum over the paths meets every demand, even if the controlled rates do not quite.
    Feasible,
    /// Every source finds its demand met.
    Satisfied,
}

/// A search for paths over which every demand can be met.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Sources, relays, path choice and control. Its numbers of intervals are not used here.
    pub setting: RateStudy,
    /// The paths that are drawn anew.
    pub rule: Reselect,
    /// Whether a source draws two relays, where the paper's draws one, and takes the one that would
    /// give more.
    pub two_choices: bool,
    /// The source of the rates.
    pub rates: Rates,
    /// A demand counts as met if the rate is short of it by at most this share. The paper does not
    /// give a value, and its figures depend on it.
    pub tolerance: f64,
    /// The end of the search.
    pub stop: Stop,
    /// The number of iterations after which the search is given up.
    pub cap: usize,
}

impl Search {
    /// A search with optimal rates and at most 1,000 iterations, as in the paper.
    #[must_use]
    pub fn optimal(setting: RateStudy, rule: Reselect) -> Search {
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

    /// A search with the rate control of the setting: 100 intervals per iteration, of which the
    /// last 50 count.
    #[must_use]
    pub fn controlled(setting: RateStudy, rule: Reselect) -> Search {
        Search {
            rates: Rates::Controlled { intervals: 100, averaged: 50 },
            ..Search::optimal(setting, rule)
        }
    }
}

/// The results of a search. Rates are relative to the sum of all demands.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// The last iteration, counted from 1 for the initial choice; `None` if given up.
    pub iterations: Option<usize>,
    /// The rate over the initially chosen paths.
    pub first: f64,
    /// The rate over the last paths.
    pub last: f64,
}

/// Runs a search; the seed determines the instance and the initial choice.
#[must_use]
pub fn run(search: &Search, seed: Seed) -> SearchResult {
    search_in(search, &search.setting.instance(seed), seed)
}

/// As [`run`], for given sources and relays.
#[must_use]
pub fn search_in(search: &Search, instance: &Instance, seed: Seed) -> SearchResult {
    let mut chooser = search.setting.chooser(instance, seed);
    let mut selection = chooser.select(instance.demands.len(), search.setting.paths);
    search_from(search, instance, &mut selection, &mut chooser, seed)
}

/// As [`search_in`], from a selection on, which becomes that of the last iteration.
pub fn search_from(
    search: &Search,
    instance: &Instance,
    selection: &mut Selection,
    chooser: &mut Chooser,
    seed: Seed,
) -> SearchResult {
    let (mut first, mut last) = (None, 0.0);
    for iteration in 1..=search.cap {
        let best = optimum(instance, selection);
        let rates = rates(search, instance, selection, &best, seed.stream("control"));
        last = rates.iter().sum::<f64>() / instance.demand().as_f64();
        first = first.or(Some(last));
        let satisfied = satisfied(search, instance, selection, &rates);
        let is_feasible = search.stop == Stop::Feasible && best.rate == instance.demand();
        if is_feasible || satisfied.iter().all(|&is| is) {
            return SearchResult {
                iterations: Some(iteration),
                first: first.unwrap_or(last),
                last,
            };
        }
        let offers = offers(instance, selection, &rates);
        let sample = if search.two_choices { Sample::Two(&offers) } else { Sample::One };
        reselect(search.rule, sample, selection, &satisfied, &rates, chooser);
    }
    SearchResult { iterations: None, first: first.unwrap_or(last), last }
}

/// The received rates by path, in bit/s.
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
            let mut fleet = fleet(&search.setting, instance, selection, seed);
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

/// Whether each source finds its demand met.
fn satisfied(
    search: &Search,
    instance: &Instance,
    selection: &Selection,
    rates: &[f64],
) -> Vec<bool> {
    // Optimal rates are exact, so any shortfall counts.
    let share = if search.rates == Rates::Optimal { 1.0 } else { 1.0 - search.tolerance };
    let sums = rates.chunks(selection.paths()).map(|paths| paths.iter().sum::<f64>());
    sums.zip(&instance.demands).map(|(sum, demand)| sum >= share * demand.as_f64()).collect()
}
