//! What became of the figures of a paper: kept beside its page, for a page of all papers.

use std::path::Path;

use blake3::Hasher;
use report::verdict::{Outcome, Verdict};
use serde::{Deserialize, Serialize};

use crate::cache::RunCache;
use crate::error::StudyError;
use crate::figure::{Context, Figure, Lab, Study};

/// The file in the folder of a paper.
const FILE: &str = "judgement.json";

/// What became of a paper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// What it depends on, from [`key`].
    pub key: String,
    /// The figures that were made.
    pub figures: Vec<JudgedFigure>,
}

/// What became of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedFigure {
    /// Its name.
    pub name: String,
    /// How many rows agree.
    pub agree: usize,
    /// How many differ.
    pub differ: usize,
    /// For how many nothing was measured.
    pub missing: usize,
    /// Why rows differ or are missing, each reason once.
    pub why: Vec<String>,
}

/// The verdict on a figure as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureVerdict {
    /// All rows agree.
    Agrees,
    /// Some differ.
    Differs,
    /// None differs, but something was not measured.
    CannotBeJudged,
}

impl FigureVerdict {
    /// In a word or a few.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FigureVerdict::Agrees => "agrees",
            FigureVerdict::Differs => "differs",
            FigureVerdict::CannotBeJudged => "cannot be judged",
        }
    }
}

impl JudgedFigure {
    /// What the rows of a figure say.
    #[must_use]
    pub fn new(figure: &Figure, verdict: &Verdict) -> JudgedFigure {
        let count = |outcome| verdict.rows().iter().filter(|row| row.outcome() == outcome).count();
        let mut why: Vec<String> = Vec::new();
        for row in verdict.rows().iter().filter(|row| row.outcome() != Outcome::Pass) {
            let reason = row.reason();
            if why.iter().all(|known| known != reason) {
                why.push(reason.to_owned());
            }
        }
        JudgedFigure {
            name: figure.name.to_owned(),
            agree: count(Outcome::Pass),
            differ: count(Outcome::Differs),
            missing: count(Outcome::Missing),
            why,
        }
    }

    /// The verdict on the whole of it.
    #[must_use]
    pub fn verdict(&self) -> FigureVerdict {
        if self.differ > 0 {
            FigureVerdict::Differs
        } else if self.missing > 0 || self.agree == 0 {
            FigureVerdict::CannotBeJudged
        } else {
            FigureVerdict::Agrees
        }
    }
}

impl Judgement {
    /// Whether each figure of the paper was made, by what has this key.
    #[must_use]
    pub fn is_whole(&self, study: &Study, key: &str) -> bool {
        let is_made =
            |figure: &Figure| self.figures.iter().any(|judged| judged.name == figure.name);
        self.key == key && study.figures.iter().all(is_made)
    }

    /// Reads what an earlier command left in the folder of a paper; `None` if there is nothing, or
    /// something else.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Judgement> {
        let text = std::fs::read_to_string(folder.join(FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), StudyError> {
        let text = serde_json::to_string_pretty(self).expect("texts and numbers");
        Ok(report::write(folder.join(FILE), text + "\n")?)
    }
}

/// What the figures of a paper depend on: the program, by `build`, the options, `more` that the
/// testbed has, and the paper's files, edited or not. The number of jobs is none of it.
///
/// # Errors
/// If an edited file cannot be read.
pub fn key(
    study: &Study,
    context: &Context,
    build: &str,
    more: &[bool],
) -> Result<String, StudyError> {
    let Context { seeds, experiment, .. } = context;
    let mut hasher = Hasher::new();
    let mut part = |text: &str| {
        // With its length, so that no two lists of parts are one text.
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(build);
    part(study.paper);
    part(&format!("{seeds:?} {:?} {:?}", experiment.scale, experiment.sizes));
    part(&format!("{:?} {more:?}", experiment.quick));
    for figure in study.figures {
        let cache = RunCache::default();
        let files = match Lab::new(context, study, figure, &|_, _| {}, &cache) {
            Ok(lab) => lab.files,
            // A folder with the files of some figures alone, of which this is none.
            Err(StudyError::NoPapers(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        part(&files.len().to_string());
        for (_, text) in &files {
            part(text);
        }
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

#[cfg(test)]
mod tests {
    use report::mean;
    use report::verdict::{Expected, Row, Tolerance};

    use super::*;
    use crate::registry::find;
    use crate::testbed::Experiment;

    fn row(ours: Option<f64>, why: &str) -> Row {
        let ours = ours.and_then(|ours| mean(&[ours]));
        Row::new("", "", "", Expected::Value(1.0), Tolerance::NONE, ours).because(why)
    }

    fn judged(rows: impl IntoIterator<Item = Row>) -> JudgedFigure {
        JudgedFigure::new(&find("theory").unwrap().figures[0], &Verdict::new(rows))
    }

    #[test]
    fn a_figure_agrees_if_all_its_rows_do() {
        let whole = judged([row(Some(1.0), "never shown"), row(Some(1.0), "never shown")]);
        assert_eq!((whole.verdict(), whole.agree), (FigureVerdict::Agrees, 2));
        assert!(whole.why.is_empty());
        let differs = judged([row(Some(2.0), "a"), row(None, "b"), row(Some(3.0), "a")]);
        assert_eq!(differs.verdict(), FigureVerdict::Differs);
        assert_eq!((differs.differ, differs.missing), (2, 1));
        assert_eq!(differs.why, ["a", "b"], "each once");
        let lost = judged([row(Some(1.0), ""), row(None, "no machine does that")]);
        assert_eq!(lost.verdict(), FigureVerdict::CannotBeJudged);
        assert_eq!(judged([]).verdict(), FigureVerdict::CannotBeJudged);
    }

    #[test]
    fn a_judgement_is_whole_with_every_figure_and_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Judgement::read(folder.path()), None);
        let study = find("mpfast").unwrap();
        let verdict = Verdict::new([row(Some(1.0), "")]);
        let figures = study.figures.iter().map(|figure| JudgedFigure::new(figure, &verdict));
        let mut judgement = Judgement { key: "k".into(), figures: figures.collect() };
        judgement.write(folder.path()).unwrap();
        assert_eq!(Judgement::read(folder.path()).as_ref(), Some(&judgement));
        assert!(judgement.is_whole(study, "k") && !judgement.is_whole(study, "l"));
        judgement.figures.remove(1);
        assert!(!judgement.is_whole(study, "k"));
        std::fs::write(folder.path().join(FILE), "{\"key\": ").unwrap();
        assert_eq!(Judgement::read(folder.path()), None, "cut short");
    }

    #[test]
    fn a_key_is_of_all_that_figures_depend_on() {
        let study = find("mpfast").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let context = |seeds, jobs, papers| Context {
            papers,
            seeds,
            jobs,
            experiment: Experiment::default(),
        };
        let plain = context(None, 1, None);
        let of = |context: &Context, build| key(study, context, build, &[false]).unwrap();
        assert_eq!(of(&plain, "one"), of(&context(None, 7, None), "one"), "jobs change nothing");
        let file = study.figures[0].files[0];
        std::fs::write(folder.path().join(file.name), format!("{} ", file.text)).unwrap();
        let quick = Experiment { quick: true, ..Experiment::default() };
        let others = [
            of(&plain, "two"),
            of(&context(Some(3), 1, None), "one"),
            of(&context(None, 1, Some(folder.path().into())), "one"),
            of(&Context { experiment: quick, ..plain.clone() }, "one"),
            key(study, &plain, "one", &[true]).unwrap(),
            key(find("theory").unwrap(), &plain, "one", &[false]).unwrap(),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(other, &of(&plain, "one"), "{at}");
            assert!(!others[..at].contains(other), "{at}");
        }
    }
}
