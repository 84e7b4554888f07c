//! What a study of rate control is about: sources, relays, the choice of paths, and how long.

use overlay::{Choice, Chooser, Config, Draws, Initial, Instance};
use units::{Rate, Seed};

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
pub struct RateStudy {
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
impl Default for RateStudy {
    fn default() -> RateStudy {
        RateStudy {
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

impl RateStudy {
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
}

/// The division of a relay's capacity among paths that need more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Max-min fair. TCP connections of equal RTT, one for each source, share like this, and only
    /// this model reproduces the paper's figures for multiplicative control.
    MaxMin,
    /// In proportion to the set rates, so that every path of an overloaded relay sees the overload.
    /// Over several links a path gets the smallest of its shares, and the other links keep the rest
    /// unused.
    Proportional,
}

/// The interval, counted from 1, from which on all rates are within the share `band` of `value`;
/// `None` if the last one is not.
#[must_use]
pub fn convergence(rates: &[f64], value: f64, band: f64) -> Option<usize> {
    let is_outside = |rate: &f64| (rate - value).abs() > band * value;
    let time = rates.iter().rposition(is_outside).map_or(1, |last| last + 2);
    (time <= rates.len()).then_some(time)
}
