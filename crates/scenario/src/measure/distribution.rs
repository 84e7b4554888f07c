//! Distributions of times, exact while they are small.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use units::Span;

/// A larger distribution is a histogram.
const MOST_EXACT: usize = 1 << 14;
/// The precision of a histogram: values are right to three digits.
const DIGITS: u8 = 3;
/// The binary digits by which the buckets of a table differ.
const BUCKET_DIGITS: u32 = 8;

/// A distribution of times: exact up to [`MOST_EXACT`] values, then to three digits, in a few ten
/// kilobytes for any number of values.
#[derive(Clone, Debug)]
pub(crate) struct SpanDistribution {
    sum: u128,
    max: u64,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    /// In nanoseconds, in no order.
    Exact(Vec<u64>),
    Rounded(Box<Histogram<u32>>),
}

impl Default for SpanDistribution {
    fn default() -> SpanDistribution {
        SpanDistribution { sum: 0, max: 0, values: Values::Exact(Vec::new()) }
    }
}

impl SpanDistribution {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: Span) {
        let value = value.as_nanos();
        self.sum += u128::from(value);
        self.max = self.max.max(value);
        match &mut self.values {
            Values::Exact(values) if values.len() < MOST_EXACT => values.push(value),
            Values::Exact(_) => record(self.round(), value),
            Values::Rounded(histogram) => record(histogram, value),
        }
    }

    /// Adds all values of another distribution.
    pub(crate) fn merge(&mut self, other: &SpanDistribution) {
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        match (&mut self.values, &other.values) {
            (Values::Exact(values), Values::Exact(more))
                if values.len() + more.len() <= MOST_EXACT =>
            {
                values.extend(more);
            }
            (_, Values::Exact(more)) => {
                let histogram = self.round();
                for value in more {
                    record(histogram, *value);
                }
            }
            (_, Values::Rounded(more)) => {
                self.round().add(&**more).expect("histograms grow");
            }
        }
    }

    /// The values as a histogram.
    fn round(&mut self) -> &mut Histogram<u32> {
        if let Values::Exact(values) = &self.values {
            let mut histogram = Histogram::new(DIGITS).expect("a valid precision");
            for value in values {
                record(&mut histogram, *value);
            }
            self.values = Values::Rounded(Box::new(histogram));
        }
        match &mut self.values {
            Values::Rounded(histogram) => histogram,
            Values::Exact(_) => unreachable!("see above"),
        }
    }

    /// The number of values.
    pub(crate) fn count(&self) -> u64 {
        match &self.values {
            Values::Exact(values) => values.len() as u64,
            Values::Rounded(histogram) => histogram.len(),
        }
    }

    /// The number of values in each bucket, in order of these, by the largest value that falls in
    /// the bucket; buckets without values are left out. A bucket is at most 1/128 of its values
    /// wide, for any number of them.
    pub(crate) fn buckets(&self) -> BTreeMap<u64, u64> {
        let mut buckets = BTreeMap::new();
        let mut add = |value: u64, count: u64| *buckets.entry(bucket(value)).or_insert(0) += count;
        match &self.values {
            Values::Exact(values) => values.iter().for_each(|value| add(*value, 1)),
            // Its own buckets are an eighth of these.
            Values::Rounded(histogram) => histogram
                .iter_recorded()
                .for_each(|step| add(step.value_iterated_to(), step.count_at_value().into())),
        }
        buckets
    }

    /// The mean and these percentiles, in milliseconds, and the maximum; `None` without values.
    /// Percentile `p` is the least value that `p` percent of the values do not exceed.
    pub(crate) fn summary<const N: usize>(&self, percents: [u32; N]) -> Option<DelaySummary<N>> {
        if self.count() == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "53 of its bits are enough for a mean")]
        let mean = self.sum as f64 / super::float(self.count()) / 1e6;
        let percentiles = match &self.values {
            Values::Exact(values) => {
                let mut sorted = values.clone();
                sorted.sort_unstable();
                percents.map(|percent| sorted[rank(sorted.len(), percent)])
            }
            Values::Rounded(histogram) => percents.map(|percent| {
                histogram.value_at_quantile(f64::from(percent) / 100.0).min(self.max)
            }),
        };
        let millis = |nanos| super::float(nanos) / 1e6;
        Some(DelaySummary { mean, percentiles: percentiles.map(millis), max: millis(self.max) })
    }
}

/// The largest value in the bucket of a value: of those with the same first eight binary digits.
fn bucket(value: u64) -> u64 {
    let rest = (u64::BITS - value.leading_zeros()).saturating_sub(BUCKET_DIGITS);
    value | ((1 << rest) - 1)
}

fn record(histogram: &mut Histogram<u32>, value: u64) {
    histogram.record(value).expect("a histogram grows");
}

/// What a distribution comes to, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DelaySummary<const N: usize> {
    pub(crate) mean: f64,
    pub(crate) percentiles: [f64; N],
    pub(crate) max: f64,
}

/// The index of a percentile among `count` sorted values: of the least value that `percent` of them
/// do not exceed.
pub(crate) fn rank(count: usize, percent: u32) -> usize {
    (count * percent as usize).div_ceil(100).saturating_sub(1)
}

/// The least number of packets that a queue did not exceed for `percent` of `nanos`, if it had one
/// packet for the first of `levels`, two for the next, and so on, and else none.
pub(crate) fn rank_of_time(levels: &[u64], nanos: u64, percent: u32) -> u64 {
    let above = u128::from(nanos) * u128::from(100 - percent);
    let mut longer: u128 = 0;
    for (level, time) in levels.iter().enumerate().rev() {
        longer += u128::from(*time) * 100;
        if longer > above {
            return level as u64 + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> SpanDistribution {
        let mut distribution = SpanDistribution::default();
        micros.into_iter().for_each(|value| distribution.add(Span::from_micros(value)));
        distribution
    }

    #[test]
    fn small_distributions_are_exact() {
        let summary = of((1..=100).rev()).summary([50, 95, 99]).expect("there are values");
        assert_eq!((summary.percentiles, summary.max), ([0.05, 0.095, 0.099], 0.1));
        assert!((summary.mean - 0.0505).abs() < 1e-12);
        assert_eq!(of([7]).summary([1, 50, 100]).map(|one| one.percentiles), Some([0.007; 3]));
        assert_eq!(of([]).summary([50]), None);
    }

    #[test]
    fn large_distributions_are_right_to_three_digits() {
        let many = of(1..=100_000);
        assert_eq!(many.count(), 100_000);
        let summary = many.summary([1, 50, 99]).expect("there are values");
        for (found, wanted) in summary.percentiles.into_iter().zip([1.0, 50.0, 99.0]) {
            assert!((found - wanted).abs() <= wanted * 1e-3, "{found}, not {wanted}");
        }
        assert!((summary.max - 100.0).abs() < 1e-9 && (summary.mean - 50.000_5).abs() < 1e-9);
    }

    #[test]
    fn merged_distributions_have_all_values() {
        let (small, large) = (of(1..=10), of(11..=20_000));
        let mut merged = small.clone();
        merged.merge(&of(11..=20));
        assert_eq!(merged.summary([50, 100]).map(|one| one.percentiles), Some([0.01, 0.02]));
        for (mut one, other) in [(small.clone(), &large), (large.clone(), &small)] {
            one.merge(other);
            assert_eq!(one.count(), 20_000);
            let summary = one.summary([50]).expect("there are values");
            assert!((summary.percentiles[0] - 10.0).abs() < 0.01);
            assert!((summary.mean - 10.000_5).abs() < 1e-9);
        }
    }

    #[test]
    fn buckets_are_alike_for_few_and_for_many_values() {
        assert_eq!([0, 1, 255, 256, 257, 258].map(bucket), [0, 1, 255, 257, 257, 259]);
        assert_eq!([1 << 20, u64::MAX].map(bucket), [(1 << 20) + (1 << 13) - 1, u64::MAX]);
        let (few, many) = (of((1..=100_000).step_by(10)), of(1..=100_000));
        assert!(matches!((&few.values, &many.values), (Values::Exact(_), Values::Rounded(_))));
        let (few, many) = (few.buckets(), many.buckets());
        assert_eq!([few.values().sum::<u64>(), many.values().sum()], [10_000, 100_000]);
        assert!(few.keys().all(|upto| many.contains_key(upto)));
        assert!(many.len() < 128 * 18, "{} buckets", many.len());
        let mut below = 0;
        for (upto, count) in many {
            let least = below + 1;
            below += count;
            // Exactly the values that are at most this.
            assert_eq!(below, upto.min(100_000_000) / 1_000, "up to {upto}");
            assert!(upto - least * 1_000 <= least * 1_000 / 128 + 1_000, "from {least} to {upto}");
        }
    }

    #[test]
    fn a_queue_is_weighed_by_time() {
        // Empty for 40 ns, one packet for 30, two for 20, four for 10.
        let at = |percent| rank_of_time(&[30, 20, 0, 10], 100, percent);
        let found = [0, 39, 40, 41, 70, 71, 90, 91, 100].map(at);
        assert_eq!(found, [0, 0, 0, 1, 1, 2, 2, 4, 4]);
        assert_eq!(rank_of_time(&[], 100, 99), 0);
        assert_eq!(rank_of_time(&[0, 0], 100, 100), 0);
    }
}
