//! What people read about measurements: tables aligned for a terminal, means with confidence intervals, medians.

mod stats;
mod table;

pub use stats::{Mean, mean, median};
pub use table::{Align, Table};
