//! The cores driven with real sockets, TLS and files.
//!
//! [`send`] and [`receive`] are whole transfers; both tell what happens through [`Event`]s.

mod caps;
mod clock;
mod conn;
pub mod doctor;
mod error;
mod event;
mod identity;
pub mod interfaces;
#[cfg(test)]
mod liars;
mod options;
mod peer;
mod receive;
mod send;
mod spec;
mod tls;
mod wall;

pub use error::Error;
pub use event::{Event, Events, PathEvent, PathProgress, PathState, Progress, Summary};
pub use identity::{Fingerprint, Identity, Token};
pub use options::{
    CongestionControl, Credential, DEFAULT_PORT, FetchOptions, ReceiveOptions, Remote, Selection, SendOptions,
    ServeOptions, Server,
};
pub use peer::{May, Peer};
pub use receive::receive;
pub use send::{Carries, PathProbe, probe, send};
pub use spec::{Cap, MomentOfWeek, PathClass, PathSpec, SpecError, Timetable};
