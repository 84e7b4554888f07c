//! The striped connection to the collector, opened again whenever it ends: one stream of it for
//! each stream of records.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peer::conn::ConnError;
use peer::striped::{Dialed, is_final, open_service, tell_of_routes};
use stripe::Connection;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use wire::feed::SERVICE;
use wire::session::Hello;

use super::backlog::WayId;
use super::channel::Channel;
use super::way::{Kind, carry};
use super::{ANSWER, REMEDY, SourceShared};

/// The pause before the first attempt to connect again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts: that long a collector that is back has nothing to do.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The pause before a stream is offered again over the same connection.
const PAUSE: Duration = Duration::from_millis(500);
/// A connection that lasted so long makes the next pause short again.
const LASTED: Duration = Duration::from_secs(10);

/// Connects, again and again, until the source is over. Without a first connection for so long it
/// gives up.
///
/// # Errors
/// What no further attempt would change, or the last failure.
pub(super) async fn keep(
    dial: impl AsyncFn() -> Result<Dialed, peer::Error>,
    patience: Option<Duration>,
    shared: &Arc<SourceShared>,
) -> Result<(), peer::Error> {
    let events = &shared.events;
    let mut over = pin!(shared.is_over());
    let mut pause = FIRST_PAUSE;
    let mut waits_since = Instant::now();
    let mut told = String::new();
    loop {
        let dialed = tokio::select! {
            biased;
            () = &mut over => return Ok(()),
            dialed = dial() => dialed,
        };
        let why = match dialed {
            Ok(Dialed { connection, keeper }) => {
                let began = Instant::now();
                told.clear();
                events.notice(format!("connected to {}", connection.remote()));
                let why = tokio::select! {
                    biased;
                    () = &mut over => {
                        keeper.close().await;
                        return Ok(());
                    }
                    error = connection.ended() => error.to_string(),
                    error = carry_all(&connection, shared) => return Err(error),
                    () = tell_of_routes(&connection, events) => unreachable!("it never ends"),
                };
                if began.elapsed() > LASTED {
                    pause = FIRST_PAUSE;
                }
                waits_since = Instant::now();
                why
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) if patience.is_some_and(|most| waits_since.elapsed() > most) => {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        // One that goes on failing in the same way is said once.
        if told != why {
            events.notice(format!("no connection: {why}; records wait here"));
            told = why;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = &mut over => return Ok(()),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Carries all streams, those that come later too, until that is of no use.
async fn carry_all(connection: &Connection, shared: &Arc<SourceShared>) -> peer::Error {
    let waker = Arc::new(Notify::new());
    let _registered = Registered::new(shared, &waker);
    let mut carried: BTreeSet<u16> = BTreeSet::new();
    let mut tasks = JoinSet::new();
    let mut seen = None;
    loop {
        let changes = shared.channels.changes();
        if seen.replace(changes) != Some(changes) {
            let all = shared.channels.all();
            carried.retain(|number| all.iter().any(|channel| channel.number == *number));
            for channel in all {
                if carried.insert(channel.number) {
                    let (connection, shared) = (connection.clone(), Arc::clone(shared));
                    tasks.spawn(async move { carry_one(connection, &channel, &shared).await });
                }
            }
        }
        tokio::select! {
            () = waker.notified() => {}
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended.expect("carrying does not panic") {
                    return error;
                }
            }
        }
    }
}

/// Carries one stream until it is over.
///
/// # Errors
/// What no further attempt would change.
async fn carry_one(
    connection: Connection,
    channel: &Channel,
    shared: &SourceShared,
) -> Result<(), peer::Error> {
    loop {
        let hello = Hello::new(SERVICE, shared.secret, shared.run);
        let why = match open_service(&connection, hello, ANSWER, REMEDY).await {
            Ok(mut conn) => match carry(&mut conn, shared, Kind::Striped(channel.number)).await {
                Ok(_) => return Ok(()),
                Err(ConnError::Refused(why)) => {
                    shared.tell(&channel.label, &why);
                    why
                }
                Err(error) => error.to_string(),
            },
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => error.to_string(),
        };
        shared.events.detail(format!("{}: {why}", channel.label));
        sleep(PAUSE).await;
    }
}

/// A waker among those of the streams, until it is dropped.
struct Registered<'a> {
    shared: &'a SourceShared,
    id: WayId,
}

impl Registered<'_> {
    fn new<'a>(shared: &'a SourceShared, waker: &Arc<Notify>) -> Registered<'a> {
        let id = shared.ways.next_id();
        shared.channels.register(id, Arc::clone(waker));
        Registered { shared, id }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.shared.channels.deregister(self.id);
    }
}
