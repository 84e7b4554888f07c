//! Random quantities of workloads: sizes, intervals, think times.

mod empirical;

use std::f64::consts::TAU;
use std::sync::Arc;

use rand_core::Rng;
use units::{Bytes, Span};

use crate::draw::unit;

pub use empirical::{Empirical, EmpiricalError, EmpiricalProblem};

/// The distribution of a quantity: of sizes in bytes, of times in seconds.
///
/// A draw is the inverse of the distribution function at a uniform number, with the functions of
/// `libm`, so that it has the same bits on every machine. Those of the platform differ in the last
/// place, and a library of distributions calls them wherever another crate enables its `std`.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Always this value.
    Constant(f64),
    /// Uniform between two values.
    Uniform {
        /// The least value.
        from: f64,
        /// The largest value.
        to: f64,
    },
    /// Exponential.
    Exponential {
        /// The mean.
        mean: f64,
    },
    /// Pareto: a value above x has the probability (least / x)^shape. A draw is at most a thousand
    /// million means.
    Pareto {
        /// The least value.
        least: f64,
        /// The shape: with 1 or less there is no mean, with 2 or less no variance.
        shape: f64,
    },
    /// A Pareto distribution on the condition that the value is at most `most`.
    BoundedPareto {
        /// The least value, above zero.
        least: f64,
        /// The largest value, above the least.
        most: f64,
        /// The shape of the unbounded distribution.
        shape: f64,
    },
    /// Log-normal: the logarithm has a normal distribution.
    Lognormal {
        /// The median.
        median: f64,
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
    /// Given by points of its distribution function.
    Empirical(Arc<Empirical>),
}

/// The largest draw of a Pareto distribution, in means.
const MOST_MEANS: f64 = 1e9;

impl Distribution {
    /// A value.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> f64 {
        match *self {
            Distribution::Constant(value) => value,
            Distribution::Lognormal { median, sigma } => {
                // Box and Muller's method.
                let radius = libm::sqrt(-2.0 * libm::log(unit(rng)));
                median * libm::exp(sigma * radius * libm::cos(TAU * unit(rng)))
            }
            _ => self.exceeded_by(unit(rng)),
        }
    }

    /// The value that is exceeded with this probability, above 0 and at most 1. Not of log-normal
    /// distributions.
    fn exceeded_by(&self, p: f64) -> f64 {
        match self {
            Distribution::Constant(value) => *value,
            Distribution::Uniform { from, to } => to - (to - from) * p,
            Distribution::Exponential { mean } => -libm::log(p) * mean,
            Distribution::Pareto { least, shape } => {
                let mean = self.mean();
                let most = if mean.is_finite() { mean * MOST_MEANS } else { least * MOST_MEANS };
                (least / libm::pow(p, 1.0 / shape)).min(most)
            }
            Distribution::BoundedPareto { least, most, shape } => {
                let beyond = libm::pow(least / most, *shape);
                let p = beyond + (1.0 - beyond) * p;
                (least / libm::pow(p, 1.0 / shape)).min(*most)
            }
            Distribution::Lognormal { .. } => unreachable!("it takes two uniform numbers"),
            Distribution::Empirical(points) => points.quantile(1.0 - p),
        }
    }

    /// The mean; infinite if there is none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match *self {
            Distribution::Constant(value) => value,
            Distribution::Uniform { from, to } => f64::midpoint(from, to),
            Distribution::Exponential { mean } => mean,
            Distribution::Pareto { least, shape } if shape > 1.0 => least * shape / (shape - 1.0),
            Distribution::Pareto { .. } => f64::INFINITY,
            Distribution::BoundedPareto { least, most, shape } => {
                // The integral of x^-shape from least to most.
                let exponent = 1.0 - shape;
                let integral = if exponent.abs() < 1e-9 {
                    libm::log(most / least)
                } else {
                    (libm::pow(most, exponent) - libm::pow(least, exponent)) / exponent
                };
                let beyond = libm::pow(least / most, shape);
                shape * libm::pow(least, shape) * integral / (1.0 - beyond)
            }
            Distribution::Lognormal { median, sigma } => median * libm::exp(sigma * sigma / 2.0),
            Distribution::Empirical(ref points) => points.mean(),
        }
    }

    /// A value in whole bytes, rounded down; at least one, unless it is constant.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    pub(crate) fn draw_bytes(&self, rng: &mut impl Rng) -> Bytes {
        let bytes = self.draw(rng) as u64;
        let is_constant = matches!(self, Distribution::Constant(_));
        Bytes(if is_constant { bytes } else { bytes.max(1) })
    }

    /// A value as a time, rounded to nanoseconds; at least one, so that time advances.
    pub(crate) fn draw_span(&self, rng: &mut impl Rng) -> Span {
        Span::from_secs_f64(self.draw(rng)).max(Span::from_nanos(1))
    }

    /// The Pareto distribution with this mean and `shape` above 1.
    pub(crate) fn pareto(mean: f64, shape: f64) -> Distribution {
        Distribution::Pareto { least: mean * (shape - 1.0) / shape, shape }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const DRAWS: usize = 200_000;

    fn draws(distribution: &Distribution) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut draws: Vec<f64> = (0..DRAWS).map(|_| distribution.draw(&mut rng)).collect();
        draws.sort_by(f64::total_cmp);
        draws
    }

    #[expect(clippy::cast_precision_loss, reason = "few draws")]
    fn mean(values: impl Iterator<Item = f64>) -> f64 {
        values.sum::<f64>() / DRAWS as f64
    }

    fn empirical(text: &str) -> Distribution {
        Distribution::Empirical(Arc::new(Empirical::parse(text, 1.0).expect("it is valid")))
    }

    /// Each with its mean, its second moment (`None`: it has none, or a sample does not show it)
    /// and three quantiles, all worked out by hand.
    #[test]
    fn moments_and_quantiles_are_those_of_the_formulas() {
        type Case = (Distribution, f64, Option<f64>, [(f64, f64); 3]);
        let ln2 = core::f64::consts::LN_2;
        let cases: [Case; 7] = [
            (Distribution::Constant(7.0), 7.0, Some(49.0), [(0.1, 7.0), (0.5, 7.0), (0.9, 7.0)]),
            (
                Distribution::Uniform { from: 2.0, to: 6.0 },
                4.0,
                Some(16.0 + 16.0 / 12.0),
                [(0.25, 3.0), (0.5, 4.0), (0.75, 5.0)],
            ),
            (
                Distribution::Exponential { mean: 3.0 },
                3.0,
                Some(18.0),
                [(0.5, 3.0 * ln2), (0.75, 6.0 * ln2), (0.875, 9.0 * ln2)],
            ),
            (
                Distribution::Pareto { least: 2.0, shape: 3.0 },
                3.0,
                Some(12.0),
                [(0.5, 2.0 * 2f64.cbrt()), (0.875, 4.0), (0.999, 20.0)],
            ),
            (
                // Conditional on at most 8: the quantile p is at 1 - p (1 - (1/4)^2).
                Distribution::BoundedPareto { least: 2.0, most: 8.0, shape: 2.0 },
                3.2,
                Some(4.0 * 2.0 * (8f64 / 2.0).ln() / (15.0 / 16.0)),
                [
                    (0.8, 4.0),
                    (0.5, 2.0 / (1.0f64 - 15.0 / 32.0).sqrt()),
                    (0.95, 8.0 / 1.75f64.sqrt()),
                ],
            ),
            (
                // The quartile of the normal distribution is 0.67449.
                Distribution::Lognormal { median: 5.0, sigma: 0.5 },
                5.0 * (0.125f64).exp(),
                Some(25.0 * (0.5f64).exp()),
                [
                    (0.25, 5.0 * (-0.337_245f64).exp()),
                    (0.5, 5.0),
                    (0.75, 5.0 * (0.337_245f64).exp()),
                ],
            ),
            (
                empirical("10 0.2\n20 0.6\n100 1\n"),
                0.2 * 10.0 + 0.4 * 15.0 + 0.4 * 60.0,
                Some(0.2 * 100.0 + 0.4 * (700.0 / 3.0) + 0.4 * (12_400.0 / 3.0)),
                [(0.1, 10.0), (0.4, 15.0), (0.8, 60.0)],
            ),
        ];
        for (distribution, first, second, quantiles) in cases {
            let close = |found: f64, wanted: f64, within: f64, what: &str| {
                let apart = (found / wanted - 1.0).abs();
                assert!(apart < within, "{distribution:?}: {what} {found}, not {wanted}");
            };
            let draws = draws(&distribution);
            close(distribution.mean(), first, 1e-9, "mean by formula");
            close(mean(draws.iter().copied()), first, 0.01, "mean");
            if let Some(second) = second {
                close(mean(draws.iter().map(|x| x * x)), second, 0.05, "second moment");
            }
            for (p, wanted) in quantiles {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "an index of a draw"
                )]
                let found = draws[(p * DRAWS as f64) as usize];
                close(found, wanted, 0.02, &format!("quantile {p}"));
            }
        }
    }

    #[test]
    fn a_bounded_pareto_with_shape_one_has_its_mean() {
        let shape_one = Distribution::BoundedPareto { least: 1.0, most: 100.0, shape: 1.0 };
        let near = Distribution::BoundedPareto { least: 1.0, most: 100.0, shape: 1.0 + 1e-6 };
        assert!((shape_one.mean() - 100f64.ln() / 0.99).abs() < 1e-9, "{}", shape_one.mean());
        assert!((near.mean() / shape_one.mean() - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_pareto_without_a_mean_is_bounded_too() {
        let wild = Distribution::Pareto { least: 1.0, shape: 0.1 };
        assert!(wild.mean().is_infinite());
        assert!(draws(&wild).last().is_some_and(|most| *most <= 1e9));
    }

    /// The same bits on every machine.
    #[test]
    fn draws_are_these_bits() {
        let all = [
            Distribution::Uniform { from: 2.0, to: 6.0 },
            Distribution::Exponential { mean: 3.0 },
            Distribution::Pareto { least: 2.0, shape: 1.3 },
            Distribution::BoundedPareto { least: 2.0, most: 800.0, shape: 1.3 },
            Distribution::Lognormal { median: 5.0, sigma: 0.5 },
            empirical("10 20\n20 60\n100 100\n"),
        ];
        let mut hash: u64 = 0;
        for distribution in &all {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
            for _ in 0..1_000 {
                hash = hash.rotate_left(5) ^ distribution.draw(&mut rng).to_bits();
            }
        }
        assert_eq!(hash, 0xa3c6_c9ce_3ee1_b24e, "{hash:#x}");
    }
}
