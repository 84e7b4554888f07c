//! Means, medians, confidence.

use std::fmt;

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean of the samples, in their unit.
    pub value: f64,
    /// Half the width of the 95 % confidence interval by Student's t; `None` for one sample.
    pub half_width: Option<f64>,
    /// The number of samples.
    pub samples: usize,
}

/// The mean of `samples` with its 95 % confidence interval, which assumes independent and about
/// normal samples; `None` without samples.
#[must_use]
pub fn mean(samples: &[f64]) -> Option<Mean> {
    if samples.is_empty() {
        return None;
    }
    let n = count(samples.len());
    let value = samples.iter().sum::<f64>() / n;
    let half_width = (samples.len() > 1).then(|| {
        let variance =
            samples.iter().map(|sample| (sample - value).powi(2)).sum::<f64>() / (n - 1.0);
        student_t(samples.len() - 1) * (variance / n).sqrt()
    });
    Some(Mean { value, half_width, samples: samples.len() })
}

/// The median of `samples`; `None` without samples.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(3);
        write!(f, "{:.precision$}", self.value)?;
        self.half_width.map_or(Ok(()), |half_width| write!(f, " ± {half_width:.precision$}"))
    }
}

/// The 97.5 % quantile of Student's t with `freedom` degrees of freedom: the usual table up to 30,
/// beyond that the first terms of the Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5),
/// which is right to four digits there.
fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    if let Some(t) = freedom.checked_sub(1).and_then(|row| TABLE.get(row)) {
        return *t;
    }
    let (z, v) = (1.959_964_f64, count(freedom));
    z + (z.powi(3) + z) / (4.0 * v)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v)
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 samples")]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_textbook_example() {
        // Five samples, standard deviation 1.5811, t = 2.776.
        let mean = mean(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((mean.value - 3.0).abs() < 1e-12);
        assert!((mean.half_width.unwrap() - 1.963).abs() < 1e-3, "{mean}");
        assert_eq!(format!("{mean:.1}"), "3.0 ± 2.0");
    }

    #[test]
    fn few_samples() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[2.0]), Some(Mean { value: 2.0, half_width: None, samples: 1 }));
        assert_eq!(format!("{:.1}", mean(&[2.0]).unwrap()), "2.0");
    }

    #[test]
    fn t_is_smooth_beyond_the_table() {
        assert!((student_t(31) - 2.0395).abs() < 1e-3);
        assert!((student_t(60) - 2.0003).abs() < 1e-3);
        assert!((student_t(1_000_000) - 1.95996).abs() < 1e-4);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
