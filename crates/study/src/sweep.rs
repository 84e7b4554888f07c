//! Scenario files run over all their values and seeds, and what came of it.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use report::{Mean, mean};
use scenario::results::{rows, schema};
use scenario::sweep::Plan;
use scenario::{Document, Looks, Run};

use crate::error::StudyError;
use crate::lab::Lab;
use crate::registry::Data;
use crate::sar::Trials;

/// The results of a scenario file.
#[derive(Debug)]
pub struct Swept {
    file: String,
    plan: Plan,
    results: Vec<Run>,
}

/// What came of files that were run already: some figures show several measures of the same runs.
#[derive(Debug, Default)]
pub struct Kept {
    swept: RefCell<Vec<Entry>>,
    trials: RefCell<Vec<Rc<Trials>>>,
}

#[derive(Debug)]
struct Entry {
    text: String,
    seeds: Option<u32>,
    swept: Rc<Swept>,
}

impl Kept {
    /// What came of a file with this text, run with so many seeds.
    fn find(&self, text: &str, seeds: Option<u32>) -> Option<Rc<Swept>> {
        let entries = self.swept.borrow();
        entries
            .iter()
            .find(|entry| entry.text == text && entry.seeds == seeds)
            .map(|entry| Rc::clone(&entry.swept))
    }
}

impl Kept {
    /// What real transfers took that were made already.
    pub(crate) fn trials(&self, is_it: impl Fn(&Trials) -> bool) -> Option<Rc<Trials>> {
        self.trials.borrow().iter().find(|trials| is_it(trials)).map(Rc::clone)
    }

    pub(crate) fn keep_trials(&self, trials: Rc<Trials>) {
        self.trials.borrow_mut().push(trials);
    }
}

impl Lab<'_> {
    /// Runs the scenario file `number` of the figure, unless an earlier figure did.
    ///
    /// # Errors
    /// If the file makes no sense.
    ///
    /// # Panics
    /// If the figure has no such file.
    pub fn sweep(&self, number: usize, looks: Looks) -> Result<Rc<Swept>, StudyError> {
        let (file, text) = &self.files[number];
        if let Some(swept) = self.kept.find(text, self.context.seeds).filter(|_| !looks.series) {
            return Ok(swept);
        }
        let plan = Plan::new(&Document::new(text, file)?, &[], self.context.seeds)?;
        let mut results: Vec<Option<Run>> = vec![None; plan.jobs().len()];
        let done = AtomicUsize::new(0);
        (self.progress)(0, results.len());
        let total = results.len();
        plan.run(
            self.context.jobs,
            looks,
            |_| true,
            |number, run| {
                results[number] = Some(run);
                (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, total);
                true
            },
        )?;
        let results = results.into_iter().map(|run| run.expect("all runs are done")).collect();
        let swept = Rc::new(Swept { file: file.clone(), plan, results });
        if !looks.series {
            let (text, seeds, swept) = (text.clone(), self.context.seeds, Rc::clone(&swept));
            self.kept.swept.borrow_mut().push(Entry { text, seeds, swept });
        }
        Ok(swept)
    }
}

impl Swept {
    /// The runs of those points that have these values, in the seeds' order.
    ///
    /// # Errors
    /// If there are none: the file was edited.
    pub fn runs(&self, point: &[(&str, &str)]) -> Result<Vec<&Run>, StudyError> {
        let is_it = |job: &scenario::sweep::Job| {
            point
                .iter()
                .all(|(key, value)| job.point.iter().any(|s| s.key == *key && s.value == *value))
        };
        let jobs = self.plan.jobs().iter().zip(&self.results);
        let runs: Vec<&Run> = jobs.filter(|(job, _)| is_it(job)).map(|(_, run)| run).collect();
        if runs.is_empty() {
            let wanted: Vec<String> =
                point.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            return Err(self.lacks(format!("`sweep` has no {}", wanted.join(", "))));
        }
        Ok(runs)
    }

    /// The values that the file sweeps a parameter over, in its order.
    ///
    /// # Errors
    /// If it does not.
    pub fn values(&self, key: &str) -> Result<Vec<String>, StudyError> {
        let mut values: Vec<String> = Vec::new();
        for setting in
            self.plan.jobs().iter().flat_map(|job| &job.point).filter(|setting| setting.key == key)
        {
            if !values.contains(&setting.value) {
                values.push(setting.value.clone());
            }
        }
        if values.is_empty() {
            Err(self.lacks(format!("`sweep` has no {key}")))
        } else {
            Ok(values)
        }
    }

    /// The same, as numbers.
    ///
    /// # Errors
    /// If it does not, or one is no number.
    pub fn numbers(&self, key: &str) -> Result<Vec<(String, f64)>, StudyError> {
        let number = |text: String| match text.parse() {
            Ok(number) => Ok((text, number)),
            Err(_) => Err(self.lacks(format!("`sweep.{key}` wants numbers, and '{text}' is none"))),
        };
        self.values(key)?.into_iter().map(number).collect()
    }

    /// What one measure was in the runs of a point.
    ///
    /// # Errors
    /// If there are no such runs, or nothing of that name in them.
    pub fn samples(&self, point: &[(&str, &str)], of: &Place<'_>) -> Result<Vec<f64>, StudyError> {
        self.runs(point)?.into_iter().map(|run| self.sample(run, of)).collect()
    }

    /// What one measure was in one run.
    ///
    /// # Errors
    /// If there is nothing of that name.
    pub fn sample(&self, run: &Run, of: &Place<'_>) -> Result<f64, StudyError> {
        let Place { window, scope, of, name } = *of;
        let missing = || {
            self.lacks(format!("there is no {name} of the {scope} '{of}' in the window `{window}`"))
        };
        run.measure_in(window, scope, of, name).ok_or_else(missing)
    }

    /// Its mean over the seeds.
    ///
    /// # Errors
    /// If there are no such runs, or nothing of that name in them.
    pub fn mean(&self, point: &[(&str, &str)], of: &Place<'_>) -> Result<Option<Mean>, StudyError> {
        Ok(mean(&self.samples(point, of)?))
    }

    /// How many seeds there are, and which, for notes.
    #[must_use]
    pub fn seeds(&self) -> String {
        let (mut first, mut last) = (u64::MAX, 0);
        for job in self.plan.jobs() {
            (first, last) = (first.min(job.seed.0), last.max(job.seed.0));
        }
        if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") }
    }

    /// Every measure of every run.
    #[must_use]
    pub fn data(&self) -> Data {
        let rows = rows(&self.plan, self.results.iter().map(|run| &run.measures));
        let rows =
            rows.map(|(keys, measure)| (keys, measure.name().to_owned(), measure.value)).collect();
        Data { schema: schema(&self.plan), rows }
    }

    pub(crate) fn lacks(&self, missing: impl Display) -> StudyError {
        StudyError::Lacks { file: self.file.clone(), missing: missing.to_string() }
    }
}

/// Which measure.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// In which window of time.
    pub window: &'a str,
    /// `flow`, `group`, `link` or `all`.
    pub scope: &'a str,
    /// Which of them.
    pub of: &'a str,
    /// The measure's name, one of [`scenario::MEASURES`].
    pub name: &'a str,
}

impl<'a> Place<'a> {
    /// In the window from `warmup` to the end.
    #[must_use]
    pub fn steady(scope: &'a str, of: &'a str, name: &'a str) -> Place<'a> {
        Place { window: "steady", scope, of, name }
    }
}
