//! The behaviour of a connection between two ends, over paths that a test controls packet by
//! packet.

mod allowance;
mod classes;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod feedback;
mod late;
mod opening;
mod pair;
mod paths;
mod rebinding;
mod recovering;
mod repeating;
mod sizes;
mod slow_start;
mod streams;
