//! The source listens: files are offered to peers that fetch them.
//!
//! [`serve`] lets in those who may fetch ([`service`]). A peer asks by name; the answer is the
//! manifest, and then whatever range of it is requested ([`path`]). All that is known of a fetch is
//! a [`FetchSession`](session::FetchSession); many go on at the same time.

mod path;
mod service;
mod session;

use std::sync::Arc;

use peer::listen::{Acceptor, listen, reachable};

use crate::{Error, Event, Events, ServeOptions, Summary};
use service::ServeService;

/// Offers the directory of `options` to whoever may get it; `events` hears what happens. Goes on
/// until it is dropped, or with [`ServeOptions::once`] until the first fetch is complete.
///
/// # Errors
/// Those of opening the directories and listening; what goes wrong with one fetch is told as an
/// event.
pub async fn serve(options: ServeOptions, events: Events) -> Result<Summary, Error> {
    let listeners =
        listen(&options.listen.addresses, options.listen.port).map_err(peer::Error::from)?;
    let addresses = reachable(&listeners);
    let once = options.once;
    let identity = options.listen.identity.clone();
    let service = Arc::new(ServeService::new(options, events.clone())?);
    let _acceptor = Acceptor::start(Arc::clone(&service), &identity, super::boxed(listeners))?;
    let _ = events.send(Event::Listening { addresses });
    loop {
        let summary = service.completed().await;
        if once {
            return Ok(summary);
        }
    }
}
