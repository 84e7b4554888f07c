//! The commands, each with its arguments.

pub(crate) mod collect;
pub(crate) mod cp;
mod credentials;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod emulate;
pub(crate) mod far;
pub(crate) mod feed;
pub(crate) mod gateway;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod host;
pub(crate) mod keys;
pub(crate) mod paths;
pub(crate) mod perf;
pub(crate) mod plot;
pub(crate) mod receive;
pub(crate) mod relay;
pub(crate) mod reproduce;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod tunnel;
