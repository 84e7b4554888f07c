//! Runs all combinations of the values of a sweep with all seeds, in parallel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use units::Seed;

use crate::file::{Document, Problem, Scenario, Setting};
use crate::run::{Run, RunOptions};
use crate::{ScenarioError, threads};

/// All runs of a plan are in memory at once.
const MOST_RUNS: usize = 1_000_000;

/// One run of a plan.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its values of the swept parameters.
    pub point: Vec<Setting>,
    /// The seed.
    pub seed: Seed,
    scenario: usize,
}

impl Job {
    /// The index of its scenario in the plan.
    pub(crate) fn scenario_index(&self) -> usize {
        self.scenario
    }
}

/// All runs of a file.
#[derive(Clone, Debug)]
pub struct Plan {
    scenarios: Vec<Scenario>,
    jobs: Vec<Job>,
}

impl Plan {
    /// The runs of a file with some of its values set. `runs` replaces the number of seeds of the
    /// file. A parameter that is set is not swept.
    ///
    /// # Errors
    /// If a combination is not valid. A missing route in the first combination is reported by its
    /// first run instead.
    pub fn new(
        document: &Document,
        settings: &[Setting],
        runs: Option<u32>,
    ) -> Result<Plan, ScenarioError> {
        let document = document.with(settings)?;
        let mut plan = Plan { scenarios: Vec::new(), jobs: Vec::new() };
        for point in document.points() {
            let scenario = document.scenario(&point)?;
            if !plan.scenarios.is_empty() {
                // Finds missing routes now and not after hours of other runs. The first point is
                // checked by its run, which comes at once.
                scenario.build(scenario.seed)?;
            }
            let seeds = runs.unwrap_or(scenario.runs);
            if plan.jobs.len().saturating_add(seeds as usize) > MOST_RUNS {
                let problem = "wants at most a million runs, of all combinations together";
                return Err(document.error("runs", Problem::Sense(problem)).into());
            }
            for n in 0..u64::from(seeds) {
                let seed = Seed(scenario.seed.0.wrapping_add(n));
                plan.jobs.push(Job { point: point.clone(), seed, scenario: plan.scenarios.len() });
            }
            plan.scenarios.push(scenario);
        }
        Ok(plan)
    }

    /// The runs, in the order of the results.
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// The scenarios of all combinations.
    pub(crate) fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// The scenario of a run.
    #[must_use]
    pub fn scenario(&self, job: &Job) -> &Scenario {
        &self.scenarios[job.scenario]
    }

    /// Runs the jobs for which `wanted` is true, `threads` at a time. `done` is called with the
    /// number of the job and its result as soon as it is there; it returns false to stop.
    ///
    /// # Errors
    /// The first run that fails.
    ///
    /// # Panics
    /// If `done` panicked.
    pub fn run(
        &self,
        threads: usize,
        options: RunOptions,
        wanted: impl Fn(usize) -> bool + Sync,
        done: impl FnMut(usize, Run) -> bool + Send,
    ) -> Result<(), ScenarioError> {
        let next = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let done = Mutex::new(done);
        let work = || {
            while !is_over.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = self.jobs.get(number) else { return };
                if !wanted(number) {
                    continue;
                }
                match self.scenario(job).run(job.seed, options) {
                    Ok(run) => {
                        let mut done = done.lock().expect("no run panics while it holds this");
                        if !done(number, run) {
                            is_over.store(true, Ordering::Relaxed);
                        }
                    }
                    Err(error) => {
                        is_over.store(true, Ordering::Relaxed);
                        failure
                            .lock()
                            .expect("no thread panics while it holds the lock")
                            .get_or_insert(error);
                    }
                }
            }
        };
        threads::share(threads.min(self.jobs.len()), work);
        failure.into_inner().expect("all threads have ended").map_or(Ok(()), Err)
    }
}
