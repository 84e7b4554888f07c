//! What can be wrong with a chart.

use std::path::PathBuf;

use link::config::reader::nearest;
use report::tidy::ReadError;
use thiserror::Error;

/// An error in drawing a chart from stored tables.
#[derive(Debug, Error)]
pub enum ChartError {
    /// A table is not there.
    #[error(
        "there is no {}: complete the runs with `anabranch simulate FILE --out FOLDER`, with CSV \
         tables, and of requests only where a flow completes any",
        path.display()
    )]
    NoTable {
        /// The path of the table.
        path: PathBuf,
    },
    /// The table of delays is not there.
    #[error(
        "the results have no delays of packets: write `measure = [\"delay\"]` into the scenario, \
         and run it with the table `delays`, which is written unless --tables names others"
    )]
    NoDelays,
    /// The table of flows that arrive is not there, and no other flows have this name.
    #[error(
        "single flows are measured only of {known}: of flows that arrive in the course of a run, \
         such as `{of}` may be, run it with `--tables flows`"
    )]
    NoFlows {
        /// The wanted flow or group.
        of: String,
        /// The groups whose flows are measured one by one.
        known: String,
    },
    /// Requests have no classes of sizes.
    #[error(
        "the results have no classes of sizes: write, for example, `size_classes = [\"10 kB\", \
         \"1 MB\"]` into a scenario whose flows complete files, writes or pages"
    )]
    NoClasses,
    /// A table cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A table has no such column.
    #[error("the table has no column {name}: it is not one that `simulate --out` has written")]
    NoColumn {
        /// The name of the column.
        name: String,
    },
    /// A value is not a number.
    #[error("the table has `{text}` in place of a number")]
    NotANumber {
        /// The value.
        text: String,
    },
    /// A name that is not known.
    #[error("there is no {what} `{name}`{}: {known}", near.as_ref()
        .map_or_else(String::new, |near| format!(", did you mean `{near}`? The known ones are")))]
    Unknown {
        /// What it should be the name of.
        what: String,
        /// The name.
        name: String,
        /// The most similar known name.
        near: Option<String>,
        /// The known names.
        known: String,
    },
    /// The runs differ in nothing but their seeds.
    #[error(
        "nothing was swept, so there is no parameter for the x axis: add a [sweep] to the \
         scenario, or draw a distribution with --cdf"
    )]
    NothingSwept,
    /// A parameter is neither an axis nor fixed.
    #[error(
        "the runs differ in {name} too: choose it with --x or --by, or fix it with --where \
         {name}=VALUE, of {values}"
    )]
    Left {
        /// The parameter.
        name: String,
        /// Its values.
        values: String,
    },
    /// The measure is not one of all flows together.
    #[error("{measure} is not measured of all flows together: choose with --of: {names}")]
    NotOfAll {
        /// The measure.
        measure: String,
        /// The subjects that have it.
        names: String,
    },
    /// No run has the measure.
    #[error(
        "no run has {measure}: delays and percentiles of queues want `measure = [\"delay\", \
         \"queue\"]` in the scenario, measures of requests flows with files, writes or pages, \
         those of single flows that arrive `simulate --tables flows`"
    )]
    NoValues {
        /// The measure.
        measure: String,
    },
}

/// The most names that a message lists.
const MOST_NAMES: usize = 40;

impl ChartError {
    /// An unknown name, with the known ones.
    pub(super) fn unknown(what: &str, name: &str, known: Vec<String>) -> ChartError {
        let near = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        let more = known.len().saturating_sub(MOST_NAMES);
        let mut list = known.into_iter().take(MOST_NAMES).collect::<Vec<_>>().join(", ");
        if list.is_empty() {
            "there are none".clone_into(&mut list);
        }
        if more > 0 {
            list = format!("{list} and {more} more");
        }
        ChartError::Unknown { what: what.to_owned(), name: name.to_owned(), near, known: list }
    }
}
