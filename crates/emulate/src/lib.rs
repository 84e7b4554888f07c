//! Links in real time: between network namespaces, or between sockets on loopback.
//!
//! [`Emulation::namespaces`] joins two network namespaces by the links of a network file, over TUN
//! devices: whole kernel stacks run through it. It checks itself, and its [`report::Report`] says
//! whether the run counts. [`mesh::Mesh`] joins many namespaces by the links and routes of a
//! topology. [`routed::RoutedMesh`] joins hosts, routers and address translators, and can be
//! changed while it runs. [`Loopback::start`] puts the links in front of a listening socket,
//! without privilege.

pub mod cli;
mod driver;
mod engine;
mod fabric;
mod loopback;
pub mod mesh;
mod namespaces;
mod nat;
mod packet;
pub mod report;
pub mod routed;
mod router;
mod translator;

pub use loopback::{Loopback, LoopbackError, Protocol};
pub use namespaces::{Emulation, EmulationError, address, address_v6, gain_privilege};
