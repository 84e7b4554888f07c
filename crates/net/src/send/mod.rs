//! The sending side of a transfer.

use crate::{Error, Events, SendOptions, Summary};

/// Sends the files of `options` over every path; `events` hears what happens. Dropping the future stops the transfer; what
/// the receiver has verified stays journaled there.
///
/// # Errors
/// Anything of [`Error`].
pub async fn send(options: SendOptions, events: Events) -> Result<Summary, Error> {
    drop((options, events));
    Err(Error::Usage("not yet".into()))
}
