//! The dialing side, for both directions of the data.
//!
//! [`Dialing`](driver::Dialing) drives sessions of [`transfer::Sender`] over the paths of a
//! [`peer::dial::Dialer`]. [`send`] and [`fetch`] differ in the way a session is opened
//! ([`opener::SessionOpener`]) and in the direction of data over a path ([`path::Direction`]).

mod driver;
mod fetch;
mod greeting;
mod opener;
mod path;
mod queue;
mod send;
mod session;

pub use fetch::fetch;
pub use send::send;
