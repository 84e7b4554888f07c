//! Formats: parse and emit, nothing else.
//!
//! [`frame`] is the transfer protocol that runs over each path's TLS connection, [`manifest`] what
//! it says of files. Nothing here keeps state or allocates according to what a peer merely
//! announces.
#![no_std]

extern crate alloc;

pub mod frame;
pub mod manifest;
pub mod ptcp;
mod reader;
pub mod tcp;

pub use frame::{Frame, WireError};
