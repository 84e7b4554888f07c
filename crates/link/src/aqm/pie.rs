//! Proportional integral controller enhanced (RFC 8033).
//!
//! The algorithm is that of section 4 with the enhancements of section 5: marks in place of drops
//! while the probability is low (5.1), drops at even distances (5.4), and a bound on its growth
//! (5.5). It is always active. The delay is the backlog over the rate of the link, which the link
//! knows; without a rate, it grows with the time.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Rate, Seed, Span, Time};

use super::Verdict;
use crate::counters::Tally;
use crate::rate::unit;

/// Parameters of PIE, with the names of RFC 8033.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pie {
    /// The delay to be kept: `QDELAY_REF`.
    pub target: Span,
    /// The time from one update of the probability to the next: `T_UPDATE`.
    pub interval: Span,
    /// How long a burst after quiet is let through: `MAX_BURST`.
    pub burst: Span,
    /// Whether ECN-capable packets are marked instead of dropped, while the probability is at most
    /// a tenth.
    pub ecn: bool,
}

impl Default for Pie {
    /// As section 4 recommends: 15 ms, 15 ms and 150 ms; without ECN.
    fn default() -> Pie {
        Pie {
            target: Span::from_millis(15),
            interval: Span::from_millis(15),
            burst: Span::from_millis(150),
            ecn: false,
        }
    }
}

/// The weights of the deviation from the target and of its growth, in hertz (section 4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Below each of these probabilities, a change is divided by the number beside it (section 4.2).
const SCALES: [(f64, f64); 6] =
    [(1e-6, 2048.0), (1e-5, 512.0), (1e-4, 128.0), (1e-3, 32.0), (1e-2, 8.0), (0.1, 2.0)];
/// From this probability on, it grows by [`MOST_GROWTH`] at once at most (section 5.5).
const LARGE: f64 = 0.1;
const MOST_GROWTH: f64 = 0.02;
/// What remains of the probability after an update without any queue.
const DECAY: f64 = 0.98;
/// Below this probability nothing is dropped while the delay is below half of the target.
const WORK_CONSERVING: f64 = 0.2;
/// The probability up to which packets are marked (`mark_ecnth`, section 5.1).
const MOST_MARKED: f64 = 0.1;
/// Sums of probabilities since the last drop: below the first, none is dropped; from the second on,
/// each is (section 5.4).
const EVEN: [f64; 2] = [0.85, 8.5];
/// Twice the mean packet size: so little is no queue.
const LITTLE: Bytes = Bytes(2 * 1_500);

/// The state of PIE on one queue.
#[derive(Clone, Debug)]
pub(crate) struct PieState {
    config: Pie,
    probability: f64,
    /// The delay at the last update, in seconds: `qdelay_old`.
    delay: f64,
    /// `burst_allowance`.
    burst: Span,
    /// The sum of probabilities since the last drop: `accu_prob`.
    sum: f64,
    /// The next update.
    pub(crate) due: Time,
    rng: Xoshiro256PlusPlus,
}

impl PieState {
    pub(crate) fn new(config: Pie, seed: Seed) -> PieState {
        PieState {
            probability: 0.0,
            delay: 0.0,
            burst: config.burst,
            sum: 0.0,
            due: Time::ZERO + config.interval,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed.0),
            config,
        }
    }

    /// The probability with which packets are dropped.
    pub(crate) fn probability(&self) -> f64 {
        self.probability
    }

    /// The update that is due, with what waits at that time, the packet on the wire included. While
    /// there is nothing to forget and nothing waits, updates up to `now` change nothing.
    pub(crate) fn update(&mut self, now: Time, waiting: Tally, rate: Rate) {
        self.due += self.config.interval;
        let delay = self.delay_of(waiting, rate);
        self.set_probability(delay);
        let quiet = self.config.target.as_secs_f64() / 2.0;
        if self.probability == 0.0 && delay < quiet && self.delay < quiet {
            self.burst = self.config.burst;
        } else {
            self.burst = self.burst - self.config.interval;
        }
        let was_quiet = self.delay == 0.0;
        self.delay = delay;
        if self.probability == 0.0 && was_quiet && delay == 0.0 && waiting.packets == 0 {
            let interval = self.config.interval.as_nanos().max(1);
            let missed = now.since(self.due).as_nanos() / interval;
            self.due += Span::from_nanos(missed * interval);
        }
    }

    /// The time that what waits takes, in seconds. The packet on the wire does not wait.
    fn delay_of(&self, waiting: Tally, rate: Rate) -> f64 {
        if waiting.packets <= 1 {
            return 0.0;
        }
        if rate == Rate::ZERO {
            return self.delay + self.config.interval.as_secs_f64();
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of packets")]
        let part = (waiting.packets - 1) as f64 / waiting.packets as f64;
        (waiting.bytes / rate).as_secs_f64() * part
    }

    /// Section 4.2.
    fn set_probability(&mut self, delay: f64) {
        let target = self.config.target.as_secs_f64();
        let change = ALPHA * (delay - target) + BETA * (delay - self.delay);
        let scale = SCALES.iter().find(|(below, _)| self.probability < *below);
        let mut change = change / scale.map_or(1.0, |(_, scale)| *scale);
        if self.probability >= LARGE {
            change = change.min(MOST_GROWTH);
        }
        self.probability += change;
        if delay == 0.0 && self.delay == 0.0 {
            self.probability *= DECAY;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
    }

    /// A packet arrives and finds this backlog.
    pub(crate) fn handle_arrival(&mut self, waiting: Bytes, is_ecn_capable: bool) -> Verdict {
        if self.burst > Span::ZERO || !self.drops(waiting) {
            return Verdict::Take;
        }
        self.sum = 0.0;
        if self.config.ecn && is_ecn_capable && self.probability <= MOST_MARKED {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    /// Sections 4.1 and 5.4.
    fn drops(&mut self, waiting: Bytes) -> bool {
        let quiet = self.config.target.as_secs_f64() / 2.0;
        let is_quiet = self.delay < quiet && self.probability < WORK_CONSERVING;
        if is_quiet || waiting <= LITTLE {
            return false;
        }
        if self.probability == 0.0 {
            self.sum = 0.0;
        }
        self.sum += self.probability;
        if self.sum < EVEN[0] {
            return false;
        }
        self.sum >= EVEN[1] || unit(&mut self.rng) < self.probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn waiting(packets: u64) -> Tally {
        Tally { packets, bytes: Bytes(1_500 * packets) }
    }

    /// The probabilities after updates that find so many packets behind the one on the wire, of
    /// which each takes 1 ms.
    fn probabilities(pie: &mut PieState, queues: &[u64]) -> Vec<f64> {
        let each = |queue: &u64| {
            let packets = if *queue == 0 { 0 } else { queue + 1 };
            let due = pie.due;
            pie.update(due, waiting(packets), Rate::mbit(12));
            pie.probability()
        };
        queues.iter().map(each).collect()
    }

    fn near(found: &[f64], wanted: &[f64]) {
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() <= 1e-9 * wanted.abs().max(1e-6), "{found} {wanted}");
        }
    }

    /// Section 4.2 by hand: 0.125 of what exceeds 15 ms, and 1.25 of what it has grown, scaled.
    #[test]
    fn the_probability_follows_the_delay() {
        let mut pie = PieState::new(Pie::default(), Seed(1));
        let found = probabilities(&mut pie, &[115, 115, 115]);
        // 0.125 * 0.1 + 1.25 * 0.115 = 0.15625, over 2048; then 0.0125 / 128 and again.
        let first = 0.15625 / 2048.0;
        near(&found, &[first, first + 0.0125 / 128.0, first + 0.0125 / 128.0 + 0.0125 / 32.0]);
    }

    #[test]
    fn a_large_probability_grows_by_two_percent() {
        let mut pie = PieState::new(Pie::default(), Seed(1));
        pie.probability = 0.15;
        pie.delay = 0.1;
        // 0.125 * 0.985 + 1.25 * 0.9 would be more than one.
        near(&probabilities(&mut pie, &[1_000]), &[0.17]);
        // It falls without a bound: 0.125 * 0.085 - 1.25 * 0.9.
        near(&probabilities(&mut pie, &[100]), &[0.0]);
    }

    #[test]
    fn without_a_queue_it_decays() {
        let mut pie = PieState::new(Pie::default(), Seed(1));
        (pie.probability, pie.delay) = (0.5, 0.0);
        let change = -0.125 * 0.015;
        let first = (0.5 + change) * 0.98;
        near(&probabilities(&mut pie, &[0, 0]), &[first, (first + change) * 0.98]);
    }

    /// Section 4.4: 150 ms after quiet nothing is dropped, whatever the probability.
    #[test]
    fn a_burst_is_let_through() {
        let mut pie = PieState::new(Pie::default(), Seed(1));
        let mut taken = 0;
        for _ in 0..20 {
            let due = pie.due;
            pie.update(due, waiting(1_001), Rate::mbit(12));
            (pie.probability, pie.sum) = (1.0, 10.0);
            taken += u32::from(pie.handle_arrival(Bytes(1_000_000), false) == Verdict::Take);
        }
        assert_eq!(taken, 9, "nine updates after the first one of ten");
    }

    /// Section 5.4: at least 0.85 over the probability between drops, and 8.5 over it at most.
    #[test]
    fn drops_are_at_even_distances() {
        let mut pie = PieState::new(Pie::default(), Seed(1));
        (pie.probability, pie.delay, pie.burst) = (0.05, 0.02, Span::ZERO);
        let (mut gaps, mut gap) = (Vec::new(), 0_u32);
        for _ in 0..100_000 {
            gap += 1;
            if pie.handle_arrival(Bytes(60_000), false) == Verdict::Drop {
                gaps.push(gap);
                gap = 0;
            }
        }
        assert!(gaps.iter().all(|gap| (17..=171).contains(gap)));
        // 16 packets that are spared, and then 20 in the mean.
        let count = f64::from(u32::try_from(gaps.len()).expect("small"));
        let mean = f64::from(gaps.iter().sum::<u32>()) / count;
        assert!((mean - 36.0).abs() < 1.0, "{mean}");
    }

    #[test]
    fn marks_stand_for_drops_while_the_probability_is_low() {
        let mut pie = PieState::new(Pie { ecn: true, ..Pie::default() }, Seed(1));
        for (probability, is_capable, wanted) in
            [(0.1, true, Verdict::Mark), (0.1, false, Verdict::Drop), (0.11, true, Verdict::Drop)]
        {
            (pie.probability, pie.delay, pie.burst, pie.sum) = (probability, 0.02, Span::ZERO, 8.5);
            assert_eq!(pie.handle_arrival(Bytes(60_000), is_capable), wanted, "{probability}");
        }
        pie.sum = 8.5;
        assert_eq!(pie.handle_arrival(LITTLE, false), Verdict::Take, "two packets are no queue");
        (pie.probability, pie.delay, pie.sum) = (0.19, 0.007, 8.5);
        assert_eq!(pie.handle_arrival(Bytes(60_000), false), Verdict::Take, "half of the target");
    }
}
