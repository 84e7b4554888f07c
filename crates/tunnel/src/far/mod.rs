//! The side that dials targets: it lets peers in, and serves their streams.

mod listen;
mod metrics;
mod rights;
mod session;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use peer::descriptors;
use peer::host::{Asking, Entry, Service, SessionRequest};
use peer::listen::TokenRefusal;
use peer::metrics::Registry;
use peer::{Conn, Fingerprint, Peer};
use reach::{AskerLookups, Lookups};
use stripe::Connection;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::closing::CloseCode;
use wire::session::SessionId;
use wire::tunnel::SERVICE;

use crate::TunnelRights;
use crate::bounds::{CONNECTIONS_EACH, MOST_CONNECTIONS, MOST_LISTENERS, Pace};
use events::Events;
use metrics::TunnelMetrics;
use rights::PeerRights;

/// The service that dials targets, and listens, for peers of a host.
pub struct TunnelService {
    /// The rights of who holds the host's token.
    of_token: TunnelRights,
    events: Events,
    lookups: Lookups,
    peers: Mutex<HashMap<Fingerprint, Weak<Budget>>>,
    next: AtomicU64,
    metrics: TunnelMetrics,
}

/// What a peer takes of this host, over all its connections.
struct Budget {
    /// A place for each connection to a target.
    places: Arc<Semaphore>,
    /// A place for each port.
    listeners: Arc<Semaphore>,
    pace: AsyncMutex<Pace>,
    lookups: AskerLookups,
    /// Its striped connections, oldest first.
    connections: Mutex<VecDeque<(u64, Connection)>>,
    /// Those of the service.
    metrics: TunnelMetrics,
}

/// How long a connection may give no sign of life, once another one of its peer wants its port.
const LIFE_PATIENCE: Duration = Duration::from_secs(2);

impl TunnelService {
    /// A service that lets in who has rights, and who holds the host's token, with the rights
    /// `of_token`.
    #[must_use]
    pub fn new(of_token: TunnelRights, events: Events) -> Arc<TunnelService> {
        descriptors::raise_limit();
        let (lookups, peers) = (Lookups::new(), Mutex::default());
        let (next, metrics) = (AtomicU64::new(0), TunnelMetrics::new());
        Arc::new(TunnelService { of_token, events, lookups, peers, next, metrics })
    }

    /// The budget of a peer, which lasts as long as one of its sessions.
    fn budget(&self, key: Fingerprint) -> Arc<Budget> {
        let mut peers = self.peers.lock().expect("no panic while held");
        peers.retain(|_, budget| budget.strong_count() > 0);
        if let Some(budget) = peers.get(&key).and_then(Weak::upgrade) {
            return budget;
        }
        let budget = Arc::new(Budget::new(self.lookups.of(*key.as_bytes()), self.metrics.clone()));
        peers.insert(key, Arc::downgrade(&budget));
        budget
    }
}

impl Service for TunnelService {
    type Session = Infallible;
    type Grant = PeerRights;

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "dials for tunnels"
    }

    fn takes_whole(&self) -> bool {
        true
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<PeerRights, String> {
        let name = asking.known.map_or_else(|| asking.peer.to_string(), Peer::label);
        let own = asking.known.map(TunnelRights::of).filter(|own| !own.is_empty());
        let held = asking.holds_token();
        let of_token = || held.map(|()| self.of_token.clone()).ok().filter(|own| !own.is_empty());
        let rights = match (own, of_token()) {
            (Some(own), Some(of_token)) => Some(own.and(of_token)),
            (own, of_token) => own.or(of_token),
        };
        if let Some(rights) = rights {
            return Ok(PeerRights { rights, name });
        }
        let peer = asking.peer;
        Err(match held {
            Err(TokenRefusal::Wrong) => {
                "the token is not the one that this host printed; each start prints a new one"
                    .into()
            }
            Err(TokenRefusal::Taken) => "the token is another host's".into(),
            Err(TokenRefusal::NotShown) | Ok(()) => format!(
                "no token that opens tunnels was shown, and the key {peer} may reach nothing \
                 through this host: 'anabranch keys trust sender {peer} --tunnel HOST:PORTS', \
                 there, lets it"
            ),
        })
    }

    fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    async fn serve(self: Arc<Self>, conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        let request = match entry {
            Entry::Join(session) => match session {},
            Entry::Open(request) => request,
        };
        let SessionRequest { grant, peer, whole, .. } = request;
        let connection = whole.expect("the service takes whole connections");
        session::serve(&connection, conn, peer, grant, &self).await;
    }
}

impl Budget {
    fn new(lookups: AskerLookups, metrics: TunnelMetrics) -> Budget {
        Budget {
            places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            listeners: Arc::new(Semaphore::new(MOST_LISTENERS)),
            pace: AsyncMutex::new(Pace::new()),
            lookups,
            connections: Mutex::default(),
            metrics,
        }
    }

    /// A further striped connection: the oldest of too many is closed.
    fn enter(&self, number: u64, connection: &Connection) {
        let mut connections = self.connections.lock().expect("no panic while held");
        connections.push_back((number, connection.clone()));
        if connections.len() > CONNECTIONS_EACH
            && let Some((_, oldest)) = connections.pop_front()
        {
            oldest.close(CloseCode::Replaced.number());
        }
    }

    /// Closes the peer's connections, other than `own`, of which nothing is heard: their near sides
    /// were killed, and hold ports that the peer asks for again. Returns whether there were any.
    async fn close_dead(&self, own: &Connection) -> bool {
        let all = self.connections.lock().expect("no panic while held").clone();
        let mut asking = JoinSet::new();
        for (_, other) in all.into_iter().filter(|(_, other)| other != own) {
            asking.spawn(async move {
                let is_alive =
                    matches!(timeout(LIFE_PATIENCE, other.sign_of_life()).await, Ok(Ok(())));
                if !is_alive {
                    other.close(CloseCode::Replaced.number());
                }
                is_alive
            });
        }
        asking.join_all().await.contains(&false)
    }

    fn leave(&self, number: u64) {
        let mut connections = self.connections.lock().expect("no panic while held");
        connections.retain(|(known, _)| *known != number);
    }
}
