//! The result of a figure: pictures, tables, a verdict and all data.

use report::Table;
use report::plot;
use report::tidy::{Schema, Value};
use report::verdict::Verdict;

/// The result of a figure.
#[derive(Debug)]
pub struct Outcome {
    /// Expected and measured values.
    pub verdict: Verdict,
    /// Further tables, each with its caption.
    pub tables: Vec<(Table, String)>,
    /// The pictures; most figures have one.
    pub pictures: Vec<Picture>,
    /// Notes for readers of the verdict.
    pub notes: Vec<String>,
    /// Every measure of every run.
    pub data: Data,
}

/// A picture of a figure.
#[derive(Debug)]
pub struct Picture {
    /// Appended to the name of the figure in the file name; empty for a single picture.
    pub suffix: &'static str,
    /// The plot.
    pub plot: plot::Figure,
    /// The caption below the plot.
    pub caption: String,
}

/// A tidy table in memory.
#[derive(Debug)]
pub struct Data {
    /// The columns.
    pub schema: Schema,
    /// The keys, the name of the measure and the value of each row.
    pub rows: Vec<(Vec<Value>, String, f64)>,
}
