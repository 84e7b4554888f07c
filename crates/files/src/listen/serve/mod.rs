//! The source listens: clients fetch files.
//!
//! [`serve`] admits clients ([`service`]). A client asks for names and gets the manifest, and then
//! any range that it requests ([`path`]). The state of a fetch is a
//! [`FetchSession`](session::FetchSession); many run at the same time.

mod path;
mod service;
mod session;

use std::sync::Arc;

use super::Doors;
use crate::{Error, Event, Events, ServeOptions, Summary};
use service::ServeService;

/// Offers the directory of `options` to authorized clients, and reports to `events`. Runs until it
/// is dropped, or with [`ServeOptions::once`] until the first fetch is complete.
///
/// # Errors
/// Errors of opening the directories and of listening. An error of one fetch is reported as an
/// event.
pub async fn serve(options: ServeOptions, events: Events) -> Result<Summary, Error> {
    let doors = Doors::open(&options.listen, &events)?;
    let addresses = doors.addresses();
    let once = options.once;
    let identity = options.listen.identity.clone();
    let service = Arc::new(ServeService::new(options, events.clone())?);
    let accepting = doors.accept(&service, &identity)?;
    let _ = events.send(Event::Listening { addresses });
    loop {
        let summary = service.completed().await;
        if once {
            accepting.close().await;
            return Ok(summary);
        }
    }
}
