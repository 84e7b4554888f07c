//! The side that dials targets: it lets peers in, and serves their streams.

mod listen;
mod session;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use peer::listen::{Refusals, TokenCheck};
use peer::{AuthorizedPeers, Fingerprint, Token};
use reach::{AskerLookups, ListenRights, Lookups, Reach};
use stripe::Connection;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::JoinSet;
use wire::tunnel::Parting;

use crate::bounds::{
    CONNECTIONS_EACH, MOST_CONNECTIONS, MOST_LISTENERS, Pace, raise_descriptor_limit,
};
use crate::event::Reports;

/// Who is let in.
#[derive(Debug, Default)]
pub struct FarOptions {
    /// Peers by their keys, with their rights.
    pub authorized: AuthorizedPeers,
    /// A token whose first holder is let in.
    pub token: Option<Token>,
    /// What the token's holder may reach.
    pub reach: Reach,
    /// Where the token's holder may have this host listen.
    pub listen: ListenRights,
}

/// What the sessions share.
struct FarShared {
    authorized: AuthorizedPeers,
    check: TokenCheck,
    reach: Reach,
    listen: ListenRights,
    admit: Box<dyn Fn(&Connection) + Send + Sync>,
    reports: Reports,
    refusals: Refusals,
    lookups: Lookups,
    peers: Mutex<HashMap<Fingerprint, Weak<Budget>>>,
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
}

/// Lets peers in and serves them until `accept` ends, which yields striped connections of any key.
/// `admit` is called for those of welcome peers, before anything else is sent to them.
pub async fn serve(
    accept: impl AsyncFn() -> Option<(Connection, Fingerprint)>,
    admit: impl Fn(&Connection) + Send + Sync + 'static,
    options: FarOptions,
    reports: Reports,
) {
    raise_descriptor_limit();
    let FarOptions { authorized, token, reach, listen } = options;
    let check = TokenCheck::new(token, None);
    let shared = Arc::new(FarShared {
        authorized,
        check,
        reach,
        listen,
        admit: Box::new(admit),
        reports,
        refusals: Refusals::default(),
        lookups: Lookups::new(),
        peers: Mutex::default(),
    });
    let mut sessions = JoinSet::new();
    let mut number = 0;
    while let Some((connection, key)) = accept().await {
        while sessions.try_join_next().is_some() {}
        number += 1;
        sessions.spawn(session::serve(connection, key, number, Arc::clone(&shared)));
    }
}

impl FarShared {
    /// The budget of a peer, which lasts as long as one of its sessions.
    fn budget(&self, key: Fingerprint) -> Arc<Budget> {
        let mut peers = self.peers.lock().expect("no panic while held");
        peers.retain(|_, budget| budget.strong_count() > 0);
        if let Some(budget) = peers.get(&key).and_then(Weak::upgrade) {
            return budget;
        }
        let budget = Arc::new(Budget::new(self.lookups.of(*key.as_bytes())));
        peers.insert(key, Arc::downgrade(&budget));
        budget
    }
}

impl Budget {
    fn new(lookups: AskerLookups) -> Budget {
        Budget {
            places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            listeners: Arc::new(Semaphore::new(MOST_LISTENERS)),
            pace: AsyncMutex::new(Pace::new()),
            lookups,
            connections: Mutex::default(),
        }
    }

    /// A further striped connection: the oldest of too many is closed.
    fn enter(&self, number: u64, connection: &Connection) {
        let mut connections = self.connections.lock().expect("no panic while held");
        connections.push_back((number, connection.clone()));
        if connections.len() > CONNECTIONS_EACH
            && let Some((_, oldest)) = connections.pop_front()
        {
            oldest.close(Parting::Replaced.code());
        }
    }

    fn leave(&self, number: u64) {
        let mut connections = self.connections.lock().expect("no panic while held");
        connections.retain(|(known, _)| *known != number);
    }
}
