//! Formats: parse and emit, nothing else.
//!
//! [`frame`] is the transfer protocol that runs over each path's TLS connection. Nothing here keeps state or allocates
//! according to what a peer merely announces.
#![no_std]

extern crate alloc;

pub mod frame;
pub mod ptcp;
mod reader;
pub mod tcp;

pub use frame::{Frame, WireError};
