//! A mesh whose nodes find the way: hosts in namespaces, routers and address translators in the
//! emulator, from one file.
//!
//! [`Description`] is the file. [`RoutedMesh::new`] makes the network, which carries packets at
//! once; it can be changed while it runs ([`control`]).

pub mod control;
mod description;
mod engine;
mod kernel;
mod namespaces;
mod parse;
mod routes;

pub use crate::translator::{Behaviour, Dependence, PortChoice};
pub use description::{Description, LinkEnd, MeshLink, MeshNode, NodeRole};
pub use namespaces::{BothWays, NodeCounts, RoutedCounts, RoutedMesh, RoutedReport, WayCounts};
