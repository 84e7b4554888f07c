//! The source listens: clients fetch files.
//!
//! [`serve`] admits clients ([`service`]). A client asks for names and gets the manifest, and then
//! any range that it requests ([`path`]). The state of a fetch is a
//! [`FetchSession`](session::FetchSession); many run at the same time.

mod path;
mod service;
mod session;
mod view;

use std::sync::Arc;

use peer::host::Services;

use super::TransferNumbers;

use crate::{Error, ServeOptions};
use events::{Event, Events, Summary};
use service::ServeService;

/// Offers the directory of `options` to authorized clients, and reports to `events`. Runs until it
/// is dropped, or with [`ServeOptions::once`] until the first fetch is complete.
///
/// # Errors
/// Errors of opening the directories and of listening. An error of one fetch is reported as an
/// event.
pub async fn serve(options: ServeOptions, events: Events) -> Result<Summary, Error> {
    let host = super::open(&options.listen, &events)?.meeting(options.meetings.clone());
    let addresses = host.addresses();
    let serving = Serving::of(options, events.clone(), &TransferNumbers::default())?;
    let hosting = host.serve(serving.joins(Services::new()))?;
    events.send(Event::Listening { addresses });
    let summary = serving.attend().await;
    hosting.close().await;
    Ok(summary)
}

/// The source of a host: the service, and what waits for its fetches.
pub struct Serving(Arc<ServeService>);

impl Serving {
    /// Opens the directories of `options`; events are reported to `events`.
    ///
    /// # Errors
    /// Errors of opening the directories.
    pub fn of(
        options: ServeOptions,
        events: Events,
        numbers: &TransferNumbers,
    ) -> Result<Serving, Error> {
        Ok(Serving(Arc::new(ServeService::new(options, events, numbers.clone())?)))
    }

    /// Adds its service to those of a host.
    #[must_use]
    pub fn joins(&self, services: Services) -> Services {
        services.with(&self.0)
    }

    /// Waits for the first complete fetch with [`ServeOptions::once`], and for ever without.
    pub async fn attend(&self) -> Summary {
        loop {
            let summary = self.0.completed().await;
            if self.0.is_once() {
                return summary;
            }
        }
    }
}
