//! What a figure is made with: its files, how many seeds, how many processors.

use std::path::PathBuf;

use link::config::{ConfigError, Problem};

use crate::error::StudyError;
use crate::registry::{Figure, Study};
use crate::sweep::Kept;
use crate::testbed::Experiment;

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

/// Hears of runs: how many are done, and how many there are.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// All that a figure's function sees.
pub struct Lab<'a> {
    /// How it is to be made.
    pub context: &'a Context,
    /// The figure's files, in its order: name for messages, and text.
    pub files: Vec<(String, String)>,
    /// To be told of every run.
    pub progress: Progress<'a>,
    /// What other figures have run.
    pub kept: &'a Kept,
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
        kept: &'a Kept,
    ) -> Result<Lab<'a>, StudyError> {
        let folder = context.papers.as_ref().map(|papers| papers.join(study.paper));
        if let Some(folder) = folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(StudyError::NoPapers(folder.clone()));
        }
        let read = |file: &crate::File| match folder.as_ref().map(|folder| folder.join(file.name)) {
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
        Ok(Lab { context, files, progress, kept })
    }
}
