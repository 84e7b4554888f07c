//! The checks of the fuzz targets.

mod admission;
mod simulations;
mod ssh_lines;
mod striped;
mod transfers;

pub use admission::*;
pub use simulations::*;
pub use ssh_lines::*;
pub use striped::*;
pub use transfers::*;
