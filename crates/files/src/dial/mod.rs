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

use events::{Events, Summary};

use crate::Error;

pub use fetch::fetch;
pub use send::{send, send_to_each};

/// The summary of a session, although one after it has failed.
///
/// # Errors
/// The error of the later session, if its caller has stopped it.
fn unless_stopped(first: Summary, error: Error, events: &Events) -> Result<Summary, Error> {
    if matches!(error, Error::Stopped { .. }) {
        return Err(error);
    }
    events.notice(format!("what changed while it was sent could not be sent once more: {error}"));
    Ok(first)
}
