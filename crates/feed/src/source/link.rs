//! The striped connection to the collector, opened again whenever it ends.

use std::time::Duration;

use events::Events;
use peer::striped::{Dialed, is_final, tell_of_routes};
use stripe::Connection;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The pause before the first attempt to connect again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts: that long a collector that is back has nothing to do.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// A connection that lasted so long makes the next pause short again.
const LASTED: Duration = Duration::from_secs(10);

/// Connects, again and again, until `over`; tells `holder` of each connection. Without a first
/// connection for so long it gives up.
///
/// # Errors
/// What no further attempt would change, or the last failure.
pub(super) async fn keep(
    dial: impl AsyncFn() -> Result<Dialed, peer::Error>,
    patience: Option<Duration>,
    events: &Events,
    holder: &watch::Sender<Option<Connection>>,
    over: impl Future<Output = ()>,
) -> Result<(), peer::Error> {
    let mut over = std::pin::pin!(over);
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
                holder.send_replace(Some(connection.clone()));
                let why = tokio::select! {
                    biased;
                    () = &mut over => {
                        keeper.close().await;
                        return Ok(());
                    }
                    error = connection.ended() => error.to_string(),
                    () = tell_of_routes(&connection, events) => unreachable!("it never ends"),
                };
                holder.send_replace(None);
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
