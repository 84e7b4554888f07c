//! The receiving side of a transfer that it asks for itself.
//!
//! [`fetch`] connects to the servers over every path, as [`send`](crate::send()) does to a
//! receiver, and lets the same core divide the work: what that says is to be transmitted on a path
//! is asked for on it. What comes is written as by [`receive`](crate::receive()). Each server has
//! an [`Entrance`] of its own; [`Arrival`] is where the data of all of them go.

mod arrival;
mod entrance;
mod offer;
mod replicas;

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::mpsc;

pub(crate) use arrival::Arrival;
pub(crate) use entrance::Entrance;

use crate::clock::Clock;
use crate::receive::Session;
use crate::send::conduct::{Conductor, Ended};
use crate::send::plan::plan;
use crate::send::terms::Terms;
use crate::send::way;
use crate::{Error, Event, Events, FetchOptions, Summary};

/// Fetches what `options` name over every path; `events` hears what happens. Dropping the future
/// stops the transfer; what is verified stays journaled in the folder where it goes.
///
/// With several servers each (interface, server) pair is a path. They have to have the same one
/// file: before data come, each gives the hashes of all its blocks; what does not match the
/// first-named server's, or [`FetchOptions::blake3`], is not asked, and a server that sends a block
/// that does not match is dropped by name.
///
/// # Errors
/// Anything of [`Error`].
pub async fn fetch(options: FetchOptions, events: Events) -> Result<Summary, Error> {
    let terms = Terms::from(&options);
    terms.check()?;
    offer::check(&options)?;
    let tls = terms.tls()?;
    let plans: Vec<_> = plan(&terms).await?.into_iter().map(Arc::new).collect();
    let clock = Clock::start();
    let mut options = options;
    loop {
        let (reporting, reports) = mpsc::unbounded_channel();
        // The session that writes here must be gone before another one begins.
        let writing = Arc::new(Mutex::new(Weak::new()));
        let entrance = Entrance::new(
            Arc::new(options.clone()),
            terms.clone(),
            clock,
            reporting.clone(),
            events.clone(),
            Arc::clone(&writing),
        );
        let entrance = way::Entrance::In(Box::new(entrance));
        let conductor = Conductor::new(
            terms.clone(),
            entrance,
            (reporting, reports),
            tls.clone(),
            clock,
            events.clone(),
        );
        match conductor.conduct(plans.clone()).await? {
            Ended::Complete(summary) => return Ok(summary),
            // The server has something else now: go on from what still is the same. What this run
            // already replaced or restarted is not to be thrown away again.
            Ended::SessionGone => {
                options.transfer.restart = false;
                gone(&writing).await?;
                let text =
                    "what is offered has changed: agreeing on the transfer again".to_string();
                let _ = events.send(Event::Notice { text });
            }
        }
    }
}

/// Waits until nobody writes any more.
async fn gone(writing: &Mutex<Weak<Session>>) -> Result<(), Error> {
    let session = writing.lock().expect("no panic while held").clone();
    for _ in 0..1_500 {
        if session.strong_count() == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
    Err(Error::System { action: "wait for the disk to take what arrived before".into(), source })
}
