//! All combinations of a sweep's values, with all seeds, over all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use units::Seed;

use crate::ScenarioError;
use crate::file::{Document, Scenario, Setting};
use crate::run::{Run, RunOptions};

/// One run to be done.
#[derive(Clone, Debug)]
pub struct Job {
    /// The values of the sweep.
    pub point: Vec<Setting>,
    /// The seed.
    pub seed: Seed,
    scenario: usize,
}

/// Every run that a file asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    scenarios: Vec<Scenario>,
    jobs: Vec<Job>,
}

impl Plan {
    /// The runs of a file with some of its values set, with as many seeds as it says or `runs`. A
    /// sweep over a value that is set is not made.
    ///
    /// # Errors
    /// If a combination makes no sense. That a topology leads nowhere is told by the first run if
    /// it is the only combination, or the first.
    pub fn new(
        document: &Document,
        settings: &[Setting],
        runs: Option<u32>,
    ) -> Result<Plan, ScenarioError> {
        let mut points: Vec<Vec<Setting>> = Vec::new();
        for mut point in document.points() {
            point.retain(|swept| settings.iter().all(|setting| setting.key != swept.key));
            if !points.contains(&point) {
                points.push(point);
            }
        }
        let mut plan = Plan { scenarios: Vec::new(), jobs: Vec::new() };
        for point in points {
            let all: Vec<Setting> = point.iter().chain(settings).cloned().collect();
            let scenario = document.scenario(&all)?;
            if !plan.scenarios.is_empty() {
                // A topology that leads nowhere is found before hours of other runs; the first
                // point's run comes at once.
                scenario.build(scenario.seed)?;
            }
            for n in 0..u64::from(runs.unwrap_or(scenario.runs)) {
                let seed = Seed(scenario.seed.0.wrapping_add(n));
                plan.jobs.push(Job { point: point.clone(), seed, scenario: plan.scenarios.len() });
            }
            plan.scenarios.push(scenario);
        }
        Ok(plan)
    }

    /// The runs, in the order in which their results are to be read.
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// The scenario of a run.
    #[must_use]
    pub fn scenario(&self, job: &Job) -> &Scenario {
        &self.scenarios[job.scenario]
    }

    /// Does the runs that `wanted` says, by `threads` at a time, and hands each result over as it
    /// comes, with its job's number. `done` stops it by returning false.
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
                            .expect("nobody panics while holding this")
                            .get_or_insert(error);
                    }
                }
            }
        };
        match threads.min(self.jobs.len()) {
            // The memory that reading the file took is this thread's to use again.
            0 | 1 => work(),
            // Each begins with a heap of its own. In this thread's, what one simulation writes all
            // the time came to lie in one line of the processor's cache with what another does, and
            // both took up to 1.7 times as long.
            threads => std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(work);
                }
            }),
        }
        failure.into_inner().expect("all threads have ended").map_or(Ok(()), Err)
    }
}
