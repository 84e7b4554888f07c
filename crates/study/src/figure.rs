//! Papers, their figures, and the inputs that a figure is made from.

use std::path::PathBuf;
use std::rc::Rc;

use link::config::{ConfigError, Problem};
use scenario::RunOptions;

use crate::cache::RunCache;
use crate::error::{StudyError, Unknown};
use crate::outcome::Outcome;
use crate::parallel::Progress;
use crate::sweep::SweepResults;
use crate::testbed::{Estimate, Experiment, Measured, Trial};

/// A paper, or a theory, and its figures.
#[derive(Debug)]
pub struct Study {
    /// What it is called on the command line; also its folder under `papers/`.
    pub paper: &'static str,
    /// What it is called on a page.
    pub title: &'static str,
    /// What it is about, and where what is expected comes from.
    pub about: &'static str,
    /// In the paper's order.
    pub figures: &'static [Figure],
    /// For a study of real transfers, which take the time that they take: how much some of its
    /// figures need. It wants a [`Testbed`](crate::Testbed) in the context.
    pub estimate: Option<Estimator>,
}

/// How much some figures of a study need.
pub type Estimator = fn(&Context, &[&'static Figure]) -> Result<Estimate, StudyError>;

/// One figure, or one claim without a picture.
#[derive(Debug)]
pub struct Figure {
    /// What it is called on the command line; also the name of its files in the output.
    pub name: &'static str,
    /// What it is called on a page.
    pub title: &'static str,
    /// What is to be seen, and why that is expected.
    pub about: &'static str,
    /// What it is made from, at least one file.
    pub files: &'static [File],
    /// Makes it.
    pub make: fn(&Lab<'_>) -> Result<Outcome, StudyError>,
}

/// A file of `papers/`, as it is built in.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// Its name in the paper's folder.
    pub name: &'static str,
    /// All of it.
    pub text: &'static str,
}

impl Study {
    /// The figure of a name.
    ///
    /// # Errors
    /// If the paper has none.
    pub fn figure(&self, name: &str) -> Result<&'static Figure, Unknown> {
        let found = self.figures.iter().find(|figure| figure.name == name);
        found.ok_or_else(|| {
            Unknown::new("figure", name, self.figures.iter().map(|figure| figure.name))
        })
    }
}

/// How figures are to be made.
#[derive(Clone, Debug)]
pub struct Context {
    /// A folder with edited files, `PAPER/FILE` in it; those that are not there are the built-in
    /// ones.
    pub papers: Option<PathBuf>,
    /// How many seeds, in place of what the files say.
    pub seeds: Option<u32>,
    /// How many runs at the same time; results do not depend on it.
    pub jobs: usize,
    /// For studies of real transfers.
    pub experiment: Experiment,
}

/// All that a figure's function sees.
pub struct Lab<'a> {
    /// How it is to be made.
    pub context: &'a Context,
    /// The figure's files, in its order: name for messages, and text.
    pub files: Vec<(String, String)>,
    /// To be told of every run.
    pub progress: Progress<'a>,
    /// What other figures have run.
    pub cache: &'a RunCache,
}

impl<'a> Lab<'a> {
    /// Looks up the figure's files.
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
        let folder = context.papers.as_ref().map(|papers| papers.join(study.paper));
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(StudyError::NoPapers(folder.clone()));
        }
        let read = |file: &File| match folder.as_ref().map(|folder| folder.join(file.name)) {
            Some(path) if path.exists() => {
                let name = path.display().to_string();
                match std::fs::read_to_string(&path) {
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
    /// If the file makes no sense.
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
        self.cache.transfers(trials, || experiment.run(*jobs, trials, self.progress))
    }
}
