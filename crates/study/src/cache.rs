//! The results of earlier figures: some figures show several measures of the same runs.

use std::cell::RefCell;
use std::rc::Rc;

use crate::error::StudyError;
use crate::feed_trial::{FeedMeasured, FeedTrial};
use crate::gateway_trial::{GatewayMeasured, GatewayTrial};
use crate::sweep::SweepResults;
use crate::testbed::{Measured, Trial};

/// The runs of a study so far.
#[derive(Debug, Default)]
pub struct RunCache {
    sweeps: RefCell<Vec<CachedSweep>>,
    transfers: RefCell<Vec<CachedRuns<Trial, Measured>>>,
    feeds: RefCell<Vec<CachedRuns<FeedTrial, FeedMeasured>>>,
    gateways: [RefCell<Vec<(GatewayTrial, GatewayMeasured)>>; 2],
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

    /// The results of these runs of gateways, in their order; `run` makes those that there are not.
    /// Real and simulated ones are apart.
    pub(crate) fn gateways(
        &self,
        is_real: bool,
        trials: &[GatewayTrial],
        run: impl FnOnce(&[GatewayTrial]) -> Result<Vec<GatewayMeasured>, StudyError>,
    ) -> Result<Vec<GatewayMeasured>, StudyError> {
        let known = &self.gateways[usize::from(is_real)];
        let find = |trial: &GatewayTrial| {
            let known = known.borrow();
            known.iter().find(|(one, _)| one == trial).map(|(_, measured)| measured.clone())
        };
        let missing: Vec<GatewayTrial> =
            trials.iter().filter(|trial| find(trial).is_none()).cloned().collect();
        let measured = run(&missing)?;
        known.borrow_mut().extend(missing.into_iter().zip(measured));
        Ok(trials.iter().map(|trial| find(trial).expect("it is known or was run")).collect())
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

#[cfg(test)]
mod tests {
    use units::Seed;

    use super::*;

    #[test]
    fn a_run_of_gateways_is_made_once() {
        let cache = RunCache::default();
        let trial = |seed| GatewayTrial {
            file: String::new(),
            text: String::new(),
            settings: Vec::new(),
            seed: Seed(seed),
        };
        let run = |is_real, seeds: &[u64], wanted: &[u64]| {
            let trials: Vec<GatewayTrial> = seeds.iter().map(|seed| trial(*seed)).collect();
            let results = cache.gateways(is_real, &trials, |missing| {
                let seeds: Vec<u64> = missing.iter().map(|trial| trial.seed.0).collect();
                assert_eq!(seeds, wanted);
                let of = |seed: u64| u32::try_from(seed).unwrap();
                let measured = |seed| GatewayMeasured { attempts: of(seed), ..Default::default() };
                Ok(seeds.into_iter().map(measured).collect())
            });
            results.unwrap().iter().map(|one| u64::from(one.attempts)).collect::<Vec<_>>()
        };
        assert_eq!(run(true, &[1, 2], &[1, 2]), [1, 2]);
        assert_eq!(run(true, &[3, 2, 1], &[3]), [3, 2, 1]);
        assert_eq!(run(false, &[1], &[1]), [1]);
    }
}
