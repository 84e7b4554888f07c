//! Experiments with real programs: the runs to make, and their results.
//!
//! A study describes its transfers, its networks of live sources ([`FeedTrial`]), or its networks
//! of hosts and gateways ([`GatewayTrial`]); the caller provides a [`Testbed`] that runs them. This
//! crate itself needs no namespaces and no sockets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use link::config::Network;
use units::{Bytes, Rate};

use crate::error::StudyError;
use crate::feed_trial::{FeedMeasured, FeedTrial};
use crate::gateway_trial::{GatewayMeasured, GatewayTrial};
use crate::parallel::{Progress, parallel};

/// Runs transfers over emulated networks, in real time.
pub trait Testbed: fmt::Debug + Send + Sync {
    /// Runs a transfer and measures it. A run that the testbed itself disturbed is repeated. Called
    /// by several threads.
    ///
    /// # Errors
    /// If there is no result; no further transfer is run then.
    fn run(&self, trial: &Trial) -> Result<Measured, StudyError>;

    /// Runs live sources over relays. A run that the testbed itself disturbed is repeated. Called
    /// by several threads.
    ///
    /// # Errors
    /// If there is no result; no further run is made then.
    fn feed(&self, trial: &FeedTrial) -> Result<FeedMeasured, StudyError>;

    /// Runs a scenario file with real hosts and gateways. A run that the testbed itself disturbed
    /// is repeated. Called by several threads.
    ///
    /// # Errors
    /// If there is no result; no further run is made then.
    fn gateways(&self, trial: &GatewayTrial) -> Result<GatewayMeasured, StudyError>;

    /// The reason why the kernel's Multipath TCP cannot be measured here, if any.
    fn no_mptcp(&self) -> Option<&str>;
}

/// One transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The network; its schedules fit the amount of data.
    pub network: Network,
    /// The size of the file.
    pub bytes: Bytes,
    /// The sender.
    pub carrier: Carrier,
}

/// The program or protocol that transfers a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Our own program.
    Ours {
        /// The block scheduler's name.
        scheduler: &'static str,
        /// The given rates of the paths, in the order of the links; empty if they are measured.
        known: Vec<Rate>,
    },
    /// The kernel's Multipath TCP.
    Mptcp {
        /// The subflows' congestion control.
        congestion_control: &'static str,
    },
}

/// The result of a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The time from the first connection attempt until the sender knows that the receiver has
    /// everything.
    pub seconds: f64,
    /// For each path, its name and the arrival of the last byte that it delivered first, in seconds
    /// of the receiver's clock. Empty if unknown.
    pub finished: Vec<(String, f64)>,
    /// Bytes sent more than once.
    pub repeated: Bytes,
    /// The number of runs, including disturbed ones.
    pub attempts: u32,
}

impl Measured {
    /// The time between the end of the first path and the end of the last, in seconds.
    #[must_use]
    pub fn idle(&self) -> Option<f64> {
        let ends = || self.finished.iter().map(|(_, at)| *at);
        let first = ends().fold(f64::INFINITY, f64::min);
        (!self.finished.is_empty()).then(|| ends().fold(f64::NEG_INFINITY, f64::max) - first)
    }
}

/// The options of experiments.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The testbed; without it there are no experiments.
    pub testbed: Option<Arc<dyn Testbed>>,
    /// The scale of sizes and times of change, relative to the paper.
    pub scale: f64,
    /// The file sizes, before scaling.
    pub sizes: Sizes,
    /// Whether a trial is enough: of a study of live sources the first case, of gateways the first
    /// set of paths.
    pub quick: bool,
}

/// A selection of file sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// The first size of the paper.
    #[default]
    First,
    /// All sizes of the paper.
    All,
    /// These sizes.
    These(Vec<Bytes>),
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment { testbed: None, scale: 0.1, sizes: Sizes::First, quick: false }
    }
}

impl Experiment {
    /// Makes runs in this order, `jobs` at a time; `run` makes one.
    ///
    /// # Errors
    /// If there is no testbed, or one of the runs failed.
    pub(crate) fn run<T: Sync, M: Send>(
        &self,
        jobs: usize,
        trials: &[T],
        progress: Progress<'_>,
        run: impl Fn(&dyn Testbed, &T) -> Result<M, StudyError> + Sync,
    ) -> Result<Vec<M>, StudyError> {
        let testbed = self.testbed.as_ref().ok_or(StudyError::NoTestbed)?;
        let failed = AtomicBool::new(false);
        let results = parallel(jobs, trials.len(), progress, |index| {
            if failed.load(Ordering::Relaxed) {
                return None;
            }
            let result = run(&**testbed, &trials[index]);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            Some(result)
        });
        results.into_iter().flatten().collect()
    }
}

/// An estimate of the real runs of a study.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The number of runs.
    pub runs: usize,
    /// The sum of their times, in seconds.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_between_the_first_and_the_last_end() {
        let finished = [("one", 2.0), ("two", 1.5), ("three", 1.75)]
            .map(|(name, at)| (name.to_string(), at))
            .to_vec();
        assert_eq!(Measured { finished, ..Measured::default() }.idle(), Some(0.5));
        assert_eq!(Measured::default().idle(), None);
    }
}
