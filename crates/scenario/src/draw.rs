//! Random draws, the same on every machine.

use rand_core::Rng;
use units::{Bytes, Span, Time};

/// A number from 0 (exclusive) to 1 (inclusive).
pub(crate) fn unit(rng: &mut impl Rng) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let bits = ((rng.next_u64() >> 11) + 1) as f64;
    bits / 9_007_199_254_740_992.0
}

/// A time from `from` to `to`.
pub(crate) fn within(rng: &mut impl Rng, from: Span, to: Span) -> Time {
    Time::ZERO + from + Span::from_secs_f64((to - from).as_secs_f64() * (1.0 - unit(rng)))
}

/// An exponentially distributed time.
pub(crate) fn exponential(rng: &mut impl Rng, mean: Span) -> Span {
    Span::from_secs_f64(-libm::log(unit(rng)) * mean.as_secs_f64()).max(Span::from_nanos(1))
}

/// A Pareto-distributed size with this mean, `shape` above 1; at least a byte, at most a thousand
/// million means.
pub(crate) fn pareto(rng: &mut impl Rng, mean: Bytes, shape: f64) -> Bytes {
    let least = mean.as_f64() * (shape - 1.0) / shape;
    let size = least / libm::pow(unit(rng), 1.0 / shape);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    Bytes((size.min(mean.as_f64() * 1e9) as u64).max(1))
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn draws_have_the_given_means() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let n = 200_000u32;
        let sum: f64 =
            (0..n).map(|_| exponential(&mut rng, Span::from_millis(40)).as_secs_f64()).sum();
        assert!((sum / f64::from(n) - 0.040).abs() < 0.0005, "{sum}");
        let sum: f64 = (0..n).map(|_| pareto(&mut rng, Bytes(30_000), 3.0).as_f64()).sum();
        assert!((sum / f64::from(n) / 30_000.0 - 1.0).abs() < 0.02, "{sum}");
    }
}
