//! Path choice and reselection (the paper's section 5).

use alloc::vec::Vec;

use units::{Rate, Seed};

use crate::instance::Selection;
use crate::random::{Draws, unit_of};

/// The number of rejected draws after which the remaining relays are weighed one by one. It is
/// reached where a source already uses most of the capacity.
const DRAWS: usize = 64;

/// How sources choose among the relays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Each with equal probability.
    Uniform,
    /// With probabilities in proportion to the source's estimates of the relays' capacities.
    Proportional {
        /// The largest relative error of an estimate, at most 1. The error of each source about
        /// each relay is drawn once, uniformly up to this value and with random sign; the paper
        /// defines only the magnitude.
        error: f64,
    },
}

/// Draws relays.
#[derive(Clone, Debug)]
pub struct Chooser {
    weights: Vec<f64>,
    cumulative: Vec<f64>,
    error: f64,
    estimates: Seed,
    draws: Draws,
}

impl Chooser {
    /// A chooser among relays of these capacities.
    ///
    /// # Panics
    ///
    /// If no relay can be chosen.
    #[must_use]
    pub fn new(choice: Choice, capacities: &[Rate], seed: Seed) -> Chooser {
        let (weights, error): (Vec<f64>, f64) = match choice {
            Choice::Uniform => (capacities.iter().map(|_| 1.0).collect(), 0.0),
            Choice::Proportional { error } => {
                (capacities.iter().map(|rate| rate.as_f64()).collect(), error)
            }
        };
        let cumulative = sums(&weights);
        assert!(cumulative.last().is_some_and(|&sum| sum > 0.0), "no relay to choose");
        Chooser {
            weights,
            cumulative,
            error,
            estimates: seed.stream("estimates"),
            draws: Draws::new(seed.stream("choices")),
        }
    }

    /// Sets the weights of all relays: what is learnt of their capacities; zero for a relay that is
    /// not to be drawn. There may be further ones at the end. The errors of estimates stay.
    ///
    /// # Panics
    ///
    /// If there are fewer relays than before.
    pub fn set_weights(&mut self, weights: &[f64]) {
        assert!(weights.len() >= self.weights.len(), "a weight for each relay");
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        self.cumulative = sums(weights);
    }

    /// The initial choice of all sources: `paths` distinct relays each.
    ///
    /// # Panics
    ///
    /// If there are fewer relays than that.
    #[must_use]
    pub fn select(&mut self, sources: usize, paths: usize) -> Selection {
        Selection::new(paths, (0..sources).flat_map(|source| self.choose(source, paths)).collect())
    }

    /// `paths` distinct relays for a source, sampled without replacement.
    ///
    /// # Panics
    ///
    /// If there are fewer relays than that.
    #[must_use]
    pub fn choose(&mut self, source: usize, paths: usize) -> Vec<usize> {
        let mut relays = Vec::with_capacity(paths);
        for _ in 0..paths {
            relays.push(
                self.draw_other(source, &relays).expect("a relay for each of a source's paths"),
            );
        }
        relays
    }

    /// A relay that the source does not use yet.
    pub fn draw_other(&mut self, source: usize, used: &[usize]) -> Option<usize> {
        let sum = *self.cumulative.last()?;
        for _ in 0..DRAWS {
            // Rejection sampling: a relay is drawn by its true weight and accepted in proportion to
            // the error of the estimate. No table of all estimates is needed.
            let point = self.draws.unit() * sum;
            let relay =
                self.cumulative.partition_point(|&end| end <= point).min(self.weights.len() - 1);
            let is_taken = self.error == 0.0
                || self.draws.unit() * (1.0 + self.error) < self.bias(source, relay);
            if is_taken && !used.contains(&relay) && self.weights[relay] > 0.0 {
                return Some(relay);
            }
        }
        let estimate = |relay: usize| (relay, self.weights[relay] * self.bias(source, relay));
        let others: Vec<(usize, f64)> = (0..self.weights.len())
            .filter(|relay| !used.contains(relay))
            .map(estimate)
            .filter(|(_, weight)| *weight > 0.0)
            .collect();
        let mut left = self.draws.unit() * others.iter().map(|(_, weight)| weight).sum::<f64>();
        let found = others.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        found.or(others.last()).map(|&(relay, _)| relay)
    }

    /// As [`Chooser::draw_other`]; the better of two if the source samples relays.
    fn draw_better(&mut self, source: usize, used: &[usize], sample: Sample<'_>) -> Option<usize> {
        let first = self.draw_other(source, used)?;
        let Sample::Two(offers) = sample else { return Some(first) };
        let second = self.draw_other(source, used)?;
        Some(if offers[second] > offers[first] { second } else { first })
    }

    /// The source's estimate of the relay's capacity, relative to the true one.
    fn bias(&self, source: usize, relay: usize) -> f64 {
        1.0 + self.error * (2.0 * unit_of(self.estimates, source, relay) - 1.0)
    }
}

/// The running sums of weights.
fn sums(weights: &[f64]) -> Vec<f64> {
    let running = |sum: &mut f64, weight: &f64| {
        *sum += weight;
        Some(*sum)
    };
    weights.iter().scan(0.0, running).collect()
}

/// The paths that are drawn anew while demands are not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reselect {
    /// All paths of each source whose demand is not met: k-reselection.
    Paths,
    /// The path with the least rate of each such source: 1-reselection.
    Least,
    /// All paths of all sources: the paper's baseline.
    Everything,
}

/// The knowledge of a source about the relays that it draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample<'a> {
    /// None: it takes the relay that it drew (the paper's rule).
    One,
    /// The rate that each relay would give to one more path, in bit/s: the source draws two and
    /// takes the one with the higher rate. An extension of the paper, which cites the power of two
    /// choices (M. Mitzenmacher, "The power of two choices in randomized load balancing", 2001) for
    /// its own randomisation.
    Two(&'a [f64]),
}

/// Draws paths anew. `satisfied` has an entry for each source; `rates` are the received rates by
/// path.
pub fn reselect(
    rule: Reselect,
    sample: Sample<'_>,
    selection: &mut Selection,
    satisfied: &[bool],
    rates: &[f64],
    chooser: &mut Chooser,
) {
    let k = selection.paths();
    for (source, &satisfied) in satisfied.iter().enumerate() {
        if satisfied && rule != Reselect::Everything {
            continue;
        }
        if rule == Reselect::Least {
            let rates = &rates[source * k..][..k];
            let least = (0..k).min_by(|&a, &b| rates[a].total_cmp(&rates[b]));
            // A source that uses all relays keeps them.
            if let (Some(least), Some(other)) =
                (least, chooser.draw_better(source, selection.of(source), sample))
            {
                selection.of_mut(source)[least] = other;
            }
        } else {
            let mut fresh = Vec::with_capacity(k);
            for _ in 0..k {
                fresh.extend(chooser.draw_better(source, &fresh, sample));
            }
            selection.of_mut(source).copy_from_slice(&fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Same seed, same draws: of a study, too, that was run long ago.
    #[test]
    fn a_selection_is_that_of_its_seed() {
        let capacities = [8, 4, 2, 1].map(Rate::mbit);
        let mut chooser = Chooser::new(Choice::Proportional { error: 0.5 }, &capacities, Seed(7));
        let selection = chooser.select(10, 2);
        let drawn: Vec<usize> = (0..10).flat_map(|source| selection.of(source).to_vec()).collect();
        assert_eq!(drawn, [1, 0, 0, 1, 1, 3, 0, 1, 0, 2, 1, 0, 0, 1, 0, 1, 0, 2, 2, 1]);
    }

    #[test]
    fn choices_are_distinct_and_proportional() {
        let capacities = [Rate::mbit(6), Rate::mbit(3), Rate::mbit(1)];
        let mut chooser = Chooser::new(Choice::Proportional { error: 0.0 }, &capacities, Seed(1));
        let selection = chooser.select(20_000, 2);
        let mut first = [0.0_f64; 3];
        let mut pairs = [0.0_f64; 3];
        for source in 0..selection.sources() {
            let &[a, b] = selection.of(source) else { panic!("two paths") };
            assert_ne!(a, b);
            first[a] += 1.0 / 20_000.0;
            pairs[3 - a - b] += 1.0 / 20_000.0;
        }
        for (got, wanted) in first.into_iter().zip([0.6, 0.3, 0.1]) {
            assert!((got - wanted).abs() < 0.015, "{first:?}");
        }
        // The third is left out with probability .6 * .3/.4 + .3 * .6/.7, and so on.
        for (got, wanted) in pairs.into_iter().zip([
            0.3 / 9.0 + 0.1 * 0.3 / 0.7,
            0.6 * 0.25 + 0.1 * 6.0 / 9.0,
            0.707_14,
        ]) {
            assert!((got - wanted).abs() < 0.015, "{pairs:?}");
        }
    }

    #[test]
    fn weights_may_change_and_zero_is_never_drawn() {
        let mut chooser = Chooser::new(Choice::Uniform, &[Rate::mbit(1); 3], Seed(1));
        chooser.set_weights(&[0.0, 3.0, 1.0]);
        let mut drawn = [0; 3];
        for _ in 0..4_000 {
            drawn[chooser.draw_other(0, &[]).expect("two have a weight")] += 1;
        }
        assert_eq!(drawn[0], 0);
        assert!((2_900..3_100).contains(&drawn[1]), "{drawn:?}");
        assert_eq!(chooser.draw_other(0, &[1, 2]), None);
    }

    #[test]
    fn estimates_err_and_stay() {
        let mut chooser =
            Chooser::new(Choice::Proportional { error: 0.5 }, &[Rate::mbit(1); 2], Seed(1));
        for source in 0..20 {
            let bias = [chooser.bias(source, 0), chooser.bias(source, 1)];
            assert!(bias.iter().all(|bias| (0.5..1.5).contains(bias)), "{bias:?}");
            let wanted = bias[0] / (bias[0] + bias[1]);
            let got = (0..4_000)
                .filter(|_| chooser.choose(source, 1) == [0])
                .map(|_| 1.0 / 4_000.0)
                .sum::<f64>();
            assert!((got - wanted).abs() < 0.03, "{got} of {wanted}");
        }
    }

    #[test]
    fn unlikely_relays_are_found_when_all_are_needed() {
        let capacities = [Rate::mbit(1_000), Rate::from_bits(1), Rate::from_bits(1)];
        let mut chooser = Chooser::new(Choice::Proportional { error: 0.5 }, &capacities, Seed(1));
        let selection = chooser.select(10, 3);
        for source in 0..10 {
            let mut relays = selection.of(source).to_vec();
            relays.sort_unstable();
            assert_eq!(relays, [0, 1, 2]);
        }
        assert_eq!(chooser.draw_other(0, &[0, 1, 2]), None);
    }

    #[test]
    fn each_rule_moves_its_paths() {
        let mut chooser = Chooser::new(Choice::Uniform, &[Rate::mbit(1); 50], Seed(1));
        let before = Selection::new(2, vec![0, 1, 2, 3]);
        let mut after = before.clone();
        reselect(
            Reselect::Least,
            Sample::One,
            &mut after,
            &[true, false],
            &[0.0, 0.0, 5.0, 4.0],
            &mut chooser,
        );
        assert_eq!((after.of(0), after.of(1)[0]), (before.of(0), 2));
        assert_ne!(after.of(1)[1], 3);
        let mut after = before.clone();
        reselect(Reselect::Paths, Sample::One, &mut after, &[true, false], &[0.0; 4], &mut chooser);
        assert_eq!(after.of(0), before.of(0));
        assert_ne!(after.of(1), before.of(1));
        let mut after = before.clone();
        reselect(
            Reselect::Everything,
            Sample::One,
            &mut after,
            &[true, true],
            &[0.0; 4],
            &mut chooser,
        );
        assert_ne!(after.of(0), before.of(0));
    }

    /// With p of the relays free, two draws find a free one with probability 1 - (1 - p)².
    #[test]
    fn the_better_of_two_relays_is_taken() {
        let mut chooser = Chooser::new(Choice::Uniform, &[Rate::mbit(1); 4], Seed(1));
        let mut selection = Selection::new(1, vec![0; 20_000]);
        let (satisfied, rates) = (vec![false; 20_000], vec![0.0; 20_000]);
        reselect(
            Reselect::Paths,
            Sample::Two(&[0.0, 0.0, 0.0, 5.0]),
            &mut selection,
            &satisfied,
            &rates,
            &mut chooser,
        );
        let free = selection
            .relays()
            .iter()
            .filter(|&&relay| relay == 3)
            .map(|_| 1.0 / 20_000.0)
            .sum::<f64>();
        assert!((free - 7.0 / 16.0).abs() < 0.015, "{free}");
    }
}
