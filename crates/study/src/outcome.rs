//! The result of a figure: pictures, tables, a verdict and all data.

use report::Table;
use report::plot;
use report::tidy::{Schema, Value};
use report::verdict::Verdict;

/// The result of a figure.
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
