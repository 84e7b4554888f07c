//! One source's rate control over its paths (the paper's section 4 and Fig. 2).
//!
//! At the beginning of each control interval the source learns whether the increment that it tried
//! on one path came through, adjusts how it probes, and tries the next one. Nothing but its own
//! rates and what the receiver got enters.

use alloc::vec::Vec;

use units::{Rate, Seed};

use crate::random::Draws;

/// Probabilities stay positive, no more: a floor that matters makes sources probe full paths for
/// ever and costs several percent of the aggregate rate.
const LEAST_PROBABILITY: f64 = 1e-12;

/// An increment term below this is about zero: it adds less than a percent.
const SMALL_TERM: f64 = 0.01;

/// Shares of rates are sums of floats: a shortfall below this is rounding.
const ROUNDING: f64 = 1e-9;

/// How a source finds that an increment failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detect {
    /// The receiver got less than the share 1 - δ of what was sent (the paper's rule). Under
    /// max-min sharing a source below the fair level sees success on a full relay, by displacing
    /// others.
    Throughput(f64),
    /// The same where data comes in packets: what the receiver got may lack this rate besides, that
    /// of one packet an interval. Without, a packet that straddles the interval's end is a failure
    /// wherever it is more than the share δ of what was sent.
    Packets {
        /// The share δ.
        delta: f64,
        /// A packet an interval.
        allowance: Rate,
    },
    /// The relay had to deliver more than it can: the perfect detection that the paper's Theorem 1
    /// assumes.
    RelayOverload,
    /// Of all that sources set over the path's last link together, the receiver got less than the
    /// share 1 - θ. No measurement of a path alone, so that neither packets that straddle an
    /// interval nor a displaced neighbour mislead it (past the paper).
    Receiver(f64),
}

/// The constants of the control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The additive increment as a share of the source's demand, ε.
    pub epsilon: f64,
    /// The factor by which success raises a path's increment term, α > 1.
    pub alpha: f64,
    /// The divisor by which failure lowers it, γ > 1.
    pub gamma: f64,
    /// The increment term to begin with, β(0): zero makes the control additive (AIAD), a small
    /// positive value multiplicative (MIMD).
    pub beta: f64,
    /// How failure is found.
    pub detect: Detect,
    /// For how many intervals a path may be spared after its probes failed again and again: 1, 2,
    /// 4, … up to this, as long as its increment term is about zero. Zero is the paper's rule: a
    /// probe in each interval (past the paper).
    pub pause: u32,
}

impl Config {
    /// Additive increase, additive decrease, with the paper's other constants: α 1.1, γ 2, δ 0.
    #[must_use]
    pub const fn aiad(epsilon: f64) -> Config {
        Config {
            epsilon,
            alpha: 1.1,
            gamma: 2.0,
            beta: 0.0,
            detect: Detect::Throughput(0.0),
            pause: 0,
        }
    }

    /// Multiplicative increase, multiplicative decrease: as [`Config::aiad`], with β(0) = 0.1.
    #[must_use]
    pub const fn mimd(epsilon: f64) -> Config {
        Config { beta: 0.1, ..Config::aiad(epsilon) }
    }
}

/// What became of the probed path's rate in the interval that ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// What arrived at the receiver over the probed path, x, in bit/s.
    pub received: f64,
    /// Whether that path's relay was asked for more than it can deliver; only
    /// [`Detect::RelayOverload`] looks at it.
    pub overloaded: bool,
    /// What share arrived of all that sources set over that path's last link; only
    /// [`Detect::Receiver`] looks at it.
    pub arrived: f64,
}

/// The rate control of one source.
#[derive(Clone, Debug)]
pub struct Controller {
    config: Config,
    demand: f64,
    /// ε times the demand, in bit/s.
    step: f64,
    paths: Vec<Path>,
    probed: Option<usize>,
    draws: Draws,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    /// The rate set, y, in bit/s.
    rate: f64,
    /// The probability of being probed, p.
    probability: f64,
    /// The increment term, β.
    beta: f64,
    /// For how many intervals it was last spared.
    pause: u32,
    /// For how many more it is.
    spared: u32,
}

impl Controller {
    /// A source with this demand whose paths begin at `initial` bit/s: zeros, or
    /// [`max_min`](crate::max_min) rates.
    ///
    /// # Panics
    ///
    /// If there is no path.
    #[must_use]
    pub fn new(config: Config, demand: Rate, initial: &[f64], seed: Seed) -> Controller {
        assert!(!initial.is_empty(), "a source needs a path");
        let count: f64 = initial.iter().map(|_| 1.0).sum();
        let path = |&rate: &f64| Path {
            rate,
            probability: 1.0 / count,
            beta: config.beta,
            pause: 0,
            spared: 0,
        };
        Controller {
            config,
            demand: demand.as_f64(),
            step: config.epsilon * demand.as_f64(),
            paths: initial.iter().map(path).collect(),
            probed: None,
            draws: Draws::new(seed),
        }
    }

    /// Begins a control interval: judges the last probe by what was `seen` of it, and probes anew.
    /// Without anything seen, which is so before the first interval, the parameters stay.
    pub fn handle_interval(&mut self, seen: Option<Seen>) {
        for path in &mut self.paths {
            path.spared = path.spared.saturating_sub(1);
        }
        let failed = match (self.probed, seen) {
            (Some(probed), Some(seen)) if self.has_failed(probed, seen) => {
                Some(self.adjust_after_failure(probed))
            }
            (Some(probed), Some(_)) => {
                self.adjust_after_success(probed);
                None
            }
            _ => None,
        };
        // A source without a demand rests; so does one all of whose paths are spared.
        self.probed = if self.demand > 0.0 { self.draw(failed) } else { None };
        if let Some(probed) = self.probed {
            self.increase(probed);
        }
    }

    /// From now on the source has this demand: zero for one that goes. Rates beyond it shrink in
    /// proportion; a source that comes (back) begins with nothing, and knows nothing of its paths.
    pub fn handle_demand(&mut self, demand: Rate) {
        let (before, demand) = (self.demand, demand.as_f64());
        self.demand = demand;
        self.step = self.config.epsilon * demand;
        let sum: f64 = self.rates().sum();
        if sum > demand {
            self.paths.iter_mut().for_each(|path| path.rate *= demand / sum);
        }
        if before <= 0.0 {
            (0..self.paths.len()).for_each(|path| self.handle_path(path));
        }
    }

    /// This path leads another way from now on: nothing is sent over it yet, and nothing known of
    /// it.
    pub fn handle_path(&mut self, path: usize) {
        let probability = 1.0 / self.paths.iter().map(|_| 1.0).sum::<f64>();
        self.paths[path] =
            Path { rate: 0.0, probability, beta: self.config.beta, pause: 0, spared: 0 };
        self.normalise();
        // What was seen of a probe is of the path that it was before.
        self.probed = self.probed.filter(|&probed| probed != path);
    }

    /// The rate set on each path, y, in bit/s.
    #[must_use]
    pub fn rates(&self) -> impl ExactSizeIterator<Item = f64> {
        self.paths.iter().map(|path| path.rate)
    }

    /// The probability with which each path is probed.
    #[must_use]
    pub fn probabilities(&self) -> impl ExactSizeIterator<Item = f64> {
        self.paths.iter().map(|path| path.probability)
    }

    /// The path that is probed in this interval.
    #[must_use]
    pub fn probed(&self) -> Option<usize> {
        self.probed
    }

    fn has_failed(&self, probed: usize, seen: Seen) -> bool {
        let sent = self.paths[probed].rate;
        match self.config.detect {
            Detect::Throughput(delta) => seen.received < sent * (1.0 - delta - ROUNDING),
            Detect::Packets { delta, allowance } => {
                seen.received + allowance.as_f64() < sent * (1.0 - delta - ROUNDING)
            }
            Detect::RelayOverload => seen.overloaded,
            Detect::Receiver(theta) => seen.arrived < 1.0 - theta - ROUNDING,
        }
    }

    /// Returns the failed path.
    fn adjust_after_failure(&mut self, failed: usize) -> usize {
        let path = &mut self.paths[failed];
        path.rate = ((path.rate - self.step) / (1.0 + path.beta)).max(0.0);
        path.beta /= self.config.gamma;
        path.probability /= 2.0;
        if path.beta < SMALL_TERM {
            path.pause = (2 * path.pause).clamp(1, self.config.pause.max(1)).min(self.config.pause);
            path.spared = path.pause;
        }
        self.normalise();
        failed
    }

    fn adjust_after_success(&mut self, probed: usize) {
        let path = &mut self.paths[probed];
        path.beta *= self.config.alpha;
        path.probability = (2.0 * path.probability).min(1.0);
        path.pause = 0;
        self.normalise();
    }

    fn normalise(&mut self) {
        let factor = 1.0 / self.paths.iter().map(|path| path.probability).sum::<f64>();
        for path in &mut self.paths {
            path.probability = (path.probability * factor).max(LEAST_PROBABILITY);
        }
    }

    /// A path by the probabilities, other than the one that has just `failed` if there is another,
    /// and none that is spared.
    fn draw(&mut self, failed: Option<usize>) -> Option<usize> {
        let except = failed.filter(|_| self.paths.len() > 1);
        let is_candidate =
            |(index, path): &(usize, &Path)| Some(*index) != except && path.spared == 0;
        let candidates = || self.paths.iter().enumerate().filter(is_candidate);
        let sum: f64 = candidates().map(|(_, path)| path.probability).sum();
        let mut left = self.draws.unit() * sum;
        let mut last = None;
        for (index, path) in candidates() {
            last = Some(index);
            left -= path.probability;
            if left < 0.0 {
                break;
            }
        }
        // Rounding may leave a little: that falls to the last one.
        last
    }

    fn increase(&mut self, probed: usize) {
        let path = &mut self.paths[probed];
        let before = path.rate;
        path.rate = (before * (1.0 + path.beta) + self.step).min(self.demand);
        if path.rate >= self.demand {
            // So that the decrease after a failure leads back to `before`.
            path.beta = if before > 0.0 {
                ((self.demand - self.step) / before - 1.0).max(0.0)
            } else {
                0.0
            };
        }
        let rate = path.rate;
        let sum: f64 = self.rates().sum();
        if sum > self.demand {
            // What the others give up is not given back if the probe fails: the paper's rule, and
            // it costs a satisfied source one increment.
            let factor = (self.demand - rate) / (sum - rate);
            for (index, other) in self.paths.iter_mut().enumerate() {
                if index != probed {
                    other.rate *= factor;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Option<Seen> = Some(Seen { received: 0.0, overloaded: true, arrived: 0.0 });

    fn rates(controller: &Controller) -> Vec<f64> {
        controller.rates().collect()
    }

    /// What arrives if all does.
    fn all_of(controller: &Controller) -> Seen {
        let probed = controller.probed().expect("it began");
        Seen { received: rates(controller)[probed], overloaded: false, arrived: 1.0 }
    }

    #[test]
    fn additive_increments_come_and_go() {
        let mut controller =
            Controller::new(Config::aiad(0.1), Rate::from_bits(100), &[20.0, 30.0], Seed(1));
        controller.handle_interval(None);
        let probed = controller.probed().unwrap();
        let mut expected = [20.0, 30.0];
        expected[probed] += 10.0;
        assert_eq!(rates(&controller), expected);
        // A failure takes it back and turns to the other path.
        controller.handle_interval(FAILED);
        assert_eq!(controller.probed(), Some(1 - probed));
        let mut expected = [20.0, 30.0];
        expected[1 - probed] += 10.0;
        assert_eq!(rates(&controller), expected);
        let probabilities: Vec<f64> = controller.probabilities().collect();
        assert!((probabilities[probed] - 1.0 / 3.0).abs() < 1e-12, "{probabilities:?}");
    }

    #[test]
    fn a_multiplicative_failure_uses_the_increment_term_of_its_increase() {
        let mut controller =
            Controller::new(Config::mimd(0.01), Rate::from_bits(1_000), &[100.0], Seed(1));
        controller.handle_interval(None);
        assert!((rates(&controller)[0] - 120.0).abs() < 1e-9);
        controller.handle_interval(Some(all_of(&controller)));
        // The success raised the term to 0.11.
        assert!((rates(&controller)[0] - (120.0 * 1.11 + 10.0)).abs() < 1e-9);
        controller.handle_interval(FAILED);
        // Back to 120, then up with half the term.
        assert!((rates(&controller)[0] - (120.0 * 1.055 + 10.0)).abs() < 1e-9);
    }

    #[test]
    fn an_increase_that_the_demand_cuts_short_is_undone_exactly() {
        let mut controller =
            Controller::new(Config::mimd(0.01), Rate::from_bits(1_000), &[950.0], Seed(1));
        controller.handle_interval(None);
        assert!((rates(&controller)[0] - 1_000.0).abs() < 1e-9);
        let failed = controller.adjust_after_failure(0);
        assert!((rates(&controller)[failed] - 950.0).abs() < 1e-9);
        // From zero there is no term that would lead back.
        let mut controller =
            Controller::new(Config::aiad(1.0), Rate::from_bits(1_000), &[0.0], Seed(1));
        controller.handle_interval(None);
        controller.handle_interval(FAILED);
        assert_eq!(rates(&controller), [1_000.0]);
    }

    #[test]
    fn the_demand_scales_the_other_paths() {
        let mut controller =
            Controller::new(Config::aiad(0.1), Rate::from_bits(100), &[50.0, 50.0], Seed(1));
        controller.handle_interval(None);
        let mut rates = rates(&controller);
        rates.sort_by(f64::total_cmp);
        assert!((rates[0] - 40.0).abs() < 1e-9 && (rates[1] - 60.0).abs() < 1e-9, "{rates:?}");
    }

    #[test]
    fn measurements_may_fall_short_by_delta() {
        let config = Config { detect: Detect::Throughput(0.03), ..Config::aiad(0.1) };
        let mut controller = Controller::new(config, Rate::from_bits(1_000), &[0.0], Seed(1));
        controller.handle_interval(None);
        controller.handle_interval(Some(Seen { received: 97.5, overloaded: true, arrived: 0.5 }));
        assert_eq!(rates(&controller), [200.0]);
        controller.handle_interval(Some(Seen { received: 193.0, overloaded: false, arrived: 1.0 }));
        assert_eq!(rates(&controller), [200.0]);
    }

    #[test]
    fn a_packet_may_straddle_the_intervals_end() {
        let detect = Detect::Packets { delta: 0.03, allowance: Rate::from_bits(10) };
        let mut controller = Controller::new(
            Config { detect, ..Config::aiad(0.1) },
            Rate::from_bits(1_000),
            &[0.0],
            Seed(1),
        );
        controller.handle_interval(None);
        // 87 of 100: no more than 3 % and a packet are missing.
        controller.handle_interval(Some(Seen { received: 87.0, overloaded: true, arrived: 0.5 }));
        assert_eq!(rates(&controller), [200.0]);
        // 183 of 200: they are.
        controller.handle_interval(Some(Seen { received: 183.0, overloaded: false, arrived: 1.0 }));
        assert_eq!(rates(&controller), [200.0]);
    }

    #[test]
    fn the_receivers_word_may_differ_from_what_arrived() {
        let config = Config { detect: Detect::Receiver(0.01), ..Config::aiad(0.1) };
        let mut controller = Controller::new(config, Rate::from_bits(1_000), &[0.0], Seed(1));
        controller.handle_interval(None);
        // All of the path's own rate arrived, at its neighbours' cost.
        controller.handle_interval(Some(Seen {
            received: 100.0,
            overloaded: false,
            arrived: 0.98,
        }));
        assert_eq!(rates(&controller), [100.0]);
        controller.handle_interval(Some(Seen { received: 99.0, overloaded: true, arrived: 0.995 }));
        assert_eq!(rates(&controller), [200.0]);
    }

    #[test]
    fn paths_that_fail_again_and_again_are_spared_ever_longer() {
        let config = Config { pause: 4, ..Config::aiad(0.1) };
        let mut controller = Controller::new(config, Rate::from_bits(100), &[50.0], Seed(1));
        let mut probed = Vec::new();
        for _ in 0..16 {
            let seen = controller.probed().and(FAILED);
            controller.handle_interval(seen);
            probed.push(controller.probed().is_some());
        }
        // A failure becomes known one interval after its probe: 1, 2, 4, 4 intervals without one.
        let at: Vec<usize> =
            probed.iter().enumerate().filter(|(_, is)| **is).map(|(at, _)| at).collect();
        assert_eq!(at, [0, 2, 5, 10, 15]);
        // The last probe comes through: none is left out any more.
        for _ in 0..3 {
            let all = all_of(&controller);
            controller.handle_interval(Some(all));
            assert!(controller.probed().is_some());
        }
        // A term well above zero spares nothing.
        let config = Config { pause: 4, ..Config::mimd(0.1) };
        let mut controller = Controller::new(config, Rate::from_bits(100), &[10.0], Seed(1));
        controller.handle_interval(None);
        controller.handle_interval(FAILED);
        assert!(controller.probed().is_some());
    }

    #[test]
    fn demands_may_change() {
        let mut controller =
            Controller::new(Config::aiad(0.1), Rate::from_bits(100), &[60.0, 20.0], Seed(1));
        controller.handle_demand(Rate::from_bits(40));
        assert_eq!(rates(&controller), [30.0, 10.0]);
        // Gone: no rate, no probe.
        controller.handle_demand(Rate::ZERO);
        controller.handle_interval(None);
        assert_eq!((rates(&controller), controller.probed()), (alloc::vec![0.0, 0.0], None));
        // Back: as one that begins, with its new increment.
        controller.handle_demand(Rate::from_bits(200));
        controller.handle_interval(None);
        let probed = controller.probed().unwrap();
        assert_eq!((rates(&controller)[probed], rates(&controller)[1 - probed]), (20.0, 0.0));
    }

    #[test]
    fn a_path_that_leads_another_way_begins_anew() {
        let mut controller =
            Controller::new(Config::mimd(0.1), Rate::from_bits(100), &[40.0, 40.0], Seed(1));
        controller.handle_interval(None);
        let probed = controller.probed().unwrap();
        let kept = rates(&controller)[1 - probed];
        controller.handle_path(probed);
        assert_eq!((rates(&controller)[probed], rates(&controller)[1 - probed]), (0.0, kept));
        // What was seen before judges nothing: no increment is taken back from either.
        controller.handle_interval(FAILED);
        assert!(rates(&controller)[1 - probed] >= kept);
    }
}
