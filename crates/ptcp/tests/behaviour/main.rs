//! What a connection does in particular, between ends and over paths that a test controls packet by
//! packet.

mod pair;
mod paths;
mod recovering;
mod streams;
