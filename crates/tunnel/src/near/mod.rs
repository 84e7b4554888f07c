//! The side at which programs connect: proxies and forwarded ports here, the striped connection to
//! the far side, and what the far side accepts on behalf of this one.

mod crowds;
mod link;
mod reverse;
mod serve;

use std::sync::Arc;

use peer::descriptors;
use peer::striped::Dialed;
use reach::{AskerLookups, Lookups};
use stripe::Connection;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::bounds::{GREETINGS, MOST_CONNECTIONS};
use crate::greetings::Greetings;
use crate::local::Door;
use crate::place::{Forward, Place};
use crate::{Login, TunnelError};
use crowds::Crowds;
use events::Events;
use serve::Purpose;

/// What the near side listens for.
#[derive(Clone, Debug, Default)]
pub struct NearOptions {
    /// Places of SOCKS5 proxies.
    pub socks: Vec<Place>,
    /// Places of HTTP proxies.
    pub http: Vec<Place>,
    /// Ports here, to targets at the far side.
    pub forwards: Vec<Forward>,
    /// Ports at the far side, to targets here.
    pub reverse: Vec<Forward>,
    /// Places to which the kernel redirects connections.
    pub transparent: Vec<Place>,
    /// What clients of proxies have to show.
    pub login: Option<Login>,
    /// The secret of the token that lets this host in.
    pub secret: Option<[u8; 16]>,
}

/// What the tasks of the near side share.
struct NearShared {
    link: watch::Receiver<Option<Connection>>,
    /// A place for each connection that has a target.
    places: Arc<Semaphore>,
    greetings: Greetings,
    /// Intercepted connections, which may come from other hosts.
    intercepted: Crowds,
    login: Option<Login>,
    events: Events,
    lookups: AskerLookups,
}

/// Opens what listens here, then dials the peer, and carries connections until the peer refuses
/// this host, or until `stop`. `dial` opens a striped connection; it is called again when
/// one has ended.
///
/// # Errors
/// [`TunnelError`], if a place is taken, or there is no connection to the peer at first.
pub async fn run(
    dial: impl AsyncFn() -> Result<Dialed, peer::Error>,
    options: NearOptions,
    events: Events,
    stop: impl Future<Output = ()>,
) -> Result<(), TunnelError> {
    descriptors::raise_limit();
    let mut doors = Vec::new();
    let NearOptions { socks, http, forwards, reverse, transparent, login, secret } = options;
    let socks = socks.into_iter().map(|place| (place, Purpose::Socks));
    let http = http.into_iter().map(|place| (place, Purpose::Http));
    let forwards = forwards.into_iter().map(|f| (f.place, Purpose::Forward(f.target)));
    let transparent = transparent.into_iter().map(|place| (place, Purpose::Transparent));
    for (place, purpose) in socks.chain(http).chain(forwards).chain(transparent) {
        let is_transparent = purpose == Purpose::Transparent;
        let opened = Door::open(&place, is_transparent)
            .map_err(|(place, source)| TunnelError::listen(place, source, is_transparent))?;
        doors.extend(opened.into_iter().map(|door| (door, purpose.clone())));
    }
    let (holder, link) = watch::channel(None);
    let shared = Arc::new(NearShared {
        link,
        places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
        login,
        events: events.clone(),
        greetings: Greetings::new(GREETINGS),
        intercepted: Crowds::new(MOST_CONNECTIONS),
        lookups: Lookups::new().of(None),
    });
    let mut tasks = JoinSet::new();
    // Programs may connect already, and wait for the peer.
    for (door, purpose) in doors {
        events.accepting(purpose.name(), &door);
        tasks.spawn(serve::serve(door, purpose, Arc::clone(&shared)));
    }
    link::keep(dial, secret, &reverse, &shared, &holder, stop).await
}
