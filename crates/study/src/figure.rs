//! Papers, their figures, and the inputs that a figure is made from.

use std::path::PathBuf;
use std::rc::Rc;

use link::config::reader::read_text;
use link::config::{ConfigError, Problem};
use scenario::RunOptions;

use crate::cache::RunCache;
use crate::error::{StudyError, Unknown};
use crate::feed_trial::{FeedMeasured, FeedTrial};
use crate::gateway_trial::{GatewayMeasured, GatewayTrial};
use crate::outcome::Outcome;
use crate::parallel::{Progress, parallel};
use crate::sweep::SweepResults;
use crate::testbed::{Estimate, Experiment, Measured, Trial};

/// A paper, or a theory, and its figures.
#[derive(Debug)]
pub struct Study {
    /// The name on the command line, and of the folder under `papers/`.
    pub paper: &'static str,
    /// The title on a page.
    pub title: &'static str,
    /// A description, with the source of the expected values.
    pub about: &'static str,
    /// The figures, in the order of the paper.
    pub figures: &'static [Figure],
    /// For studies of real programs: what they run. These need a [`Testbed`](crate::Testbed) in the
    /// context.
    pub real: Option<RealRuns>,
}

/// The runs of real programs of a study.
#[derive(Clone, Copy, Debug)]
pub struct RealRuns {
    /// What one of them is called.
    pub what: &'static str,
    /// Whether they move files, whose sizes and paths may be chosen.
    pub moves_files: bool,
    /// The scale of sizes relative to the paper, if no other one is asked for; `None` if there are
    /// no sizes.
    pub scale: Option<f64>,
    /// Whether some of them are enough for a trial.
    pub has_trial: bool,
    /// Estimates the time of some figures.
    pub estimate: Estimator,
}

/// Estimates the real runs of some figures of a study.
pub type Estimator = fn(&Context, &[&'static Figure]) -> Result<Estimate, StudyError>;

/// One figure, or one claim without a picture.
#[derive(Debug)]
pub struct Figure {
    /// The name on the command line, and of the files in the output.
    pub name: &'static str,
    /// The title on a page.
    pub title: &'static str,
    /// The expected result, with its reason.
    pub about: &'static str,
    /// The input files, at least one.
    pub files: &'static [File],
    /// Makes the figure.
    pub make: fn(&Lab<'_>) -> Result<Outcome, StudyError>,
}

/// A file of `papers/`, as it is built in.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The name in the folder of the paper.
    pub name: &'static str,
    /// The contents.
    pub text: &'static str,
}

impl Study {
    /// The figure of this name.
    ///
    /// # Errors
    /// If the paper has no such figure.
    pub fn figure(&self, name: &str) -> Result<&'static Figure, Unknown> {
        let found = self.figures.iter().find(|figure| figure.name == name);
        found.ok_or_else(|| {
            Unknown::new("figure", name, self.figures.iter().map(|figure| figure.name))
        })
    }
}

/// The options for making figures.
#[derive(Clone, Debug)]
pub struct Context {
    /// A folder with edited files `PAPER/FILE`, which replace built-in ones.
    pub papers: Option<PathBuf>,
    /// The number of seeds; `None` for that of the files.
    pub seeds: Option<u32>,
    /// The number of parallel runs; results do not depend on it.
    pub jobs: usize,
    /// The options of real transfers.
    pub experiment: Experiment,
}

/// The inputs of a figure's function.
pub struct Lab<'a> {
    /// The options.
    pub context: &'a Context,
    /// Name (for messages) and text of each file of the figure, in the figure's order.
    pub files: Vec<(String, String)>,
    /// Called after each run.
    pub progress: Progress<'a>,
    /// The runs of other figures.
    pub cache: &'a RunCache,
}

impl<'a> Lab<'a> {
    /// Reads the files of the figure.
    ///
    /// # Errors
    /// If an edited one cannot be read.
    pub fn new(
        context: &'a Context,
        study: &Study,
        figure: &Figure,
        progress: Progress<'a>,
        cache: &'a RunCache,
    ) -> Result<Lab<'a>, StudyError> {
        // The folder of all papers, or that of this one, as `--out` makes it.
        let has_files =
            |folder: &PathBuf| figure.files.iter().any(|f| folder.join(f.name).exists());
        let folder = context.papers.as_ref().map(|papers| {
            let own = papers.join(study.paper);
            if !own.is_dir() && has_files(papers) { papers.clone() } else { own }
        });
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(StudyError::NoPapers(folder.clone()));
        }
        let read = |file: &File| match folder.as_ref().map(|folder| folder.join(file.name)) {
            Some(path) if path.exists() => {
                let name = path.display().to_string();
                match read_text(&path) {
                    Ok(text) => Ok((name, text)),
                    Err(error) => {
                        let problem = Problem::Read(error);
                        Err(ConfigError { file: name, line: None, key: String::new(), problem }
                            .into())
                    }
                }
            }
            _ => Ok((format!("papers/{}/{}", study.paper, file.name), file.text.to_owned())),
        };
        let files = figure.files.iter().map(read).collect::<Result<_, StudyError>>()?;
        Ok(Lab { context, files, progress, cache })
    }

    /// Runs the scenario file `number` of the figure, unless an earlier figure did.
    ///
    /// # Errors
    /// If the file is not valid.
    ///
    /// # Panics
    /// If the figure has no such file.
    pub fn sweep(
        &self,
        number: usize,
        options: RunOptions,
    ) -> Result<Rc<SweepResults>, StudyError> {
        let (file, text) = &self.files[number];
        let (seeds, jobs) = (self.context.seeds, self.context.jobs);
        let run = || SweepResults::run(file, text, seeds, jobs, options, self.progress);
        if options.series { run().map(Rc::new) } else { self.cache.sweep(text, seeds, run) }
    }

    /// Runs real transfers in this order, unless an earlier figure did.
    ///
    /// # Errors
    /// If there is no testbed, or a transfer failed.
    pub(crate) fn transfer(&self, trials: &[Trial]) -> Result<Rc<Vec<Measured>>, StudyError> {
        let Context { experiment, jobs, .. } = self.context;
        self.cache.transfers(trials, || {
            experiment.run(*jobs, trials, self.progress, |testbed, trial| testbed.run(trial))
        })
    }

    /// Runs networks of live sources in this order, unless an earlier figure did.
    ///
    /// # Errors
    /// If there is no testbed, or a run failed.
    pub(crate) fn feed(&self, trials: &[FeedTrial]) -> Result<Rc<Vec<FeedMeasured>>, StudyError> {
        let Context { experiment, jobs, .. } = self.context;
        self.cache.feeds(trials, || {
            experiment.run(*jobs, trials, self.progress, |testbed, trial| testbed.feed(trial))
        })
    }

    /// Runs scenario files with real hosts and gateways, but those that an earlier figure ran.
    ///
    /// # Errors
    /// If there is no testbed, or a run failed.
    pub(crate) fn gateways(
        &self,
        trials: &[GatewayTrial],
    ) -> Result<Vec<GatewayMeasured>, StudyError> {
        let Context { experiment, jobs, .. } = self.context;
        self.cache.gateways(true, trials, |missing| {
            experiment.run(*jobs, missing, self.progress, |testbed, trial| testbed.gateways(trial))
        })
    }

    /// The same in the simulator.
    ///
    /// # Errors
    /// If a file is not valid.
    pub(crate) fn simulated_gateways(
        &self,
        trials: &[GatewayTrial],
    ) -> Result<Vec<GatewayMeasured>, StudyError> {
        self.cache.gateways(false, trials, |missing| {
            let run = |index: usize| missing[index].simulated();
            parallel(self.context.jobs, missing.len(), self.progress, run).into_iter().collect()
        })
    }
}
