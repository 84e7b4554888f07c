//! How long requests take.

use super::distribution::rank;
use super::float;
use crate::measures::Metric;

const REQUESTS: Metric = Metric::listed("requests");
const COMPLETION: [Metric; 4] = [
    Metric::listed("completion"),
    Metric::listed("completion_p50"),
    Metric::listed("completion_p95"),
    Metric::listed("completion_p99"),
];
const SLOWDOWN: [Metric; 4] = [
    Metric::listed("slowdown"),
    Metric::listed("slowdown_p50"),
    Metric::listed("slowdown_p95"),
    Metric::listed("slowdown_p99"),
];

/// The requests of a flow or of several that were completed in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Completions {
    /// In seconds.
    times: Vec<f64>,
    slowdowns: Vec<f64>,
}

impl Completions {
    /// Adds a request; `slowdown` is `None` if its ideal time is not known.
    pub(super) fn add(&mut self, seconds: f64, slowdown: Option<f64>) {
        self.times.push(seconds);
        self.slowdowns.extend(slowdown);
    }

    /// Adds those of another flow.
    pub(super) fn extend(&mut self, other: &Completions) {
        self.times.extend(&other.times);
        self.slowdowns.extend(&other.slowdowns);
    }

    /// The measures of a class of sizes, of which there are none too.
    pub(super) fn close_class(self, mut put: impl FnMut(Metric, f64)) {
        if self.times.is_empty() {
            put(REQUESTS, 0.0);
        }
        self.close(put);
    }

    pub(super) fn close(mut self, mut put: impl FnMut(Metric, f64)) {
        if !self.times.is_empty() {
            put(REQUESTS, float(self.times.len() as u64));
        }
        for (values, metrics) in [(&mut self.times, COMPLETION), (&mut self.slowdowns, SLOWDOWN)] {
            if values.is_empty() {
                continue;
            }
            values.sort_by(f64::total_cmp);
            let [mean, percentiles @ ..] = metrics;
            put(mean, values.iter().sum::<f64>() / float(values.len() as u64));
            for (metric, percent) in percentiles.into_iter().zip([50, 95, 99]) {
                put(metric, values[rank(values.len(), percent)]);
            }
        }
    }
}
