//! Sessions of authenticated peers over many paths.
//!
//! A host has an [`Identity`]; it knows others by [`Fingerprint`], by [`Token`] or from a list of
//! [`Peer`]s. One side dials ([`dial`]): it plans its paths, opens a connection over each and
//! replaces those that fail. The other side is a [`host`] with services: it admits connections
//! ([`listen`]) and hands each to its service. A [`conn::Conn`] is one such connection: TLS 1.3
//! over a stream of some [`carrier`], and frames over TLS. Nothing here knows of files.

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

mod authorized;
pub mod caps;
pub mod carrier;
pub mod conn;
pub mod descriptors;
pub mod dial;
mod error;
mod fingerprint;
pub mod greeting;
pub mod host;
mod identity;
pub mod limit;
pub mod listen;
pub mod metrics;
mod options;
pub mod places;
pub mod private;
mod remote;
pub mod rights;
mod spec;
pub mod striped;
pub mod tags;
pub mod tls;
mod wall;

pub use authorized::{AuthorizedPeers, Peer};
pub use conn::{Conn, ConnError};
pub use error::Error;
pub use fingerprint::Fingerprint;
pub use identity::{Identity, Token, random, random_seed};
pub use net::{Clock, CongestionControl};
pub use options::{
    Credential, DialOptions, KeySource, Leading, ListenOptions, MAX_PATHS, Parts, RelayOptions,
    Relaying, WaitingRelay,
};
pub use remote::{DEFAULT_PORT, FURTHER_PORTS, Remote};
pub use rights::{May, Rights, RightsKey};
pub use spec::{Cap, MomentOfWeek, PathClass, PathSpec, RelaySpec, SpecError, Timetable};
