//! Measurements of paths and hosts: what each path carries ([`probe()`]), what two hosts carry
//! between them ([`measure`]), and checks of a host with the commands that correct what they find
//! ([`doctor`]).

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

pub mod doctor;
pub mod measure;
mod probe;

pub use probe::{Carries, PathProbe, probe};
