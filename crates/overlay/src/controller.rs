//! The rate control of one source over its paths (the paper's section 4 and Fig. 2).
//!
//! In each control interval the source tries an increment on one path. At the beginning of the next
//! it learns whether that succeeded, adjusts the probabilities and increments of its probes, and
//! tries the next one. The only inputs are its own rates and the received rates.

use alloc::vec::Vec;

use units::{Rate, Seed};

use crate::random::Draws;

/// The least probability of a probe, just above zero: with a larger one, sources probe full paths
/// for ever, at the cost of several percent of the aggregate rate.
const LEAST_PROBABILITY: f64 = 1e-12;

/// An increment term below this counts as zero: it adds less than a percent.
const SMALL_TERM: f64 = 0.01;

/// A shortfall below this share is the rounding of sums of floats.
const ROUNDING: f64 = 1e-9;

/// The signal by which a source detects a failed increment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detect {
    /// The received rate is below the share 1 - δ of the sent rate (the paper's rule). Under
    /// max-min sharing a source below the fair level sees success on a full relay, because it
    /// displaces others.
    Throughput(f64),
    /// The same for data in packets: the received rate may also be short by one packet per
    /// interval. Otherwise a packet that straddles the end of the interval would be a failure
    /// wherever it is more than the share δ of the sent data.
    Packets {
        /// The share δ.
        delta: f64,
        /// The rate of one packet per interval.
        allowance: Rate,
    },
    /// The relay was overloaded: the perfect detection that the paper's Theorem 1 assumes.
    RelayOverload,
    /// The rate received over the path's last link from all sources together is below the share 1 -
    /// θ of the rates that they set. As it covers all paths of the link, neither packets that
    /// straddle an interval nor displaced neighbours mislead it (an extension of the paper).
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
    /// The initial increment term, β(0): with zero the control is additive (AIAD), with a small
    /// positive value multiplicative (MIMD).
    pub beta: f64,
    /// The signal of failure.
    pub detect: Detect,
    /// The longest pause of a path after repeated failures: it is not probed for 1, 2, 4, …
    /// intervals, up to this number, as long as its increment term is about zero (an extension).
    /// Zero is the paper's rule: a probe in each interval.
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

    /// Multiplicative increase, multiplicative decrease: as [`Config::aiad`] with β(0) = 0.1.
    #[must_use]
    pub const fn mimd(epsilon: f64) -> Config {
        Config { beta: 0.1, ..Config::aiad(epsilon) }
    }
}

/// The result of a probe, at the end of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeResult {
    /// The rate received over the probed path, x, in bit/s.
    pub received: f64,
    /// Whether the relay of the path was overloaded; used by [`Detect::RelayOverload`].
    pub overloaded: bool,
    /// The received share of all rates set over the last link of the path; used by
    /// [`Detect::Receiver`].
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
    /// The length of its last pause, in intervals.
    pause: u32,
    /// The intervals left of its current pause.
    spared: u32,
}

impl Controller {
    /// A source with this demand and the initial path rates `initial` in bit/s: zeros, or max-min
    /// rates.
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

    /// Begins a control interval: evaluates the last probe by its result, and probes anew. With
    /// `None`, as before the first interval, the parameters stay.
    pub fn handle_interval(&mut self, result: Option<ProbeResult>) {
        for path in &mut self.paths {
            path.spared = path.spared.saturating_sub(1);
        }
        let failed = match (self.probed, result) {
            (Some(probed), Some(result)) if self.has_failed(probed, result) => {
                Some(self.adjust_after_failure(probed))
            }
            (Some(probed), Some(_)) => {
                self.adjust_after_success(probed);
                None
            }
            _ => None,
        };
        // No probe without a demand, or while all paths pause.
        self.probed = if self.demand > 0.0 { self.draw(failed) } else { None };
        if let Some(probed) = self.probed {
            self.increase(probed);
        }
    }

    /// Begins anew with these path rates, in bit/s: as a new one, but its random draws go on.
    ///
    /// # Panics
    ///
    /// If the number of paths changes.
    pub fn handle_start(&mut self, demand: Rate, initial: &[f64]) {
        assert_eq!(initial.len(), self.paths.len(), "as many paths as before");
        self.probed = None;
        self.handle_demand(demand);
        for (path, &rate) in initial.iter().enumerate() {
            self.handle_path(path);
            self.paths[path].rate = rate;
        }
        self.paths.iter_mut().for_each(|path| path.probability = 1.0);
        self.normalise();
    }

    /// Sets the demand; zero for a source that leaves. Rates above the demand are scaled down. A
    /// source that comes back begins with zero rates and initial parameters.
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

    /// The path has been replaced by another one: its rate is zero, its parameters initial.
    pub fn handle_path(&mut self, path: usize) {
        let probability = 1.0 / self.paths.iter().map(|_| 1.0).sum::<f64>();
        self.paths[path] =
            Path { rate: 0.0, probability, beta: self.config.beta, pause: 0, spared: 0 };
        self.normalise();
        // The result of a pending probe would be that of the old path.
        self.probed = self.probed.filter(|&probed| probed != path);
    }

    /// The rate set on each path, y, in bit/s.
    #[must_use]
    pub fn rates(&self) -> impl ExactSizeIterator<Item = f64> {
        self.paths.iter().map(|path| path.rate)
    }

    /// The demand, m: the bound of the sum of all rates.
    #[must_use]
    pub fn demand(&self) -> Rate {
        Rate::from_bits_f64(self.demand)
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

    fn has_failed(&self, probed: usize, result: ProbeResult) -> bool {
        let sent = self.paths[probed].rate;
        match self.config.detect {
            Detect::Throughput(delta) => result.received < sent * (1.0 - delta - ROUNDING),
            Detect::Packets { delta, allowance } => {
                result.received + allowance.as_f64() < sent * (1.0 - delta - ROUNDING)
            }
            Detect::RelayOverload => result.overloaded,
            Detect::Receiver(theta) => result.arrived < 1.0 - theta - ROUNDING,
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

    /// Draws a path by the probabilities, without paths that pause, and without the one that has
    /// just `failed` if there is another.
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
        // Rounding may leave a remainder, which goes to the last path.
        last
    }

    fn increase(&mut self, probed: usize) {
        let path = &mut self.paths[probed];
        let before = path.rate;
        path.rate = (before * (1.0 + path.beta) + self.step).min(self.demand);
        if path.rate >= self.demand {
            // So that the decrease after a failure restores `before`.
            path.beta = if before > 0.0 {
                ((self.demand - self.step) / before - 1.0).max(0.0)
            } else {
                0.0
            };
        }
        let rate = path.rate;
        let sum: f64 = self.rates().sum();
        if sum > self.demand {
            // The rates of the other paths are not restored if the probe fails. That is the paper's
            // rule; it costs a satisfied source one increment.
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

    const FAILED: Option<ProbeResult> =
        Some(ProbeResult { received: 0.0, overloaded: true, arrived: 0.0 });

    fn rates(controller: &Controller) -> Vec<f64> {
        controller.rates().collect()
    }

    /// The result of a probe without loss.
    fn all_of(controller: &Controller) -> ProbeResult {
        let probed = controller.probed().expect("it began");
        ProbeResult { received: rates(controller)[probed], overloaded: false, arrived: 1.0 }
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
    fn paths_are_drawn_by_their_probabilities() {
        let initial = [0.0; 3];
        let mut controller =
            Controller::new(Config::aiad(0.1), Rate::from_bits(100), &initial, Seed(1));
        let shares = [0.2, 0.5, 0.3];
        for (path, share) in controller.paths.iter_mut().zip(shares) {
            path.probability = share;
        }
        let mut found = [0.0; 3];
        for _ in 0..10_000 {
            found[controller.draw(None).expect("none pauses")] += 1.0 / 10_000.0;
        }
        // Four standard deviations.
        let are_near = found.iter().zip(shares).all(|(found, share)| (found - share).abs() < 0.02);
        assert!(are_near, "{found:?}");
        assert!((0..100).all(|_| controller.draw(Some(1)) != Some(1)), "it has just failed");
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
        controller.handle_interval(Some(ProbeResult {
            received: 97.5,
            overloaded: true,
            arrived: 0.5,
        }));
        assert_eq!(rates(&controller), [200.0]);
        controller.handle_interval(Some(ProbeResult {
            received: 193.0,
            overloaded: false,
            arrived: 1.0,
        }));
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
        controller.handle_interval(Some(ProbeResult {
            received: 87.0,
            overloaded: true,
            arrived: 0.5,
        }));
        assert_eq!(rates(&controller), [200.0]);
        // 183 of 200: they are.
        controller.handle_interval(Some(ProbeResult {
            received: 183.0,
            overloaded: false,
            arrived: 1.0,
        }));
        assert_eq!(rates(&controller), [200.0]);
    }

    #[test]
    fn the_receivers_signal_may_differ_from_the_path_rate() {
        let config = Config { detect: Detect::Receiver(0.01), ..Config::aiad(0.1) };
        let mut controller = Controller::new(config, Rate::from_bits(1_000), &[0.0], Seed(1));
        controller.handle_interval(None);
        // All of the path's own rate was received, at the cost of its neighbours.
        controller.handle_interval(Some(ProbeResult {
            received: 100.0,
            overloaded: false,
            arrived: 0.98,
        }));
        assert_eq!(rates(&controller), [100.0]);
        controller.handle_interval(Some(ProbeResult {
            received: 99.0,
            overloaded: true,
            arrived: 0.995,
        }));
        assert_eq!(rates(&controller), [200.0]);
    }

    #[test]
    fn paths_that_keep_failing_pause_ever_longer() {
        let config = Config { pause: 4, ..Config::aiad(0.1) };
        let mut controller = Controller::new(config, Rate::from_bits(100), &[50.0], Seed(1));
        let mut probed = Vec::new();
        for _ in 0..16 {
            let result = controller.probed().and(FAILED);
            controller.handle_interval(result);
            probed.push(controller.probed().is_some());
        }
        // A failure becomes known one interval after its probe: 1, 2, 4, 4 intervals without one.
        let at: Vec<usize> =
            probed.iter().enumerate().filter(|(_, is)| **is).map(|(at, _)| at).collect();
        assert_eq!(at, [0, 2, 5, 10, 15]);
        // The last probe succeeds: no path pauses any more.
        for _ in 0..3 {
            let all = all_of(&controller);
            controller.handle_interval(Some(all));
            assert!(controller.probed().is_some());
        }
        // With a term well above zero, no path pauses.
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
        // Without a demand: no rate, no probe.
        controller.handle_demand(Rate::ZERO);
        controller.handle_interval(None);
        assert_eq!((rates(&controller), controller.probed()), (alloc::vec![0.0, 0.0], None));
        // With a demand again: initial state, with the new increment.
        controller.handle_demand(Rate::from_bits(200));
        controller.handle_interval(None);
        let probed = controller.probed().unwrap();
        assert_eq!((rates(&controller)[probed], rates(&controller)[1 - probed]), (20.0, 0.0));
    }

    #[test]
    fn a_new_start_is_a_new_controller() {
        let (demand, initial) = (Rate::from_bits(200), [50.0, 20.0]);
        let mut again =
            Controller::new(Config::mimd(0.1), Rate::from_bits(100), &[40.0, 40.0], Seed(1));
        again.handle_start(demand, &initial);
        let mut new = Controller::new(Config::mimd(0.1), demand, &initial, Seed(1));
        for result in [None, FAILED, FAILED] {
            again.handle_interval(result);
            new.handle_interval(result);
            assert_eq!((rates(&again), again.probed()), (rates(&new), new.probed()));
        }
    }

    #[test]
    fn a_replaced_path_starts_anew() {
        let mut controller =
            Controller::new(Config::mimd(0.1), Rate::from_bits(100), &[40.0, 40.0], Seed(1));
        controller.handle_interval(None);
        let probed = controller.probed().unwrap();
        let kept = rates(&controller)[1 - probed];
        controller.handle_path(probed);
        assert_eq!((rates(&controller)[probed], rates(&controller)[1 - probed]), (0.0, kept));
        // The old result is ignored: no increment is taken back from either path.
        controller.handle_interval(FAILED);
        assert!(rates(&controller)[1 - probed] >= kept);
    }
}
