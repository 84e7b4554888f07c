//! Formats: parse and emit, nothing else.
//!
//! [`frame`] has what all frames have in common, which run over each path's TLS connection;
//! [`session`] those of every session, [`files`], [`measure`], [`relay`], [`feed`] and [`gateway`]
//! those of services; [`meet`] what hosts that wait at a relay and their guests say, [`asked`] what
//! the side that dials a striped connection tells the other; [`effort`] how any connection stands
//! beside others; [`manifest`] the description of files; [`closing`] the codes with which a side
//! ends anything; [`ptcp`] the packets of the striped connection; [`datagram`] what surrounds them
//! on UDP paths, [`number`] how packet numbers are shortened, and [`bind`] how relays learn
//! addresses; [`harp`] the messages of background gateways; [`tunnel`] those that begin the streams
//! of a tunnel; [`tcp`] simulated TCP segments; [`ip`] what is changed of packets on their way.
//! Nothing here keeps state, or allocates by lengths that a peer merely announces.
#![no_std]

extern crate alloc;

mod address;
pub mod asked;
pub mod bind;
pub mod closing;
pub mod datagram;
pub mod effort;
pub mod feed;
pub mod files;
pub mod frame;
pub mod gateway;
pub mod harp;
pub mod ip;
mod limits;
pub mod manifest;
pub mod measure;
pub mod meet;
pub mod number;
pub mod ptcp;
mod reader;
pub mod relay;
pub mod session;
pub mod tcp;
pub mod tunnel;

pub use frame::{Emit, RawFrame, WireError};
