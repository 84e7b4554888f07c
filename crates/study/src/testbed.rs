//! Experiments with real programs: what is to be carried over which network, and what was measured.
//!
//! A study of real transfers says what is to be run; whoever has namespaces and sockets runs it. So
//! this crate needs neither.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use link::config::Network;
use units::{Bytes, Rate};

use crate::error::StudyError;
use crate::parallel::{Progress, parallel};

/// Runs transfers over emulated networks, in real time.
pub trait Testbed: fmt::Debug + Send + Sync {
    /// Runs one and measures it. Only what counts is returned: a run that the testbed itself
    /// disturbed is repeated. Called by several threads.
    ///
    /// # Errors
    /// If there is no result; no further transfer is asked for then.
    fn run(&self, trial: &Trial) -> Result<Measured, StudyError>;

    /// Why the kernel's Multipath TCP cannot be measured here, if so.
    fn no_mptcp(&self) -> Option<&str>;
}

/// One transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Over which network; its schedules fit the amount.
    pub network: Network,
    /// How much.
    pub bytes: Bytes,
    /// By what.
    pub carrier: Carrier,
}

/// What carries a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Our own program.
    Ours {
        /// The block scheduler's name.
        scheduler: &'static str,
        /// What the paths are said to carry, in the links' order; empty if that is to be measured.
        known: Vec<Rate>,
    },
    /// The kernel's Multipath TCP.
    Mptcp {
        /// The subflows' congestion control.
        congestion_control: &'static str,
    },
}

/// What became of a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// From the first connection attempt to the sender's knowledge that the receiver has
    /// everything.
    pub seconds: f64,
    /// When the last byte arrived that each path was the first to bring, by the receiver's clock:
    /// the path's name and seconds. Empty for what does not tell.
    pub finished: Vec<(String, f64)>,
    /// What was sent more than once.
    pub repeated: Bytes,
    /// How many times it was run until a run counted.
    pub attempts: u32,
}

impl Measured {
    /// How long the first path to finish waited for the last, in seconds.
    #[must_use]
    pub fn idle(&self) -> Option<f64> {
        let ends = || self.finished.iter().map(|(_, at)| *at);
        let first = ends().fold(f64::INFINITY, f64::min);
        (!self.finished.is_empty()).then(|| ends().fold(f64::NEG_INFINITY, f64::max) - first)
    }
}

/// How experiments are to be made.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What runs them; without it there is none.
    pub testbed: Option<Arc<dyn Testbed>>,
    /// Files and moments of change are this share of the paper's.
    pub scale: f64,
    /// Files of which size, before scaling.
    pub sizes: Sizes,
}

/// Which of the paper's files are transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// The first.
    #[default]
    First,
    /// All.
    All,
    /// These, whatever the paper has.
    These(Vec<Bytes>),
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment { testbed: None, scale: 0.1, sizes: Sizes::First }
    }
}

impl Experiment {
    /// Runs everything in this order, `jobs` at a time.
    ///
    /// # Errors
    /// If there is no testbed, or one of the transfers failed.
    pub(crate) fn run(
        &self,
        jobs: usize,
        trials: &[Trial],
        progress: Progress<'_>,
    ) -> Result<Vec<Measured>, StudyError> {
        let testbed = self.testbed.as_ref().ok_or(StudyError::NoTestbed)?;
        let failed = AtomicBool::new(false);
        let results = parallel(jobs, trials.len(), progress, |index| {
            if failed.load(Ordering::Relaxed) {
                return None;
            }
            let result = testbed.run(&trials[index]);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            Some(result)
        });
        results.into_iter().flatten().collect()
    }
}

/// What a study of real transfers is going to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// How many transfers.
    pub transfers: usize,
    /// How long they take together, one after the other, in seconds.
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
