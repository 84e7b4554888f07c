//! A relay: it carries connections between hosts that cannot, or should not, reach each other
//! another way, and reads nothing of them.
//!
//! A host opens a control connection, and is issued tickets for the destinations that it may reach.
//! A data connection shows a ticket, and is spliced with one to the destination: TLS goes from end
//! to end, and the relay sees sealed bytes.
//!
//! | subject | module |
//! |---|---|
//! | the service: who may have tickets, what a ticket opens | `service` |
//! | control connections, their associations; what is remembered of hosts | `control`, `associations`; `state` |
//! | what peers may do: words of the list of authorized peers | `rights` |
//! | hosts that wait here, and their guests; attempts at nameplates; news for hosts | `meetings`; `knocks`; `told` |
//! | hosts that wait at relays and are met there; their codes | `meeting` |
//! | tickets that were issued and not yet shown | `tickets` |
//! | a path; its thread; its bytes, through a pipe; how much of them waits here | `path`; `movers`; `splice`; `hop` |
//! | datagrams: their thread; its sockets; where they go | `datagrams`; `datagrams/sockets.rs`; `labels` |
//! | what translates and filters in front of a host: what the relay tells; what the host asks | `labels/telling.rs`; `client/translator.rs`, `client/asking.rs`, `client/finding.rs` |
//! | bytes of keys; the division of a rate among keys | `keys`; `meter`, `shares` |
//! | the side that uses a relay: connections | `client` |
//! | its control connection; its tickets; a relay for the paths of a session | `client/keeper.rs`; `client/shelf.rs`; `client/dialing.rs` |
//! | bounds | `bounds` |

#![allow(
    clippy::missing_panics_doc,
    reason = "every panic is a broken invariant, stated at the place that relies on it"
)]

mod associations;
pub mod bounds;
pub mod client;
mod control;
mod datagrams;
pub mod hop;
mod keys;
pub mod knocks;
pub mod labels;
pub mod meeting;
mod meetings;
mod meter;
mod movers;
mod path;
pub mod rights;
mod service;
pub mod shares;
mod splice;
mod state;
pub mod tickets;
mod told;

pub use client::{
    AskedRelay, Binding, Client, ClientOptions, ClientState, Filtering, Mapping, RelayCarrier,
    RelayDialing, Translator, TranslatorTest, WaitState, WaitingPlace, calls, find_translator,
};
pub use keys::KeyFigures;
pub use rights::RelayRights;
pub use service::RelayService;
pub use state::{RelayGrant, RelayOptions};
