//! Which papers there are, and what a figure of one is.

use report::Table;
use report::plot;
use report::tidy::{Schema, Value};
use report::verdict::Verdict;

use crate::error::{StudyError, Unknown};
use crate::lab::{Context, Lab};
use crate::testbed::Estimate;
use crate::{ptcp, sar, theory, wang2007};

/// Everything that can be reproduced.
pub const STUDIES: &[&Study] =
    &[&theory::STUDY, &ptcp::STUDY, &sar::STUDY, &wang2007::STUDY, &wang2007::PACKETS];

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

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    /// Theirs beside ours.
    pub verdict: Verdict,
    /// Tables besides, each with what stands above it.
    pub tables: Vec<(Table, String)>,
    /// The pictures, most figures one.
    pub pictures: Vec<Picture>,
    /// What a reader has to know to judge the table.
    pub notes: Vec<String>,
    /// Every measure of every run.
    pub data: Data,
}

/// A picture of a figure.
#[derive(Debug)]
pub struct Picture {
    /// Goes behind the figure's name in the file's; empty for the only one.
    pub suffix: &'static str,
    /// What it shows.
    pub plot: plot::Figure,
    /// What stands below it.
    pub caption: String,
}

/// A tidy table that is not written yet.
#[derive(Debug)]
pub struct Data {
    /// Its columns.
    pub schema: Schema,
    /// Keys, measure and value of each row.
    pub rows: Vec<(Vec<Value>, String, f64)>,
}

/// The study of a name.
///
/// # Errors
/// If there is none.
pub fn find(paper: &str) -> Result<&'static Study, Unknown> {
    STUDIES
        .iter()
        .copied()
        .find(|study| study.paper == paper)
        .ok_or_else(|| Unknown::new("paper", paper, STUDIES.iter().map(|study| study.paper)))
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
