//! The striped connection to the collector, opened again whenever it ends.

use std::pin::Pin;
use std::time::Duration;

use events::Events;
use peer::striped::path_state;
use stripe::{Connection, RouteChange, RouteEvent, RouteState};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep};

use events::PathEvent;

/// The pause before the first attempt to connect again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts: that long a collector that is back has nothing to do.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// A connection that lasted so long makes the next pause short again.
const LASTED: Duration = Duration::from_secs(10);

/// A striped connection to the collector.
pub struct Dialed {
    /// The connection.
    pub connection: Connection,
    /// What keeps it, as long as it lasts.
    pub keeper: Box<dyn Keeper>,
}

/// What keeps a striped connection: its endpoint, and the upkeep of its routes.
pub trait Keeper: Send {
    /// Closes the connection, and waits until the peer has been told.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl Keeper for peer::striped::Striped {
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.as_ref().close().await })
    }
}

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

/// Whether another attempt would fail in the same way.
pub(super) fn is_final(error: &peer::Error) -> bool {
    matches!(
        error,
        peer::Error::Usage(_) | peer::Error::WrongPeer { .. } | peer::Error::Refused { .. }
    )
}

/// Tells what becomes of the paths, for ever.
async fn tell_of_routes(connection: &Connection, events: &Events) {
    let tell = |RouteEvent { path, name, change, .. }| {
        if let Some((state, why)) = path_state(change) {
            events.path(PathEvent { path, name, state, why });
        }
    };
    let mut routes = connection.events();
    // What was open before anybody listened.
    for route in connection.stats().await.routes {
        if route.state == RouteState::Open {
            let (route, path, name) = (route.route, route.path, route.name);
            tell(RouteEvent { route, path, name, change: RouteChange::Opened });
        }
    }
    loop {
        match routes.recv().await {
            Ok(event) => tell(event),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
