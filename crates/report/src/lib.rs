//! Reports of measurements: text tables, means with confidence intervals, medians, figures and
//! pages for people; tidy tables for other programs.

mod file;
mod markup;
pub mod page;
pub mod plot;
mod stats;
mod table;
pub mod tidy;
pub mod verdict;

pub use file::{WriteError, write};
pub use stats::{Mean, mean, median};
pub use table::{Align, Table};
