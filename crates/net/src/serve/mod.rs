//! The sending side of a transfer that the receiver asks for.
//!
//! [`serve`] listens and offers a directory. Whoever may get something is let in ([`door`]) and
//! asks by name; the answer is the manifest, and then whatever range of it is requested ([`path`]).
//! All that is known of a fetch is an [`Offer`](offer::Offer); many go on at the same time.

mod door;
mod hashes;
mod offer;
mod path;

use std::sync::Arc;

use crate::doorway::{accept, listen, reachable};
use crate::{Error, Event, Events, ServeOptions, Summary};
use door::Door;

/// Offers the directory of `options` to whoever may get it; `events` hears what happens. Goes on
/// until it is dropped, or with [`ServeOptions::once`] until the first fetch is complete.
///
/// # Errors
/// Those of opening the directories and listening; what goes wrong with one fetch is told as an
/// event.
pub async fn serve(options: ServeOptions, events: Events) -> Result<Summary, Error> {
    let listeners = listen(&options.host.listen, options.host.port)?;
    let addresses = reachable(&listeners);
    let once = options.once;
    let door = Arc::new(Door::new(options, events.clone())?);
    let _closing = Closing(Arc::clone(&door));
    let admitting = Arc::clone(&door);
    let _accepting = accept(listeners, move |stream, from| admitting.admit(stream, from));
    let _ = events.send(Event::Listening { addresses });
    loop {
        let summary = door.completed().await;
        if once {
            return Ok(summary);
        }
    }
}

/// Ends every connection when the server is dropped.
struct Closing(Arc<Door>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
