//! The cores driven with real sockets, TLS and files.
//!
//! [`send`] and [`receive`] are whole transfers, and so are [`fetch`] and [`serve`], where the side
//! that connects is the one that receives; all tell what happens through [`Event`]s.

mod caps;
mod clock;
mod conn;
pub mod doctor;
mod doorway;
mod error;
mod event;
mod fetch;
mod identity;
pub mod interfaces;
#[cfg(test)]
mod liars;
mod memory;
mod options;
mod peer;
mod receive;
mod send;
mod serve;
mod spec;
mod tls;
mod wall;

pub use error::Error;
pub use event::{Event, Events, PathEvent, PathProgress, PathState, Progress, Summary};
pub use fetch::fetch;
pub use identity::{Fingerprint, Identity, Token};
pub use options::{
    CongestionControl, Credential, DEFAULT_PORT, FetchOptions, HostOptions, ReceiveOptions, Remote,
    Selection, SendOptions, ServeOptions, Server, TransferOptions,
};
pub use peer::{May, Peer};
pub use receive::receive;
pub use send::{Carries, PathProbe, probe, send};
pub use serve::serve;
pub use spec::{Cap, MomentOfWeek, PathClass, PathSpec, SpecError, Timetable};
