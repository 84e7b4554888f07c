//! The checks of the fuzz targets.

mod admission;
mod feed;
mod gateway;
mod relay;
mod simulations;
mod ssh_lines;
mod striped;
mod transfers;
mod tunnel;

pub use admission::*;
pub use feed::*;
pub use gateway::*;
pub use relay::*;
pub use simulations::*;
pub use ssh_lines::*;
pub use striped::*;
pub use transfers::*;
pub use tunnel::*;
