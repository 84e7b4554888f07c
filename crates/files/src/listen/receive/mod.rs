//! The sink listens: files come from a sender.
//!
//! [`receive`] admits senders ([`service`]) and waits for the end of their sessions. Each path has
//! a task ([`path`]) that hands received data to the [`SinkSession`].

mod agreement;
mod declined;
mod offered;
mod path;
mod rates;
mod service;
mod sessions;
mod stalls;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use peer::host::Services;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use units::{Bytes, Span, Time};

use super::TransferNumbers;
use crate::sink::{self, SinkEnd, SinkSession};
use crate::{Error, ReceiveOptions};
use events::{Event, Events, Failed, Summary};
use rates::ReceiveRates;
use service::ReceiveService;
pub(crate) use stalls::Stalls;

/// The time for the error of a failed transfer to reach the sender.
const ABORT_DELIVERY: Duration = Duration::from_secs(1);
/// The wait for the sender's goodbye after completion. It comes at once unless every path was lost
/// just then: the sender then opens another.
const GOODBYE: Duration = Duration::from_secs(10);
/// The wait for the further session of a sender whose files changed: it looks at all of them again.
const ONCE_MORE: Duration = Duration::from_secs(120);

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
    let host = super::open(&options.listen, &events)?.meeting(options.meetings.clone());
    let addresses = host.addresses();
    let receiving = Receiving::new(options, events.clone(), stalls, &TransferNumbers::default())?;
    let hosting = host.serve(receiving.joins(Services::new()))?;
    events.send(Event::Listening { addresses });
    let ended = receiving.attend().await;
    hosting.close().await;
    ended
}

/// The sink of a host: the service, and what attends to its sessions.
pub struct Receiving {
    service: Arc<ReceiveService>,
    opening: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arc<SinkSession>>>,
}

impl Receiving {
    /// Opens the directory of `options`; events are reported to `events`.
    ///
    /// # Errors
    /// Errors of opening the directory.
    pub fn of(
        options: ReceiveOptions,
        events: Events,
        numbers: &TransferNumbers,
    ) -> Result<Receiving, Error> {
        Receiving::new(options, events, Stalls::DEFAULT, numbers)
    }

    fn new(
        options: ReceiveOptions,
        events: Events,
        stalls: Stalls,
        numbers: &TransferNumbers,
    ) -> Result<Receiving, Error> {
        let (opened, opening) = mpsc::unbounded_channel();
        let service =
            Arc::new(ReceiveService::new(options, events, stalls, numbers.clone(), opened)?);
        Ok(Receiving { service, opening: tokio::sync::Mutex::new(opening) })
    }

    /// Adds its service to those of a host.
    #[must_use]
    pub fn joins(&self, services: Services) -> Services {
        services.with(&self.service)
    }

    /// Attends to sessions until the one transfer has ended, or with [`ReceiveOptions::keep`] for
    /// ever.
    ///
    /// # Errors
    /// Those of the transfer; [`Error::NobodyCame`].
    pub async fn attend(&self) -> Result<Summary, Error> {
        let (service, keep) = (&self.service, self.service.keeps());
        let mut opening = self.opening.lock().await;
        let mut sessions = JoinSet::new();
        // Since when there is no sender.
        let mut alone = Instant::now();
        loop {
            let patience = service.timeout.filter(|_| !keep && sessions.is_empty());
            let given_up = async {
                match patience {
                    Some(patience) => sleep_until(alone + patience.into()).await,
                    None => std::future::pending().await,
                }
                patience
            };
            let ended = tokio::select! {
                Some(session) = opening.recv() => {
                    sessions.spawn(attend(Arc::clone(service), session));
                    continue;
                }
                Some(ended) = sessions.join_next() => ended,
                Some(waited) = given_up => return Err(Error::NobodyCame { waited }),
            };
            alone = Instant::now();
            let failed =
                |error| Error::system("attend to a transfer", std::io::Error::other(error));
            match ended.unwrap_or_else(|error| Some(Err(failed(error)))) {
                Some(outcome) if !keep => return outcome,
                // It has been reported, or another session has taken its place.
                Some(_) | None => {}
            }
        }
    }
}

/// Waits for the end of a session. `None` if another one has taken its place, or continues it.
async fn attend(
    service: Arc<ReceiveService>,
    session: Arc<SinkSession>,
) -> Option<Result<Summary, Error>> {
    let mut rates = ReceiveRates::default();
    let report = |session: &SinkSession| {
        service.events.send(Event::Progress(rates.progress(session)));
        let silence = session.without_data().filter(|time| *time >= service.stalls.alone);
        if let Some(silence) = silence {
            let _ = session.fail(Error::Stalled { silence });
        }
        if let (Some(waited), Some(time)) = (service.timeout, session.without_paths())
            && time >= waited
        {
            let _ = session.fail(Error::SenderGone { waited });
        }
    };
    let mut goes_on = false;
    let outcome = match sink::attend(&session, report).await {
        SinkEnd::Superseded => {
            if service.keeps() {
                let exit_code = Error::Stopped { reason: String::new() }.exit_code();
                let text = "the sender has begun again, with what arrived so far".into();
                let result = Err(Failed { exit_code, text });
                service.events.send(Event::Ended { transfer: session.transfer, result });
            }
            return None;
        }
        SinkEnd::Failed(error) => {
            // The error reaches the sender before its connections are closed.
            let _ = timeout(ABORT_DELIVERY, paths_closed(&session)).await;
            Err(error)
        }
        SinkEnd::Complete(at, sync) => {
            // A sender whose files changed sends these once more.
            let has_changes = session.left_out() > 0;
            let wait = if has_changes { ONCE_MORE } else { GOODBYE };
            let left = timeout(wait, sender_left(&session)).await;
            goes_on = has_changes && left == Ok(Left::Anew);
            if !goes_on {
                session.left_out_events().into_iter().for_each(|event| {
                    service.events.send(event);
                });
            }
            Ok(summary(&session, &mut rates, at, sync))
        }
    };
    service.sessions.forget(&session);
    report_end(&service, &session, &outcome);
    (!goes_on).then_some(outcome)
}

/// Reports the end of a transfer, if the host goes on listening.
fn report_end(service: &ReceiveService, session: &SinkSession, outcome: &Result<Summary, Error>) {
    if service.keeps() {
        let result = match outcome {
            Ok(summary) => Ok(summary.clone()),
            Err(error) => Err(Failed::from(error)),
        };
        service.events.send(Event::Ended { transfer: session.transfer, result });
    }
}

/// Waits until the sender has closed every path.
async fn paths_closed(session: &SinkSession) {
    while session.open_paths() > 0 {
        session.changed.notified().await;
    }
}

/// How a sender left a complete session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It knows of the completion.
    Knowing,
    /// It has opened another session.
    Anew,
}

/// Waits until the sender knows of the completion, or has opened another session.
async fn sender_left(session: &SinkSession) -> Left {
    while !session.sender_has_left() {
        tokio::select! {
            () = session.changed.notified() => {}
            () = session.closing.notified() => return Left::Anew,
        }
    }
    Left::Knowing
}

fn summary(session: &SinkSession, rates: &mut ReceiveRates, at: Time, sync: Span) -> Summary {
    let progress = rates.progress(session);
    let began = session.began;
    let carried = session.paths().into_iter().filter(|(_, path)| path.bytes > Bytes::ZERO);
    Summary {
        files: session.tree().file_count() - session.left_out(),
        total: session.total(),
        moved: session.received(),
        repeated: Bytes::ZERO,
        elapsed: at - began,
        sync,
        finished_at: carried.map(|(name, path)| (name, (Time::ZERO + path.last) - began)).collect(),
        left_out: session.left_out(),
        lost_owners: session.archived().lost_owners as usize,
        lost_attributes: session.archived().lost_attributes as usize,
        lost_modes: session.archived().lost_modes as usize,
        lost_entries: session.archived().lost_entries as usize,
        paths: progress.paths,
    }
}
