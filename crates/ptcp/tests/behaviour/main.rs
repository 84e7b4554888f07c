//! What a connection does in particular, between ends and over paths that a test controls packet by
//! packet.

#[path = "../common/mod.rs"]
mod common;
mod pair;
mod paths;
mod recovering;
mod streams;
