//! The sink dials: files come from servers.
//!
//! [`fetch`] connects to the servers over every path and lets the core of a sender divide the work:
//! a path requests each extent that the core tells it to transmit. Each server has a session of its
//! own ([`opener`]); the data of all go to one [`Arrival`].

mod arrival;
mod offer;
mod opener;
mod replicas;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use peer::dial::Terms;

pub(super) use arrival::Arrival;
use opener::FetchOpener;

use super::driver::{DialEnd, Dialing};
use super::queue::Queue;
use super::session::check_scheduler;
use crate::dial::unless_stopped;
use crate::sink::SinkSession;
use crate::{Error, FetchOptions};
use events::{Events, Summary};

/// Fetches the files of `options` over every path, and reports to `events`. Dropping the future
/// stops the transfer; verified data stay journaled in the receiving folder.
///
/// With several servers, each pair of interface and server is a path. All servers must have the
/// same file. Before any data, each sends the hashes of all its blocks; a server whose hashes
/// differ from the first server's, or from [`FetchOptions::blake3`], is not used, and one that
/// sends a wrong block is dropped with a notice that names it.
///
/// # Errors
/// Anything of [`Error`].
pub async fn fetch(options: FetchOptions, events: Events) -> Result<Summary, Error> {
    check_scheduler(&options.transfer)?;
    let asked_for = offer::check(&options)?;
    let to = options.from.iter().map(|server| (server.remote.clone(), server.credential.clone()));
    let terms = Terms::new(to.collect(), options.transfer.dial.clone())?;
    let dialing = Dialing::plan(terms.clone(), &options.transfer, events.clone()).await?;
    let mut options = options;
    let mut queue = Queue::new(options.transfer.dial.patience);
    let mut first: Option<Summary> = None;
    loop {
        // The old session must be closed before a new one writes the same files.
        let writing = Arc::new(Mutex::new(Weak::new()));
        let (asked, writes) = (Arc::new(options.clone()), Arc::clone(&writing));
        let opener = |reports, clock| {
            let asked_for = asked_for.clone();
            FetchOpener::new(
                asked,
                asked_for,
                terms.clone(),
                clock,
                reports,
                events.clone(),
                writes,
                first.is_none(),
            )
        };
        let ended = queue.unless_busy(dialing.conduct(opener).await, &events).await;
        let ended = match (ended, first.take()) {
            // What there is of the second attempt does not matter to the first.
            (Err(error), Some(before)) => {
                dialing.close().await;
                return unless_stopped(before, error, &events);
            }
            (ended, before) => {
                first = before;
                ended?
            }
        };
        match ended {
            DialEnd::Busy => {}
            DialEnd::Complete(summary) => {
                dialing.close().await;
                return Ok(summary.after(first));
            }
            DialEnd::ButForChanges(summary) => {
                options.transfer.once_more();
                first = Some(summary);
                wait_until_closed(&writing).await?;
            }
            // The server's files changed: keep those that are still the same. Files that this run
            // restarted or replaced are not discarded again.
            DialEnd::SessionGone => {
                options.transfer.restart = false;
                wait_until_closed(&writing).await?;
                let text =
                    "what is offered has changed: agreeing on the transfer again".to_string();
                events.notice(text);
            }
        }
    }
}

/// Waits until the old session has released its files.
async fn wait_until_closed(writing: &Mutex<Weak<SinkSession>>) -> Result<(), Error> {
    let session = writing.lock().expect("no panic while held").clone();
    for _ in 0..1_500 {
        if session.strong_count() == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
    Err(Error::system("wait for the disk to take what arrived before", source))
}
