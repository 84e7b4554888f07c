//! A striped connection whose owner opens another one when it has ended.

use std::fmt;
use std::pin::Pin;

use events::{Events, PathEvent};
use stripe::{Connection, RouteEvent};
use tokio::sync::broadcast::error::RecvError;

use super::{Striped, path_state, so_far};
use crate::Error;

/// A striped connection to a peer.
pub struct Dialed {
    /// The connection.
    pub connection: Connection,
    /// What keeps it, as long as it lasts.
    pub keeper: Box<dyn Upkeep>,
}

/// What keeps a striped connection: its endpoint, and the upkeep of its routes.
pub trait Upkeep: Send {
    /// Closes the connection, and waits until the peer has been told.
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl Upkeep for Striped {
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.as_ref().close().await })
    }
}

impl From<Striped> for Dialed {
    fn from(striped: Striped) -> Dialed {
        Dialed { connection: striped.connection().clone(), keeper: Box::new(striped) }
    }
}

impl fmt::Debug for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialed").field(&self.connection).finish()
    }
}

/// Whether another attempt to connect would fail in the same way.
#[must_use]
pub fn is_final(error: &Error) -> bool {
    matches!(error, Error::Usage(_) | Error::WrongPeer { .. } | Error::Refused { .. })
}

/// Tells what becomes of the paths of a connection, for ever.
pub async fn tell_of_routes(connection: &Connection, events: &Events) {
    let tell = |RouteEvent { path, name, change, .. }| {
        if let Some((state, why)) = path_state(change) {
            events.path(PathEvent { path, name, state, why });
        }
    };
    let mut routes = connection.events();
    // What happened before anybody listened.
    for route in connection.stats().await.routes {
        if let Some(change) = so_far(&route) {
            let (route, path, name) = (route.route, route.path, route.name);
            tell(RouteEvent { route, path, name, change });
        }
    }
    loop {
        match routes.recv().await {
            Ok(event) => tell(event),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
