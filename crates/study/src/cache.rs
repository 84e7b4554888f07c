//! The results of earlier figures: some figures show several measures of the same runs.

use std::cell::RefCell;
use std::rc::Rc;

use crate::error::StudyError;
use crate::feed_trial::{FeedMeasured, FeedTrial};
use crate::sweep::SweepResults;
use crate::testbed::{Measured, Trial};

/// The runs of a study so far.
#[derive(Debug, Default)]
pub struct RunCache {
    sweeps: RefCell<Vec<CachedSweep>>,
    transfers: RefCell<Vec<CachedRuns<Trial, Measured>>>,
    feeds: RefCell<Vec<CachedRuns<FeedTrial, FeedMeasured>>>,
}

#[derive(Debug)]
struct CachedSweep {
    text: String,
    seeds: Option<u32>,
    results: Rc<SweepResults>,
}

#[derive(Debug)]
struct CachedRuns<T, M> {
    trials: Vec<T>,
    results: Rc<Vec<M>>,
}

impl RunCache {
    /// The results of a file with this text and number of seeds; `run` makes them if there are
    /// none.
    pub(crate) fn sweep(
        &self,
        text: &str,
        seeds: Option<u32>,
        run: impl FnOnce() -> Result<SweepResults, StudyError>,
    ) -> Result<Rc<SweepResults>, StudyError> {
        let is_same = |sweep: &&CachedSweep| sweep.text == text && sweep.seeds == seeds;
        if let Some(known) = self.sweeps.borrow().iter().find(is_same) {
            return Ok(Rc::clone(&known.results));
        }
        let results = Rc::new(run()?);
        let cached = CachedSweep { text: text.to_owned(), seeds, results: Rc::clone(&results) };
        self.sweeps.borrow_mut().push(cached);
        Ok(results)
    }

    /// The results of these transfers, in their order; `run` makes them if there are none.
    pub(crate) fn transfers(
        &self,
        trials: &[Trial],
        run: impl FnOnce() -> Result<Vec<Measured>, StudyError>,
    ) -> Result<Rc<Vec<Measured>>, StudyError> {
        once(&self.transfers, trials, run)
    }

    /// The results of these networks of live sources, in their order; `run` makes them if there are
    /// none.
    pub(crate) fn feeds(
        &self,
        trials: &[FeedTrial],
        run: impl FnOnce() -> Result<Vec<FeedMeasured>, StudyError>,
    ) -> Result<Rc<Vec<FeedMeasured>>, StudyError> {
        once(&self.feeds, trials, run)
    }
}

fn once<T: Clone + PartialEq, M>(
    cached: &RefCell<Vec<CachedRuns<T, M>>>,
    trials: &[T],
    run: impl FnOnce() -> Result<Vec<M>, StudyError>,
) -> Result<Rc<Vec<M>>, StudyError> {
    if let Some(known) = cached.borrow().iter().find(|known| known.trials == trials) {
        return Ok(Rc::clone(&known.results));
    }
    let results = Rc::new(run()?);
    let known = CachedRuns { trials: trials.to_vec(), results: Rc::clone(&results) };
    cached.borrow_mut().push(known);
    Ok(results)
}
