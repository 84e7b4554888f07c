//! What people read about measurements: tables aligned for a terminal, means with confidence
//! intervals, medians, figures, pages; and the tidy tables that other programs read.

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
