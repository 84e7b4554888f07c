//! The receiving side of a transfer.

use crate::{Error, Events, ReceiveOptions, Summary};

/// Receives one transfer (or, with `keep`, one after the other) into the directory of `options`; `events` hears what happens.
///
/// # Errors
/// Anything of [`Error`].
pub async fn receive(options: ReceiveOptions, events: Events) -> Result<Summary, Error> {
    drop((options, events));
    Err(Error::Usage("not yet".into()))
}
