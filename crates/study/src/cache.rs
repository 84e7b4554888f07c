//! The results of earlier figures: some figures show several measures of the same runs.

use std::cell::RefCell;
use std::rc::Rc;

use crate::error::StudyError;
use crate::sweep::SweepResults;
use crate::testbed::{Measured, Trial};

/// The runs of a study so far.
#[derive(Debug, Default)]
pub struct RunCache {
    sweeps: RefCell<Vec<CachedSweep>>,
    transfers: RefCell<Vec<CachedTransfers>>,
}

#[derive(Debug)]
struct CachedSweep {
    text: String,
    seeds: Option<u32>,
    results: Rc<SweepResults>,
}

#[derive(Debug)]
struct CachedTransfers {
    trials: Vec<Trial>,
    results: Rc<Vec<Measured>>,
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
        if let Some(known) = self.transfers.borrow().iter().find(|known| known.trials == trials) {
            return Ok(Rc::clone(&known.results));
        }
        let results = Rc::new(run()?);
        let cached = CachedTransfers { trials: trials.to_vec(), results: Rc::clone(&results) };
        self.transfers.borrow_mut().push(cached);
        Ok(results)
    }
}
