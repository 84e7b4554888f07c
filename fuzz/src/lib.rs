//! The checks of the fuzz targets.

mod simulations;
mod transfers;

pub use simulations::*;
pub use transfers::*;
