//! The side that dials, whichever way its data flow.
//!
//! [`Dialing`](driver::Dialing) conducts sessions of [`transfer::Sender`] over the
//! paths of a [`peer::dial::Dialer`]. What differs between [`send`] and [`fetch`] is how a session
//! is opened ([`opener`]) and the direction in which data flow over a path ([`path`]).

mod driver;
mod fetch;
mod opener;
mod path;
mod rates;
mod send;
mod session;

pub use fetch::fetch;
pub use send::send;
