//! Random early detection.
//!
//! S. Floyd, V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance", 1993, with
//! the gentle variant (S. Floyd, "Recommendations on using the gentle variant of RED", 2000). The
//! details are those of ns-2 in packets mode, so that results can be compared:
//!
//! - The length `q` that is averaged is what an arrival finds waiting, without itself and without
//!   the packet on the wire.
//! - On each arrival, `avg = (1 - w) avg + w q`. After an idle time, as if `m` packets had come to
//!   an empty queue first: `avg = (1 - w)^(m + 1) avg`, with `m` the packets of [mean
//!   size](Red::mean_packet) that the link carries in that time, rounded down.
//! - Nothing happens below `min`, or while at most one packet waits. The first packet that finds it
//!   otherwise is spared.
//! - From there on `p = max_p (avg - min) / (max - min)` up to `max`; beyond it 1, or when gentle
//!   `max_p + (1 - max_p) (avg - max) / max` up to twice `max`.
//! - With `n` packets since the last drop, this one included, the probability of a drop is 0 while
//!   `n p < 1`, then `p / (2 - n p)`, and 1 from `n p = 2` on: gaps between drops are uniform in
//!   `1/p..2/p` (`wait_` of ns-2, which is its default).

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Rate, Seed, Span};

use crate::rate::unit;

/// Parameters of RED; lengths are in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Below this average, nothing is dropped (`thresh_` of ns-2).
    pub min: f64,
    /// At this average, the probability has reached [`Red::probability`] (`maxthresh_`).
    pub max: f64,
    /// The weight of a new length in the average (`q_weight_`).
    pub weight: f64,
    /// The drop probability at `max`, before gaps are evened out (one over `linterm_`).
    pub probability: f64,
    /// Whether the probability rises to 1 between `max` and twice that, instead of at once.
    pub gentle: bool,
    /// Whether ECN-capable packets are marked instead of dropped while the average is below `max`
    /// (RFC 3168, section 7; as with ns-2's default for `mark_p_`).
    pub ecn: bool,
    /// The size of the packets that could have come in an idle time (`mean_pktsize_`).
    pub mean_packet: Bytes,
}

impl Red {
    /// RED between two average lengths, in packets: gentle, without ECN, and otherwise with ns-2's
    /// defaults.
    #[must_use]
    pub fn new(min: f64, max: f64) -> Red {
        Red {
            min,
            max,
            weight: 0.002,
            probability: 0.1,
            gentle: true,
            ecn: false,
            mean_packet: Bytes(500),
        }
    }

    /// The drop probability at an average length, before gaps are evened out.
    #[must_use]
    pub fn probability_at(&self, average: f64) -> f64 {
        if average < self.min {
            0.0
        } else if average < self.max {
            self.probability * (average - self.min) / (self.max - self.min)
        } else if self.gentle {
            (self.probability + (1.0 - self.probability) * (average - self.max) / self.max).min(1.0)
        } else {
            1.0
        }
    }
}

/// The decision about an arriving packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Take,
    Mark,
    Drop,
}

/// The state of RED on one queue.
#[derive(Clone, Debug)]
pub(crate) struct RedState {
    config: Red,
    average: f64,
    /// Packets since the last drop or mark.
    count: u64,
    /// Whether the packet before found the average above `min`.
    is_above: bool,
    /// Packets of mean size that the link carries in a nanosecond.
    per_nano: f64,
    rng: Xoshiro256PlusPlus,
}

/// The drop probability that makes gaps uniform, `count` packets after the last drop.
fn evened(p: f64, count: f64) -> f64 {
    let expected = count * p;
    if expected < 1.0 {
        0.0
    } else if expected < 2.0 {
        (p / (2.0 - expected)).min(1.0)
    } else {
        1.0
    }
}

impl RedState {
    pub(crate) fn new(config: Red, rate: Rate, seed: Seed) -> RedState {
        let mean = config.mean_packet.as_f64().max(1.0);
        RedState {
            config,
            average: 0.0,
            count: 0,
            is_above: false,
            per_nano: rate.as_f64() / (8e9 * mean),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed.0),
        }
    }

    /// The average length, in packets.
    pub(crate) fn average(&self) -> f64 {
        self.average
    }

    /// A packet arrives and finds `waiting` others, without the one on the wire; `idle` is the idle
    /// time of the link, if it is idle.
    pub(crate) fn handle_arrival(
        &mut self,
        waiting: u64,
        idle: Option<Span>,
        is_ecn_capable: bool,
    ) -> Verdict {
        self.update(waiting, idle);
        self.count += 1;
        if self.average < self.config.min || waiting <= 1 {
            self.is_above = false;
            return Verdict::Take;
        }
        if !self.is_above {
            self.is_above = true;
            self.count = 1;
            return Verdict::Take;
        }
        let p = evened(self.config.probability_at(self.average), as_f64(self.count));
        if unit(&mut self.rng) >= p {
            return Verdict::Take;
        }
        self.count = 0;
        if self.config.ecn && is_ecn_capable && self.average < self.config.max {
            Verdict::Mark
        } else {
            Verdict::Drop
        }
    }

    /// The packet was dropped by a full queue.
    pub(crate) fn handle_overflow(&mut self) {
        self.count = 0;
    }

    fn update(&mut self, waiting: u64, idle: Option<Span>) {
        let weight = self.config.weight;
        let missed = idle.map_or(0.0, |idle| libm::floor(as_f64(idle.as_nanos()) * self.per_nano));
        let kept = if missed > 0.0 { libm::pow(1.0 - weight, missed + 1.0) } else { 1.0 - weight };
        self.average = self.average * kept + weight * as_f64(waiting);
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate; exact up to 2^53 anyway")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    fn state(config: Red) -> RedState {
        RedState::new(config, Rate::mbit(1), Seed(1))
    }

    #[test]
    fn the_average_of_an_example() {
        let mut red = state(Red { weight: 0.5, mean_packet: Bytes(125), ..Red::new(100.0, 200.0) });
        let mut averages = alloc::vec::Vec::new();
        for waiting in [0, 4, 4, 8, 0] {
            red.handle_arrival(waiting, None, false);
            averages.push(red.average());
        }
        assert_eq!(averages, [0.0, 2.0, 3.0, 5.5, 2.75]);
        // 125 bytes take 1 ms: two packets could have been sent in 2.9 ms, before this one.
        red.handle_arrival(0, Some(Span::from_micros(2_900)), false);
        assert!(close(red.average(), 2.75 / 8.0), "{}", red.average());
        red.handle_arrival(0, Some(Span::from_micros(900)), false);
        assert!(close(red.average(), 2.75 / 16.0), "{}", red.average());
    }

    #[test]
    fn the_probability_of_examples() {
        let gentle = Red::new(20.0, 60.0);
        for (average, p) in [
            (0.0, 0.0),
            (19.9, 0.0),
            (20.0, 0.0),
            (30.0, 0.025),
            (40.0, 0.05),
            (60.0, 0.1),
            (90.0, 0.55),
            (120.0, 1.0),
            (500.0, 1.0),
        ] {
            assert!(close(gentle.probability_at(average), p), "{average}");
        }
        let harsh = Red { gentle: false, ..gentle };
        assert!(
            close(harsh.probability_at(59.0), 0.0975) && close(harsh.probability_at(60.0), 1.0)
        );
    }

    #[test]
    fn the_evened_probability_of_examples() {
        for (p, count, wanted) in [
            (0.1, 9.0, 0.0),
            (0.1, 10.0, 0.1),
            (0.1, 15.0, 0.2),
            (0.1, 18.0, 0.5),
            (0.1, 20.0, 1.0),
            (0.5, 1.0, 0.0),
            (0.5, 3.0, 1.0),
            (1.0, 1.0, 1.0),
            (0.0, 1e9, 0.0),
        ] {
            assert!((evened(p, count) - wanted).abs() < 1e-9, "{p} {count}");
        }
    }

    /// A queue that stays at 30 packets, where p is a 40th: gaps are uniform from 40 to 80 packets.
    #[test]
    fn gaps_between_drops_are_uniform() {
        let mut red = state(Red { weight: 1.0, ..Red::new(20.0, 60.0) });
        let mut gaps = alloc::vec::Vec::new();
        let mut gap = 0u32;
        for _ in 0..600_000 {
            gap += 1;
            if red.handle_arrival(30, None, false) == Verdict::Drop {
                gaps.push(gap);
                gap = 0;
            }
        }
        gaps.remove(0);
        assert!(gaps.iter().all(|gap| (40..=80).contains(gap)));
        let mean = f64::from(gaps.iter().sum::<u32>()) / as_f64(gaps.len() as u64);
        assert!((mean - 59.5).abs() < 1.0, "{mean}");
        let low = gaps.iter().filter(|gap| **gap < 50).count();
        assert!(
            (as_f64(low as u64) / as_f64(gaps.len() as u64) - 0.25).abs() < 0.02,
            "{low} of {}",
            gaps.len()
        );
    }

    #[test]
    fn short_queues_and_the_first_above_are_spared() {
        let mut red = state(Red { weight: 1.0, gentle: false, ..Red::new(1.0, 2.0) });
        assert_eq!(red.handle_arrival(1, None, false), Verdict::Take, "at most one waits");
        assert_eq!(red.handle_arrival(9, None, false), Verdict::Take, "the first above");
        assert_eq!(red.handle_arrival(9, None, false), Verdict::Drop);
        assert_eq!(red.handle_arrival(1, None, false), Verdict::Take);
        assert_eq!(red.handle_arrival(9, None, false), Verdict::Take, "the first above again");
    }

    #[test]
    fn marks_below_max_and_drops_above() {
        let mut verdicts = [0; 3];
        let mut red = state(Red { weight: 1.0, ecn: true, ..Red::new(20.0, 60.0) });
        for waiting in [59; 1_000].into_iter().chain([61; 1_000]) {
            match red.handle_arrival(waiting, None, true) {
                Verdict::Take => {}
                Verdict::Mark if waiting == 59 => verdicts[0] += 1,
                Verdict::Drop if waiting == 61 => verdicts[1] += 1,
                _ => verdicts[2] += 1,
            }
        }
        assert!(verdicts[0] > 50 && verdicts[1] > 50, "{verdicts:?}");
        assert_eq!(verdicts[2], 0);
        assert!(
            (0..1_000).all(|_| red.handle_arrival(59, None, false) != Verdict::Mark),
            "it is not capable"
        );
    }
}
