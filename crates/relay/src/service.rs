//! The service of a host that relays: who may have tickets, and what a ticket opens.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use net::Clock;
use peer::host::{Asking, BARE, Entry, Service, SessionRequest, Tell};
use peer::listen::TokenRefusal;
use peer::metrics::{Counter, Registry, register_budget};
use peer::places::{Places, WorkPlace};
use peer::{AuthorizedPeers, Conn, Fingerprint, Peer};
use reach::{For, Lookups, dial};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{interval, timeout};
use units::Rate;
use wire::relay::{Reason, SERVICE, Ticket};
use wire::session::SessionId;
use wire::tunnel::{Code, Target};

use crate::bounds::{
    CONTROLS_EACH, DRAIN, HALF_OPEN_EACH, HALF_OPEN_IN_ALL, HALF_OPEN_PATIENCE, PATHS_EACH,
    PATHS_IN_ALL,
};
use crate::control;
use crate::keys::{KeyFigures, KeyState, Keys};
use crate::meter::{Divider, PathMeter};
use crate::path::carry;
use crate::rights::RelayRights;
use crate::tickets::Tickets;

/// What a relay needs to know.
pub struct RelayOptions {
    /// The peers that its host knows by key: the same list as the host's.
    pub authorized: AuthorizedPeers,
    /// The rights of who holds the host's token.
    pub of_token: RelayRights,
    /// The bound of what all paths move together, in both directions; `None`: there is none.
    pub max_rate: Option<Rate>,
    /// The folder with the monthly counts of keys that have a cap; without one, such keys are
    /// refused.
    pub usage: Option<PathBuf>,
    /// Where people are told what happens, if they want to know of each path.
    pub detail: Option<Tell>,
}

/// The service that carries connections for peers of a host.
pub struct RelayService {
    pub(crate) options: RelayOptions,
    pub(crate) clock: Clock,
    tickets: Mutex<Tickets<Fingerprint, Arc<Permit>>>,
    lookups: Lookups,
    half_open: Arc<Places>,
    paths: Arc<Places>,
    keys: Keys,
    divider: Arc<Divider>,
    controls: Mutex<BTreeMap<Fingerprint, VecDeque<mpsc::Sender<Told>>>>,
    /// Whether the relay stops.
    draining: watch::Sender<bool>,
    unknown: Counter,
}

/// What a host may do whose control connection is open.
pub struct RelayGrant {
    pub(crate) rights: RelayRights,
    pub(crate) known: Option<Peer>,
    pub(crate) label: String,
}

/// What a ticket stands for.
pub(crate) struct Permit {
    pub(crate) target: Target,
    pub(crate) rights: RelayRights,
    /// The entry of the key when the ticket was issued.
    pub(crate) known: Option<Peer>,
    pub(crate) key: Arc<KeyState>,
    /// Where the host is told what became of the connection.
    pub(crate) control: mpsc::Sender<Told>,
}

/// What a control connection has to tell its host.
pub(crate) enum Told {
    Failed(Ticket, Reason),
}

/// The time between counts against monthly caps.
const CHARGE_EVERY: Duration = Duration::from_secs(1);
/// Failures that a control connection remembers until they are sent; further ones are not told.
const MOST_TOLD: usize = 64;

impl RelayService {
    /// A relay that nobody uses yet.
    #[must_use]
    pub fn new(options: RelayOptions) -> Arc<RelayService> {
        let clock = Clock::start();
        Arc::new(RelayService {
            divider: Divider::new(clock, options.max_rate),
            options,
            clock,
            tickets: Mutex::default(),
            lookups: Lookups::new(),
            half_open: Places::new(HALF_OPEN_IN_ALL, HALF_OPEN_EACH),
            paths: Places::new(PATHS_IN_ALL, PATHS_EACH),
            keys: Keys::default(),
            controls: Mutex::default(),
            draining: watch::Sender::new(false),
            unknown: Counter::default(),
        })
    }

    /// Divides the rate among paths and counts against monthly caps, as long as it is polled: it
    /// never ends.
    pub async fn attend(&self) {
        let counting = async {
            let mut ticks = interval(CHARGE_EVERY);
            loop {
                ticks.tick().await;
                let keys = self.keys.clone();
                spawn_blocking(move || keys.charge()).await.expect("counting does not panic");
            }
        };
        tokio::select! {
            () = self.divider.run() => {}
            () = counting => {}
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

    /// What was done for each key.
    #[must_use]
    pub fn figures(&self) -> Vec<KeyFigures> {
        self.keys.figures()
    }

    /// Stops: issues no further tickets and tells the peers so, and waits until there are no paths,
    /// for 30 s at most. Whatever is left ends with the host.
    pub async fn drain(&self) {
        self.draining.send_replace(true);
        let empty = async {
            while self.paths.count() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = timeout(DRAIN, empty).await;
    }

    /// Learns when the relay stops.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
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

    /// Carries the connection that showed a ticket. Nobody is told anything on it.
    async fn relay(&self, stream: TcpStream, ticket: Ticket) {
        let Some((key, permit)) = self.tickets().spend(self.clock.now(), &ticket) else {
            self.unknown.inc();
            return;
        };
        let ended = tokio::select! {
            // Rights are looked at before anybody is dialed.
            biased;
            () = self.options.authorized.changed(key, permit.known.as_ref()) => {
                Err(Reason::new(Code::Forbidden, "the rights of this host have changed there"))
            }
            why = permit.key.until_used_up() => Err(Reason::new(Code::Forbidden, &why)),
            ended = self.connect(stream, key, &permit) => ended,
        };
        let how = match ended {
            Ok(how) => how,
            Err(reason) => {
                permit.key.refuse();
                let text = reason.text.clone();
                // A host that has gone, or reads nothing, is not waited for.
                let _ = permit.control.try_send(Told::Failed(ticket, reason));
                text
            }
        };
        if let Some(tell) = &self.options.detail {
            tell(format!("{} to {}: {how}", permit.key.label(), permit.target));
        }
    }

    /// Dials the destination, and moves bytes until the path ends. Returns how it ended.
    async fn connect(
        &self,
        stream: TcpStream,
        key: Fingerprint,
        permit: &Permit,
    ) -> Result<String, Reason> {
        let busy = |text| Reason::new(Code::Busy, text);
        let place = self.paths.try_take(key);
        let _path = place.ok_or_else(|| busy("the relay has as many paths as it takes"))?;
        let half_open = self.half_open(key).await?;
        let lookups = self.lookups.of(*key.as_bytes());
        let dialed = dial(&permit.target, For::Peer(&permit.rights.reach), &lookups).await?;
        let failed =
            |error: &io::Error| Reason::new(Code::Failed, &format!("{}: {error}", permit.target));
        net::socket::tune(&dialed).map_err(|error| failed(&error))?;
        let _open = permit.key.open();
        let meters = [true, false].map(|is_up| {
            let meter = PathMeter::new(&permit.key, is_up);
            if self.options.max_rate.is_none() && permit.rights.max.is_none() {
                return meter;
            }
            meter.within(&self.divider, permit.rights.max)
        });
        match carry([stream, dialed], meters, self.clock, half_open).await {
            Ok(()) => Ok("ended".into()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let text = format!("{} has accepted, and says nothing", permit.target);
                Err(Reason::new(Code::TimedOut, &text))
            }
            Err(error) => Ok(format!("reset: {error}")),
        }
    }

    /// A place for a connection whose destination has said nothing yet.
    async fn half_open(&self, key: Fingerprint) -> Result<WorkPlace, Reason> {
        let place = timeout(HALF_OPEN_PATIENCE, self.half_open.take(key)).await;
        place.map_err(|_| {
            Reason::new(Code::Busy, "too many connections of this host wait for an answer there")
        })
    }
}

impl Service for RelayService {
    type Session = Infallible;
    type Grant = RelayGrant;

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "relays"
    }

    fn takes_bare(&self, first: u8) -> bool {
        Ticket::may_begin_with(first)
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<RelayGrant, String> {
        let (known, peer) = (asking.known.cloned(), asking.peer);
        let label = known.as_ref().map_or_else(|| peer.to_string(), Peer::label);
        let own = known.as_ref().map(RelayRights::of).filter(|own| !own.is_empty());
        if let Some(rights) = own {
            return Ok(RelayGrant { rights, known, label });
        }
        match asking.holds_token() {
            Ok(()) => Ok(RelayGrant { rights: self.options.of_token.clone(), known, label }),
            Err(TokenRefusal::Wrong) => {
                Err("the token is not the one that this relay printed; each start prints a new one"
                    .into())
            }
            Err(TokenRefusal::Taken) => Err("the token is another host's".into()),
            Err(TokenRefusal::NotShown) => Err(format!(
                "the key {peer} may not use this relay: 'anabranch keys trust sender {peer} NAME \
                 --may relay', there, lets it"
            )),
        }
    }

    fn register(&self, registry: &mut Registry) {
        self.keys.register(registry);
        let help = "Data connections whose ticket was not issued, had lapsed or was shown before";
        registry.register("unknown_tickets", help, self.unknown.clone());
        for (name, what, places) in [
            ("path_places", "Paths in all", &self.paths),
            ("half_open", "Paths whose destination has said nothing yet", &self.half_open),
        ] {
            let (most, places) = (places.most() as u64, Arc::clone(places));
            register_budget(registry, name, what, None, most, move || places.count() as u64);
        }
    }

    async fn serve(self: Arc<Self>, conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        let request = match entry {
            Entry::Join(session) => match session {},
            Entry::Open(request) => request,
        };
        let SessionRequest { grant, peer, opening, .. } = request;
        // No other connection joins: nobody waits for a session.
        drop(opening);
        control::serve(&self, conn, peer, grant).await;
    }

    async fn serve_bare(self: Arc<Self>, stream: TcpStream, begin: [u8; BARE], _: SocketAddr) {
        if let Some(ticket) = Ticket::of_octets(begin) {
            self.relay(stream, ticket).await;
        }
    }
}
