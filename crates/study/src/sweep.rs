//! Runs a scenario file over all values and seeds of its sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

use report::{Mean, mean};
use scenario::results::{rows, schema};
use scenario::sweep::Plan;
use scenario::{Document, FlowSeries, LinkSeries, Run, RunOptions, Scenario, Series};

use crate::error::StudyError;
use crate::outcome::Data;
use crate::parallel::Progress;

/// The most names in a message.
const MOST_NAMES: usize = 30;
/// The flows of a larger group than this are not measured one by one.
const CROWD: usize = 1_000;

/// The results of a scenario file.
#[derive(Debug)]
pub struct SweepResults {
    file: String,
    plan: Plan,
    results: Vec<Run>,
}

impl SweepResults {
    /// Runs the scenario file `file` with this text over its sweep, `jobs` runs at a time. `seeds`
    /// replaces the number of seeds of the file.
    ///
    /// # Errors
    /// If the file is not valid.
    pub(crate) fn run(
        file: &str,
        text: &str,
        seeds: Option<u32>,
        jobs: usize,
        options: RunOptions,
        progress: Progress<'_>,
    ) -> Result<SweepResults, StudyError> {
        let plan = Plan::new(&Document::new(text, file)?, &[], seeds)?;
        let total = plan.jobs().len();
        let crowds = crowds(&plan);
        let mut results: Vec<Option<Run>> = vec![None; total];
        let done = AtomicUsize::new(0);
        progress(0, total);
        plan.run(
            jobs,
            options,
            |_| true,
            |number, mut run| {
                for measures in [&mut run.measures, &mut run.arrivals] {
                    measures.retain(|one| one.scope() != "flow" || !crowds.contains(one.of));
                }
                results[number] = Some(run);
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
                true
            },
        )?;
        drop(crowds);
        let results = results.into_iter().map(|run| run.expect("all runs are done")).collect();
        Ok(SweepResults { file: file.to_owned(), plan, results })
    }

    /// The runs of the points with these values, in the order of the seeds.
    ///
    /// # Errors
    /// If an edited file has no such runs.
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

    /// The values of a swept parameter, in the order of the file.
    ///
    /// # Errors
    /// If the parameter is not swept.
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

    /// The values of a swept parameter, as text and as numbers.
    ///
    /// # Errors
    /// If the parameter is not swept, or a value is not a number.
    pub fn numbers(&self, key: &str) -> Result<Vec<(String, f64)>, StudyError> {
        let number = |text: String| match text.parse() {
            Ok(number) => Ok((text, number)),
            Err(_) => Err(self.lacks(format!("`sweep.{key}` wants numbers, and '{text}' is none"))),
        };
        self.values(key)?.into_iter().map(number).collect()
    }

    /// A measure in the runs of a point.
    ///
    /// # Errors
    /// If there are no such runs, or the measure is missing.
    pub fn samples(
        &self,
        point: &[(&str, &str)],
        of: &MeasureKey<'_>,
    ) -> Result<Vec<f64>, StudyError> {
        self.runs(point)?.into_iter().map(|run| self.sample(run, of)).collect()
    }

    /// A measure in one run.
    ///
    /// # Errors
    /// If the measure is missing.
    pub fn sample(&self, run: &Run, of: &MeasureKey<'_>) -> Result<f64, StudyError> {
        let MeasureKey { window, scope, of, name } = *of;
        let missing = || {
            let is_alike = |m: &scenario::Measure<'_>| m.window == window && m.scope() == scope;
            let mut known: Vec<String> = run
                .measures
                .iter()
                .filter(is_alike)
                .map(|m| format!("{} of '{}'", m.name(), m.of))
                .collect();
            let more = known.len().saturating_sub(MOST_NAMES);
            known.truncate(MOST_NAMES);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            self.lacks(format!(
                "there is no {name} of the {scope} '{of}' in the window `{window}`; there are: \
                 {}{more}",
                known.join(", ")
            ))
        };
        run.measure_in(window, scope, of, name).ok_or_else(missing)
    }

    /// The mean of a measure over the seeds of a point.
    ///
    /// # Errors
    /// If there are no such runs, or the measure is missing.
    pub fn mean(
        &self,
        point: &[(&str, &str)],
        of: &MeasureKey<'_>,
    ) -> Result<Option<Mean>, StudyError> {
        Ok(mean(&self.samples(point, of)?))
    }

    /// The times of the samples of one run in seconds, and a direction of a link (`name/up`) over
    /// them.
    ///
    /// # Errors
    /// If there is no such link, or the runs were made without series.
    pub fn link_series<'a>(
        &'a self,
        run: &'a Run,
        of: &str,
    ) -> Result<(&'a [f64], &'a LinkSeries), StudyError> {
        let (scenario, series) = self.series(run)?;
        let mut links = scenario.links.iter().zip(&series.links);
        let found = links.find_map(|(link, both)| {
            let at = link.directions.iter().position(|name| **name == *of)?;
            Some((&*series.at, &both[at]))
        });
        found.ok_or_else(|| self.lacks(format!("there is no link '{of}'")))
    }

    /// The times of the samples of one run in seconds, and a flow, or a subflow (`name/0`), over
    /// them.
    ///
    /// # Errors
    /// If there is no such flow, or the runs were made without series.
    pub fn flow_series<'a>(
        &'a self,
        run: &'a Run,
        of: &str,
    ) -> Result<(&'a [f64], &'a FlowSeries), StudyError> {
        let (scenario, series) = self.series(run)?;
        let flows = scenario.flows.iter().map(|flow| &flow.name).zip(&series.flows);
        let subflows = series.subflows.iter().map(|(name, subflow)| (name, subflow));
        let found = flows.chain(subflows).find(|(name, _)| ***name == *of);
        let found = found.map(|(_, flow)| (&*series.at, flow));
        found.ok_or_else(|| self.lacks(format!("there is no flow '{of}'")))
    }

    /// The scenario of one of the runs, and its values over time.
    fn series<'a>(&'a self, run: &'a Run) -> Result<(&'a Scenario, &'a Series), StudyError> {
        let number = self.results.iter().position(|one| std::ptr::eq(one, run));
        let job = number.map(|number| self.plan.scenario(&self.plan.jobs()[number]));
        let found = job.zip(run.series.as_ref());
        found.ok_or_else(|| self.lacks("the run has no values over time"))
    }

    /// The seeds in words, for notes.
    #[must_use]
    pub fn seeds(&self) -> String {
        let (mut first, mut last) = (u64::MAX, 0);
        for job in self.plan.jobs() {
            (first, last) = (first.min(job.seed.0), last.max(job.seed.0));
        }
        if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") }
    }

    /// Every measure of every run, but those of single flows that arrive, or are in groups of over
    /// 1,000.
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

/// The names of the flows in large groups, of any run. Their measures one by one are not what a
/// study is about, and would take gigabytes.
fn crowds(plan: &Plan) -> BTreeSet<&str> {
    // All seeds have the same scenario.
    let mut scenarios: Vec<&Scenario> = plan.jobs().iter().map(|job| plan.scenario(job)).collect();
    scenarios.dedup_by(|a, b| std::ptr::eq(*a, *b));
    let mut crowds = BTreeSet::new();
    for scenario in scenarios {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for flow in &scenario.flows {
            groups.entry(&flow.group).or_default().push(&flow.name);
        }
        crowds.extend(groups.into_values().filter(|names| names.len() > CROWD).flatten());
    }
    crowds
}

/// The identification of a measure.
#[derive(Clone, Copy, Debug)]
pub struct MeasureKey<'a> {
    /// The window of time.
    pub window: &'a str,
    /// The kind of subject: `flow`, `group`, `link` or `all`.
    pub scope: &'a str,
    /// The name of the subject.
    pub of: &'a str,
    /// The name of the measure, from [`scenario::MEASURES`].
    pub name: &'a str,
}

impl<'a> MeasureKey<'a> {
    /// A measure in the window from `warmup` to the end.
    #[must_use]
    pub fn steady(scope: &'a str, of: &'a str, name: &'a str) -> MeasureKey<'a> {
        MeasureKey { window: "steady", scope, of, name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_flows_of_a_crowd_are_left_out() {
        let text = r#"
            name = "a crowd"
            duration = "100 ms"

            [[link]]
            name = "only"
            between = ["near", "far"]
            rate = "10 Mbit/s"
            delay = "1 ms"
            queue = "20 packets"

            [[flow]]
            name = "many*"
            count = 1001
            from = "near"
            to = "far"
            start = { from = "0 s", to = "90 ms" }

            [[flow]]
            name = "few*"
            count = 2
            from = "near"
            to = "far"
        "#;
        let options = RunOptions::default();
        let swept = SweepResults::run("crowd.toml", text, Some(1), 1, options, &|_, _| ());
        let data = swept.expect("it runs").data();
        let has = |of: &str| data.rows.iter().any(|(keys, ..)| keys.contains(&of.into()));
        assert!(has("many") && has("few1") && has("few2"), "groups and single flows");
        assert!(!has("many1") && !has("many1001"), "single flows of the crowd");
    }
}
