//! How evenly flows share, over time.

use std::collections::HashMap;
use std::sync::Arc;

use units::{Bytes, Span, Time};

use crate::build::Built;
use crate::file::FlowSpec;
use crate::flow_state::{arrived, has_ended};

/// The groups of the flows of a scenario.
pub(crate) struct Groups {
    /// By number, in the order in which the file has them.
    pub(crate) names: Vec<Arc<str>>,
    /// By flow: the number of its group.
    pub(crate) of: Vec<u32>,
}

impl Groups {
    pub(crate) fn new(flows: &[FlowSpec]) -> Groups {
        let mut numbers: HashMap<&Arc<str>, u32> = HashMap::new();
        let mut names = Vec::new();
        let number = |flow: &FlowSpec, names: &mut Vec<Arc<str>>, next: u32| {
            names.push(Arc::clone(&flow.group));
            next
        };
        let mut of = Vec::with_capacity(flows.len());
        for flow in flows {
            let next = u32::try_from(numbers.len()).expect("fewer than 2^32 flows");
            let group =
                *numbers.entry(&flow.group).or_insert_with(|| number(flow, &mut names, next));
            of.push(group);
        }
        Groups { names, of }
    }
}

/// Sums of one group, or of all flows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    /// Adds the share of a flow.
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    /// Jain's fairness index: (Σx)² / (n Σx²); `None` if all shares are zero.
    pub(crate) fn jain(self) -> Option<f64> {
        (self.squares > 0.0).then(|| self.sum * self.sum / (self.count * self.squares))
    }
}

/// Jain's index over the flows that live in each interval.
pub(crate) struct Shares {
    starts: Vec<Time>,
    before: Vec<Bytes>,
    had_ended: Vec<bool>,
    since: Span,
    /// By group, and of all flows at the end, as of the last interval.
    pub(crate) sums: Vec<Sums>,
}

impl Shares {
    pub(crate) fn new(built: &Built, groups: &Groups) -> Shares {
        Shares {
            starts: built.flows.iter().map(|ends| ends.start).collect(),
            before: vec![Bytes::ZERO; built.flows.len()],
            had_ended: vec![false; built.flows.len()],
            since: Span::ZERO,
            sums: vec![Sums::default(); groups.names.len() + 1],
        }
    }

    /// The starts of the flows.
    pub(super) fn starts(&self) -> &[Time] {
        &self.starts
    }

    /// Ends an interval at `at`; returns its begin.
    pub(crate) fn take(&mut self, built: &Built, groups: &Groups, at: Span) -> Span {
        let seconds = (at - self.since).as_secs_f64();
        let all = self.sums.len() - 1;
        self.sums.fill(Sums::default());
        for (index, ends) in built.flows.iter().enumerate() {
            let arrived = arrived(built, ends);
            if self.starts[index] < Time::ZERO + at && !self.had_ended[index] {
                let share = (arrived - self.before[index]).as_f64() / seconds;
                self.sums[groups.of[index] as usize].add(share);
                self.sums[all].add(share);
            }
            self.before[index] = arrived;
            self.had_ended[index] = has_ended(built, ends);
        }
        std::mem::replace(&mut self.since, at)
    }
}

/// The means of [`Shares`] over a window.
pub(crate) struct ShareMeans {
    /// By group, and of all flows at the end: the sum of the indices, and their number.
    sums: Vec<(f64, f64)>,
}

impl ShareMeans {
    pub(crate) fn new(groups: &Groups) -> ShareMeans {
        ShareMeans { sums: vec![(0.0, 0.0); groups.names.len() + 1] }
    }

    pub(crate) fn add(&mut self, sums: &[Sums]) {
        for (mean, jain) in self.sums.iter_mut().zip(sums.iter().map(|sums| sums.jain())) {
            if let Some(jain) = jain {
                mean.0 += jain;
                mean.1 += 1.0;
            }
        }
    }

    /// The means, by group, and of all flows at the end.
    pub(crate) fn means(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        self.sums.iter().map(|(sum, count)| (*count > 0.0).then(|| sum / count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jain(values: &[f64]) -> Option<f64> {
        let mut sums = Sums::default();
        for value in values {
            sums.add(*value);
        }
        sums.jain()
    }

    #[test]
    fn jains_index() {
        let is = |values: &[f64], wanted: f64| {
            (jain(values).expect("something flows") - wanted).abs() < 1e-12
        };
        assert!(is(&[1.0, 1.0, 1.0, 1.0], 1.0));
        assert!(is(&[5.0, 0.0, 0.0, 0.0], 0.25));
        // Chiu and Jain's own example of shares 1, 3, 5.
        assert!(is(&[1.0, 3.0, 5.0], 81.0 / 105.0));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
