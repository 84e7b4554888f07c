//! The sink listens: files come from a sender.
//!
//! [`receive`] admits senders ([`service`]) and waits for the end of their sessions. Each path has
//! a task ([`path`]) that hands received data to the [`SinkSession`].

mod path;
mod rates;
mod service;

use std::sync::Arc;
use std::time::Duration;

use peer::listen::{Acceptor, listen, reachable};
use tokio::time::timeout;
use units::{Bytes, Span, Time};

use crate::sink::{self, SinkEnd, SinkSession};
use crate::{Error, Event, Events, Failed, ReceiveOptions, Summary};
use rates::ReceiveRates;
use service::ReceiveService;
pub(crate) use service::Stalls;

/// The time for the error of a failed transfer to reach the sender.
const ABORT_DELIVERY: Duration = Duration::from_secs(1);
/// The wait for the sender's goodbye after completion. It comes at once unless every path was lost
/// just then: the sender then opens another.
const GOODBYE: Duration = Duration::from_secs(10);

/// Receives one transfer, or with `keep` one after another, into the directory of `options`, and
/// reports to `events`.
///
/// # Errors
/// Anything of [`Error`].
pub async fn receive(options: ReceiveOptions, events: Events) -> Result<Summary, Error> {
    receive_unless_stalled(options, events, Stalls::DEFAULT).await
}

/// As [`receive`], with other bounds of the time without data.
pub(crate) async fn receive_unless_stalled(
    options: ReceiveOptions,
    events: Events,
    stalls: Stalls,
) -> Result<Summary, Error> {
    let keep = options.keep;
    let listeners =
        listen(&options.listen.addresses, options.listen.port).map_err(peer::Error::from)?;
    let addresses = reachable(&listeners);
    let identity = options.listen.identity.clone();
    let service = Arc::new(ReceiveService::new(options, events.clone(), stalls)?);
    let _acceptor = Acceptor::start(Arc::clone(&service), &identity, super::boxed(listeners))?;
    let _ = events.send(Event::Listening { addresses });
    loop {
        let (transfer, outcome) = attend(&service).await;
        if !keep {
            return outcome;
        }
        let result = outcome.map_err(|error| Failed::from(&error));
        let _ = events.send(Event::Ended { transfer, result });
    }
}

/// Waits for a session, and for its end; returns the number of the transfer as well.
async fn attend(service: &Arc<ReceiveService>) -> (u32, Result<Summary, Error>) {
    let mut rates = ReceiveRates::default();
    loop {
        let Some(session) = service.session() else {
            service.opened.notified().await;
            continue;
        };
        let report = |session: &SinkSession| {
            let _ = service.events.send(Event::Progress(rates.progress(session)));
            let silence = session.without_data().filter(|time| *time >= service.stalls.alone);
            if let Some(silence) = silence {
                let _ = session.fail(Error::Stalled { silence });
            }
        };
        match sink::attend(&session, report).await {
            SinkEnd::Superseded => {
                let exit_code = Error::Stopped { reason: String::new() }.exit_code();
                let text = "the sender has begun again, with what arrived so far".into();
                let failed = Failed { exit_code, text };
                let (transfer, result) = (session.transfer, Err(failed));
                let _ = service.events.send(Event::Ended { transfer, result });
            }
            SinkEnd::Failed(error) => {
                // The error reaches the sender before its connections are closed.
                let _ = timeout(ABORT_DELIVERY, paths_closed(&session)).await;
                service.forget(&session);
                return (session.transfer, Err(error));
            }
            SinkEnd::Complete(at, sync) => {
                let _ = timeout(GOODBYE, sender_left(&session)).await;
                service.forget(&session);
                return (session.transfer, Ok(summary(&session, &mut rates, at, sync)));
            }
        }
    }
}

/// Waits until the sender has closed every path.
async fn paths_closed(session: &SinkSession) {
    while session.open_paths() > 0 {
        session.changed.notified().await;
    }
}

/// Waits until the sender knows of the completion, or has opened another session.
async fn sender_left(session: &SinkSession) {
    while !session.sender_has_left() {
        tokio::select! {
            () = session.changed.notified() => {}
            () = session.closing.notified() => return,
        }
    }
}

fn summary(session: &SinkSession, rates: &mut ReceiveRates, at: Time, sync: Span) -> Summary {
    let progress = rates.progress(session);
    let began = session.began;
    let carried = session.paths().into_iter().filter(|(_, path)| path.bytes > Bytes::ZERO);
    Summary {
        files: session.tree().file_count(),
        total: session.tree().data(),
        moved: session.received(),
        repeated: Bytes::ZERO,
        elapsed: at - began,
        sync,
        finished_at: carried.map(|(name, path)| (name, (Time::ZERO + path.last) - began)).collect(),
        paths: progress.paths,
    }
}
