//! The background gateway (Harp) on Linux: TCP connections that the kernel marks as background
//! enter at a site's gateway, are governed there, and reach unmodified hosts at another site.
//!
//! | subject | module |
//! |---|---|
//! | the file of a gateway | `config` |
//! | rules of nftables and of routing; those of programs by cgroup | `rules`; `programs` |
//! | the device, and routes into it; its packets | `device`; `tun` |
//! | several segments as one packet, and apart again | `offload` |
//! | what the system does to its packets | `doctor` |
//! | packets of hosts: headers, and what changes; their octets | `packet`; `frame` |
//! | TCP connections: numbers, and what their SYNs said | `flows` |
//! | all sites, without sockets | `plane`; figures: `figures` |
//! | the device and the sites' datagrams on the endpoint's thread | `guest` |
//! | who may be a site, and for which networks | `rights` |
//! | the connection to a site's gateway; which of two stays; what all share | `session`; `present`; `shared` |
//! | the service, and dialing | `service` |
//! | for fuzzers: packets without a network | `testing` |

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

pub mod config;
mod device;
mod doctor;
mod figures;
mod flows;
mod frame;
mod guest;
mod offload;
mod packet;
mod plane;
mod present;
mod programs;
pub mod rights;
mod rules;
mod service;
mod session;
mod shared;
mod sites;
mod slots;
pub mod testing;
mod tun;

pub use config::GatewayConfig;
pub use doctor::{SystemFinding, examine};
pub use figures::{FlowFigures, Idle, OtherPath, PathFigures, SiteFigures};
pub use harp::{Arrivals, PathFalls, PathQueue};
pub use plane::SiteId;
pub use rights::GatewayRights;
pub use rules::Rules;
pub use service::{GatewayOptions, GatewayService, stripe_options};
pub use shared::FindRelays;
