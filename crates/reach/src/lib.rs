//! Targets that a host reaches on behalf of others: what a peer may reach ([`Reach`]), names, and
//! connections.
//!
//! The addresses of a host's own services, of its neighbours and of clouds' metadata are protected:
//! only a right that names them alone permits them. A name is resolved once ([`Lookups`]), each of
//! its addresses is checked, and the address that was checked is dialed ([`dial`]). Where a peer
//! may have this host listen is a right of the same kind ([`ListenRights`]).

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

mod dial;
mod lookups;
mod network;
mod permit;
pub mod target;

pub use dial::{DIAL_PATIENCE, For, code_of, dial, permitted};
pub use lookups::{ALL_LOOKUPS, Asker, AskerLookups, LOOKUPS, Lookups};
pub use network::Network;
pub use permit::{ListenRights, Reach, is_protected};
pub use target::parse_target;
