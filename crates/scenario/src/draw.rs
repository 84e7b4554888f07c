//! Random draws, the same on every machine.

use rand_core::Rng;
use units::{Span, Time};

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

/// A number from 0 to `count` (exclusive).
pub(crate) fn index(rng: &mut impl Rng, count: usize) -> usize {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "fewer than 2^52, and from 0 to less than their number"
    )]
    let at = ((1.0 - unit(rng)) * count as f64) as usize;
    at
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
    }
}
