//! What a relay remembers of its hosts: their tickets, what was done for each, and their control
//! connections.

use events::Events;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use net::Clock;
use peer::{AuthorizedPeers, Fingerprint, Peer, Timetable};
use reach::Lookups;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use wire::meet::Place;
use wire::relay::Ticket;
use wire::tunnel::Target;

use crate::bounds::CONTROLS_EACH;
use crate::datagrams::Datagrams;
use crate::keys::{KeyState, Keys};
use crate::meetings::{Guest, Meetings};
use crate::rights::RelayRights;
use crate::tickets::Tickets;
use crate::told::Told;

/// What a relay needs to know.
pub struct RelayOptions {
    /// The peers that its host knows by key: the same list as the host's.
    pub authorized: AuthorizedPeers,
    /// The rights of who holds the host's token.
    pub of_token: RelayRights,
    /// The bound of what all paths move together, in both directions, over the week; `None`: there
    /// is none.
    pub max_rate: Option<Timetable>,
    /// The folder with the monthly counts of keys that have a cap; without one, such keys are
    /// refused.
    pub usage: Option<PathBuf>,
    /// Whether hosts may wait here, and whoever holds their tokens or codes come as guests.
    pub takes_guests: bool,
    /// Where each path is told.
    pub events: Events,
}

/// What a relay remembers.
pub(crate) struct RelayState {
    pub(crate) options: RelayOptions,
    pub(crate) clock: Clock,
    pub(crate) keys: Keys,
    pub(crate) lookups: Lookups,
    /// The UDP side, if there is one.
    pub(crate) datagrams: OnceLock<Datagrams>,
    /// Hosts that wait here.
    pub(crate) meetings: Meetings,
    tickets: Mutex<Tickets<Fingerprint, Arc<Permit>>>,
    controls: Mutex<BTreeMap<Fingerprint, VecDeque<mpsc::Sender<Told>>>>,
    /// Whether the relay stops.
    draining: watch::Sender<bool>,
}

/// What a host may do whose control connection is open.
pub struct RelayGrant {
    pub(crate) rights: RelayRights,
    pub(crate) known: Option<Peer>,
    pub(crate) label: String,
    /// If it is a guest: whose.
    pub(crate) guest: Option<Guest>,
}

/// What a ticket stands for.
pub(crate) struct Permit {
    pub(crate) destination: Destination,
    pub(crate) rights: RelayRights,
    /// The entry of the key when the ticket was issued; of a guest's that of its host.
    pub(crate) known: Option<Peer>,
    pub(crate) key: Arc<KeyState>,
    /// Where the host is told what became of the connection.
    pub(crate) control: mpsc::Sender<Told>,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// To a host that is dialed.
    Target(Target),
    /// To the host that waits at this place.
    Waiting(Place),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Target(target) => target.fmt(f),
            Destination::Waiting(_) => f.write_str("the host that waits here"),
        }
    }
}

/// Failures that a control connection remembers until they are sent; further ones are not told.
const MOST_TOLD: usize = 64;

impl RelayState {
    pub(crate) fn new(options: RelayOptions) -> RelayState {
        RelayState {
            options,
            clock: Clock::start(),
            keys: Keys::default(),
            lookups: Lookups::new(),
            datagrams: OnceLock::new(),
            meetings: Meetings::default(),
            tickets: Mutex::default(),
            controls: Mutex::default(),
            draining: watch::Sender::new(false),
        }
    }

    /// Begins to count against the cap of a key, if it has one.
    ///
    /// # Errors
    /// Why it may move nothing.
    pub(crate) async fn prepare(
        &self,
        key: Fingerprint,
        grant: &RelayGrant,
    ) -> Result<Arc<KeyState>, String> {
        let state = self.keys.of(key, &grant.label);
        let cap = grant.rights.cap;
        let Some(usage) = self.options.usage.clone() else {
            return if cap.is_none() { Ok(state) } else { Err("it keeps no count".into()) };
        };
        let own = Arc::clone(&state);
        let set = spawn_blocking(move || own.set_cap(&usage, cap)).await;
        set.expect("counting does not panic").map_err(|error| error.to_string())?;
        Ok(state)
    }

    /// Learns when the relay stops.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Stops: control connections tell their hosts so.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Takes a ticket that a connection shows: whose it is, and what it stands for.
    pub(crate) fn spend(&self, ticket: &Ticket) -> Option<(Fingerprint, Arc<Permit>)> {
        self.tickets().spend(self.clock.now(), ticket)
    }

    pub(crate) fn tickets(&self) -> MutexGuard<'_, Tickets<Fingerprint, Arc<Permit>>> {
        self.tickets.lock().expect("no panic while held")
    }

    /// A further control connection of a key, and what it is to tell: the oldest of too many ends.
    pub(crate) fn enter(&self, key: Fingerprint) -> (mpsc::Sender<Told>, mpsc::Receiver<Told>) {
        let (tell, told) = mpsc::channel(MOST_TOLD);
        let mut controls = self.controls.lock().expect("no panic while held");
        controls.retain(|_, own| {
            own.retain(|other| !other.is_closed());
            !own.is_empty()
        });
        let own = controls.entry(key).or_default();
        if own.len() >= CONTROLS_EACH {
            own.pop_front();
        }
        own.push_back(tell.clone());
        (tell, told)
    }

    /// Whether a control connection is among those of its key that stay.
    pub(crate) fn is_current(&self, key: Fingerprint, own: &mpsc::Sender<Told>) -> bool {
        let controls = self.controls.lock().expect("no panic while held");
        controls.get(&key).is_some_and(|all| all.iter().any(|other| other.same_channel(own)))
    }
}
