//! Delays that differ from packet to packet.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Span, Time};

use crate::rate::unit;

/// A random time that each packet travels longer than the link's delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// How long.
    pub spread: Spread,
    /// Whether a packet may overtake one that left before it. If not, it arrives no earlier than
    /// that one: at the same time.
    pub reorders: bool,
}

/// How a random time is distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// All times from zero to this one are as likely.
    Uniform(Span),
    /// A normal distribution without its part below zero: such draws are drawn again.
    Normal {
        /// The mean of the whole distribution.
        mean: Span,
        /// Its standard deviation.
        deviation: Span,
    },
}

/// Jitter at work.
#[derive(Clone, Debug)]
pub(crate) struct JitterState {
    config: Jitter,
    rng: Xoshiro256PlusPlus,
    last: Time,
}

impl JitterState {
    pub(crate) fn new(config: Jitter, seed: Seed) -> JitterState {
        JitterState { config, rng: Xoshiro256PlusPlus::seed_from_u64(seed.0), last: Time::ZERO }
    }

    /// Whether packets may overtake each other.
    pub(crate) fn reorders(&self) -> bool {
        self.config.reorders
    }

    /// When a packet arrives that would have at `at`.
    pub(crate) fn arrival(&mut self, at: Time) -> Time {
        let arrival = at + self.draw();
        if self.config.reorders {
            return arrival;
        }
        self.last = self.last.max(arrival);
        self.last
    }

    fn draw(&mut self) -> Span {
        match self.config.spread {
            Spread::Uniform(most) => Span::from_secs_f64(most.as_secs_f64() * unit(&mut self.rng)),
            Spread::Normal { mean, deviation } => loop {
                let seconds = mean.as_secs_f64() + deviation.as_secs_f64() * normal(&mut self.rng);
                if seconds >= 0.0 {
                    return Span::from_secs_f64(seconds);
                }
            },
        }
    }
}

/// A draw from the standard normal distribution (G. Box, M. Muller, "A Note on the Generation of
/// Random Normal Deviates", 1958).
fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    // From (0, 1], where the logarithm is finite.
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit(rng)));
    radius * libm::cos(2.0 * core::f64::consts::PI * unit(rng))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: Span = Span::from_millis(1);

    fn draws(spread: Spread) -> Vec<f64> {
        let mut state = JitterState::new(Jitter { spread, reorders: true }, Seed(2));
        (0..100_000).map(|_| state.arrival(Time::ZERO).as_secs_f64() * 1e3).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn moments(draws: &[f64]) -> (f64, f64) {
        let n = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / n;
        (mean, (draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt())
    }

    #[test]
    fn uniform_times() {
        let draws = draws(Spread::Uniform(MS * 4));
        assert!(draws.iter().all(|x| (0.0..=4.0).contains(x)));
        let (mean, deviation) = moments(&draws);
        assert!(
            (mean - 2.0).abs() < 0.02 && (deviation - 4.0 / 12f64.sqrt()).abs() < 0.02,
            "{mean} {deviation}"
        );
    }

    #[test]
    fn normal_times() {
        let (mean, deviation) =
            moments(&draws(Spread::Normal { mean: MS * 10, deviation: MS * 2 }));
        assert!((mean - 10.0).abs() < 0.03 && (deviation - 2.0).abs() < 0.03, "{mean} {deviation}");
    }

    #[test]
    fn a_truncated_half_normal() {
        // Half a bell: its mean is sigma sqrt(2/pi).
        let draws = draws(Spread::Normal { mean: Span::ZERO, deviation: MS * 3 });
        assert!(draws.iter().all(|x| *x >= 0.0));
        let wanted = 3.0 * (2.0 / core::f64::consts::PI).sqrt();
        assert!((moments(&draws).0 - wanted).abs() < 0.03);
    }
}
