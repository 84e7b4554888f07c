//! Random delays of packets.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Span, Time};

use crate::rate::unit;

/// A random time added to the delay of each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// The distribution of the time.
    pub spread: Spread,
    /// Whether packets may overtake each other. If not, a packet arrives no earlier than the one
    /// before it.
    pub reorders: bool,
}

/// A distribution of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Uniform from zero to this time.
    Uniform(Span),
    /// Normal, truncated at zero: negative draws are repeated.
    Normal {
        /// The mean before truncation.
        mean: Span,
        /// The standard deviation before truncation.
        deviation: Span,
    },
}

/// The state of jitter on a link.
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

    /// The arrival of a packet that would arrive at `at` without jitter.
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
        // A half-normal distribution: its mean is sigma sqrt(2/pi).
        let draws = draws(Spread::Normal { mean: Span::ZERO, deviation: MS * 3 });
        assert!(draws.iter().all(|x| *x >= 0.0));
        let wanted = 3.0 * (2.0 / core::f64::consts::PI).sqrt();
        assert!((moments(&draws).0 - wanted).abs() < 0.03);
    }
}
