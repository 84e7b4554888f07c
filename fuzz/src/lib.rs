//! What the fuzz targets do with their input.

mod simulations;
mod transfers;

pub use simulations::*;
pub use transfers::*;
