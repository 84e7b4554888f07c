//! Formats: parse and emit, nothing else.
//!
//! [`frame`] has the frames of the transfer protocol, which runs over each path's TLS connection;
//! [`manifest`] its description of files; [`ptcp`] the packets of the striped connection;
//! [`datagram`] what surrounds them on UDP paths, and [`number`] how packet numbers are shortened;
//! [`harp`] the messages of background gateways; [`tunnel`] those that begin the streams of a
//! tunnel; [`tcp`] simulated TCP segments. Nothing here keeps state, or allocates by lengths that a
//! peer merely announces.
#![no_std]

extern crate alloc;

pub mod datagram;
pub mod frame;
pub mod harp;
pub mod manifest;
pub mod number;
pub mod ptcp;
mod reader;
pub mod tcp;
pub mod tunnel;

pub use frame::{Frame, WireError};
