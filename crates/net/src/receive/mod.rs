//! The receiving side of a transfer.
//!
//! [`receive`] listens, lets senders in ([`door`]) and waits for the outcome of their sessions.
//! Each path has a task ([`path`]) that writes what arrives ([`session`]): small files whole into a
//! hidden folder ([`staging`]), large ones into parts with journals ([`large`]). In batches they
//! are synced and get their names ([`settle`]). What need not come at all is found before
//! ([`survey`]).

pub(crate) mod directory;
pub(crate) mod door;
mod large;
mod path;
pub(crate) mod session;
mod settle;
mod staging;
mod survey;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use units::{Bytes, Rate, Span, Time};

use crate::doorway::{accept, listen, reachable};
use crate::{Error, Event, Events, PathProgress, PathState, Progress, ReceiveOptions, Summary};
use door::Door;
pub(crate) use path::finish_files;
pub(crate) use session::{Mailbox, Session};
pub(crate) use staging::Staging;
pub(crate) use survey::Survey;

/// Progress is told this often.
const TICK: Duration = Duration::from_millis(100);
/// What is whole or journaled is brought to the disk at least this often.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How long the sender may take to hear why its transfer failed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long to wait for the sender's goodbye after everything is done. It comes at once unless
/// every path was lost just then: the sender then notices, and opens another.
const GOODBYE: Duration = Duration::from_secs(10);

/// Receives one transfer (or, with `keep`, one after the other) into the directory of `options`;
/// `events` hears what happens.
///
/// # Errors
/// Anything of [`Error`].
pub async fn receive(options: ReceiveOptions, events: Events) -> Result<Summary, Error> {
    let keep = options.keep;
    let listeners = listen(&options.host.listen, options.host.port)?;
    let addresses = reachable(&listeners);
    let door = Arc::new(Door::new(options, events.clone())?);
    let _closing = Closing(Arc::clone(&door));
    let admitting = Arc::clone(&door);
    let _accepting = accept(listeners, move |stream, from| admitting.admit(stream, from));
    let _ = events.send(Event::Listening { addresses });
    loop {
        let outcome = attend(&door).await;
        if !keep {
            return outcome;
        }
        match outcome {
            Ok(summary) => {
                let text = format!("{} received; waiting for the next transfer", summary.total);
                let _ = events.send(Event::Notice { text });
            }
            Err(error) => {
                let _ = events.send(Event::Notice { text: error.to_string() });
            }
        }
    }
}

/// Ends every connection when the receiver is dropped.
struct Closing(Arc<Door>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits for a session and its end.
async fn attend(door: &Arc<Door>) -> Result<Summary, Error> {
    let mut rates = Rates::default();
    let mut next_sync = Instant::now() + SYNC_EVERY;
    loop {
        let Some(session) = door.session() else {
            door.opened.notified().await;
            continue;
        };
        tokio::select! {
            () = session.over.notified() => {}
            () = sleep(TICK) => {}
        }
        if let Some(error) = session.failure_to_report() {
            // The sender hears why before its connections are cut.
            let _ = timeout(LAST_WORDS, goodbye(&session)).await;
            door.forget(&session);
            return Err(error);
        }
        let _ = door.events.send(Event::Progress(rates.progress(&session)));
        if let Some((at, sync)) = session.completed() {
            let _ = timeout(GOODBYE, parting(&session)).await;
            door.forget(&session);
            return Ok(summary(&session, &mut rates, at, sync));
        }
        if Instant::now() >= next_sync || session.is_much_unsynced() {
            let syncing = Arc::clone(&session);
            let synced = tokio::task::spawn_blocking(move || syncing.settle())
                .await
                .expect("syncing does not panic");
            if let Err(error) = synced {
                let _ = session.fail(error);
            }
            next_sync = Instant::now() + SYNC_EVERY;
        }
    }
}

/// Waits until the sender has closed every path.
async fn goodbye(session: &Session) {
    while session.open_paths() > 0 {
        session.over.notified().await;
    }
}

/// Waits until the sender knows that everything is done, or has begun anew.
async fn parting(session: &Session) {
    while !session.has_parted() {
        tokio::select! {
            () = session.over.notified() => {}
            () = session.closing.notified() => return,
        }
    }
}

fn summary(session: &Session, rates: &mut Rates, at: Time, sync: Span) -> Summary {
    let progress = rates.progress(session);
    let began = session.began;
    let carried = session.carried().into_iter();
    Summary {
        files: session.tree().file_count(),
        total: session.tree().data(),
        moved: session.received(),
        repeated: Bytes::ZERO,
        elapsed: at - began,
        sync,
        finished_at: carried
            .map(|(name, carried)| (name, (Time::ZERO + carried.last) - began))
            .collect(),
        paths: progress.paths,
    }
}

/// Turns counts into rates for the display.
#[derive(Default)]
struct Rates {
    session: Option<wire::frame::SessionId>,
    last: Option<Time>,
    seen: std::collections::BTreeMap<String, (Bytes, f64)>,
}

impl Rates {
    fn progress(&mut self, session: &Session) -> Progress {
        let now = session.clock.now();
        if self.session != Some(session.id) {
            *self = Rates { session: Some(session.id), ..Rates::default() };
        }
        let began = session.began;
        let span = now - self.last.replace(now).unwrap_or(began);
        let received = session.received();
        let mut paths = Vec::new();
        for (name, carried) in session.carried() {
            let (before, rate) = self.seen.entry(name.clone()).or_default();
            if span > Span::ZERO {
                let recent = ((carried.bytes - *before) / span).as_f64();
                *rate += 0.2 * (recent - *rate);
                *before = carried.bytes;
            }
            paths.push(PathProgress {
                path: units::PathId(u32::try_from(paths.len()).expect("a handful of paths")),
                remote: SocketAddr::new(name.parse().unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0),
                name,
                state: PathState::Active,
                local: None,
                rate: Rate::from_bits_f64(*rate),
                rtt: Span::ZERO,
                done: carried.bytes,
                share: carried.bytes.as_f64() / Bytes(received.0.max(1)).as_f64(),
                congestion_control: String::new(),
                retransmits: 0,
            });
        }
        let total = session.tree().data();
        let done = session.resumed() + received;
        let rate: Rate = paths.iter().map(|path| path.rate).sum();
        let eta = (rate > Rate::ZERO).then(|| (total - done) / rate);
        Progress {
            elapsed: now - began,
            done,
            total,
            rate,
            eta,
            repeated: Bytes::ZERO,
            gain: None,
            paths,
        }
    }
}
