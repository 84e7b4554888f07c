//! The side that listens: whose packet a datagram is, and what strangers get.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::{ServerConfig, Side};
use units::{SubflowId, Time};
use wire::datagram::{self, FULL, Level, Outer};

use crate::handshake::{Handshake, Progress};
use crate::labels::Labels;
use crate::secret::TOKEN_LIFE;
use crate::{Established, HandshakeError, Limits, Secret, Settings, SettingsError};
pub use stranger::address_block;
use stranger::{Newcomers, Rationed, Stranger};

mod stranger;

/// How many paths ahead of the latest one are expected.
const PATHS_AHEAD: u16 = 16;
/// The most labels of a connection at a time.
const MOST_LABELS: usize = 128;
/// Answers without state that wait to be sent.
const MOST_ANSWERS: usize = 64;
/// The most labels of ended paths of a connection that are remembered.
const MOST_RETIRED: usize = 256;
/// Labels of past handshakes that are remembered.
const MOST_SPENT: usize = 1_024;

/// A connection of a [`Listener`]; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// Where a data packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The connection.
    pub connection: ConnectionId,
    /// The path.
    pub path: SubflowId,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To this address.
    pub to: SocketAddr,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What has happened at a [`Listener`].
#[derive(Debug)]
pub enum ListenEvent {
    /// A peer has completed the handshake. Whether its key is welcome is the caller's decision.
    Established {
        /// The connection, until [`Listener::close`].
        connection: ConnectionId,
        /// The address of its last packet.
        from: SocketAddr,
        /// Its keys and parameters.
        established: Box<Established>,
    },
    /// A handshake has failed.
    Failed {
        /// The address of its last packet.
        from: SocketAddr,
        /// The reason.
        error: HandshakeError,
    },
}

/// A connection's labels.
struct Registered {
    labels: Labels,
    /// The paths whose labels are known.
    paths: BTreeSet<SubflowId>,
    /// The latest paths that have ended. Packets with their labels are not answered: with the
    /// answer to one, anybody who saw it could end the connection.
    retired: VecDeque<SubflowId>,
    /// The path behind the last one whose label was made.
    next: u16,
}

/// Accepts handshakes and finds the connection of each packet.
pub struct Listener {
    tls: Arc<ServerConfig>,
    settings: Arc<Settings>,
    limits: Limits,
    secret: Secret,
    /// Handshakes, by the label that the dialing side chose.
    strangers: BTreeMap<u64, Stranger>,
    /// Those that may have something to send or to tell.
    pending: BTreeSet<u64>,
    connections: BTreeMap<ConnectionId, Registered>,
    routes: BTreeMap<u64, Route>,
    /// The labels of [`Registered::retired`], of all connections.
    retired: BTreeSet<u64>,
    next_id: u64,
    /// Labels of past handshakes, each until a token for it is void.
    spent: BTreeSet<u64>,
    spent_until: VecDeque<(Time, u64)>,
    newcomers: Newcomers,
    answers: VecDeque<Transmit>,
    retries: Rationed,
    /// Of other answers.
    ration: Rationed,
    events: VecDeque<ListenEvent>,
}

impl Listener {
    /// Listens with these settings. `tls` has to demand the peer's key and to show ours.
    ///
    /// # Errors
    /// If the settings or the configuration are not usable.
    pub fn new(
        tls: &Arc<ServerConfig>,
        settings: &Arc<Settings>,
        limits: Limits,
        secret: Secret,
    ) -> Result<Listener, SettingsError> {
        settings.check_server(tls)?;
        Ok(Listener {
            tls: Arc::clone(tls),
            settings: Arc::clone(settings),
            limits,
            secret,
            strangers: BTreeMap::new(),
            pending: BTreeSet::new(),
            connections: BTreeMap::new(),
            routes: BTreeMap::new(),
            retired: BTreeSet::new(),
            next_id: 0,
            spent: BTreeSet::new(),
            spent_until: VecDeque::new(),
            answers: VecDeque::new(),
            retries: Rationed::new(limits.retries),
            newcomers: Newcomers::new(limits.handshakes_of_one),
            ration: Rationed::new(limits.answers),
            events: VecDeque::new(),
        })
    }

    /// Whether a label is that of a path of a connection, or of a handshake in progress.
    #[must_use]
    pub fn has_label(&self, label: u64) -> bool {
        self.routes.contains_key(&label) || self.strangers.contains_key(&label)
    }

    /// A datagram arrived. A data packet of a connection is the caller's to open, by
    /// [`Session::open`](crate::Session::open); everything else is dealt with here.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        packet: &mut [u8],
    ) -> Option<Route> {
        if let Some((version, label)) = Outer::version_and_label(packet)
            && !self.settings.versions.contains(&version)
        {
            if packet.len() >= FULL {
                self.answer(now, from, |bytes, listener| {
                    datagram::emit_versions(label, &listener.settings.versions, bytes);
                });
            }
            return None;
        }
        match Outer::parse(packet) {
            Ok(Outer::Data { label }) => {
                let route = self.routes.get(&label).copied();
                if route.is_none() && !self.retired.contains(&label) {
                    self.answer(now, from, |bytes, listener| {
                        datagram::emit_reset(label, listener.secret.reset_token(label), bytes);
                    });
                }
                route
            }
            Ok(Outer::Handshake { level, version, label, token, number_at }) => {
                if self.strangers.contains_key(&label) {
                    self.handle_known(now, from, label, (level, version, number_at), packet);
                } else if level == Level::Initial && packet.len() >= FULL {
                    let is_validated = self.secret.is_retry_token(now, from, version, label, token);
                    let header = (version, number_at);
                    self.handle_stranger(now, from, label, is_validated, header, packet);
                }
                None
            }
            // Answers go to the side that dials.
            Ok(Outer::Versions { .. } | Outer::Retry { .. } | Outer::Reset { .. }) | Err(_) => None,
        }
    }

    /// A packet of a handshake that is known.
    fn handle_known(
        &mut self,
        now: Time,
        from: SocketAddr,
        label: u64,
        (level, version, number_at): (Level, u32, usize),
        packet: &mut [u8],
    ) {
        let Some(stranger) = self.strangers.get_mut(&label) else { return };
        if version != stranger.handshake.version() || level == Level::Initial && packet.len() < FULL
        {
            return;
        }
        let is_opened = stranger.handshake.handle_packet(now, level, number_at, packet);
        stranger.handle_received(from, packet.len(), is_opened.then_some(level));
        self.pending.insert(label);
        self.collect(now, label);
    }

    /// The first packet of a handshake.
    fn handle_stranger(
        &mut self,
        now: Time,
        from: SocketAddr,
        label: u64,
        is_validated: bool,
        (version, number_at): (u32, usize),
        packet: &mut [u8],
    ) {
        self.forget_spent(now);
        if self.spent.contains(&label) {
            return;
        }
        let of_unknown = self.strangers.values().filter(|one| one.is_unknown()).count();
        if !is_validated && of_unknown >= self.limits.retry_from {
            if self.retries.take(now) {
                let token = self.secret.retry_token(now, from, version, label);
                self.push_answer(from, |bytes, _| {
                    datagram::emit_retry(version, label, &token, bytes);
                });
            }
            return;
        }
        if !self.newcomers.may_begin(now, from.ip()) {
            return;
        }
        let (tls, settings) = (&self.tls, &self.settings);
        let secret = self.secret.clone();
        let accepted = Handshake::accept(tls, settings, now, label, version, secret);
        let Ok(mut handshake) = accepted else { return };
        let len = packet.len();
        // What cannot be opened leaves nothing behind.
        if !handshake.handle_packet(now, Level::Initial, number_at, packet) {
            return;
        }
        // With retries, few are counted whose address is another's.
        self.newcomers.count(from.ip());
        if !self.make_room(from.ip(), is_validated) {
            return;
        }
        self.strangers.insert(label, Stranger::new(handshake, from, len, is_validated, now));
        self.pending.insert(label);
        self.collect(now, label);
    }

    /// Makes room for a handshake. Whether there is any. The oldest of those gives way whose
    /// address is not validated, or else the oldest of the block of addresses that has the
    /// most: whoever makes many crowds out their own.
    fn make_room(&mut self, from: IpAddr, is_validated: bool) -> bool {
        let in_progress = || self.strangers.iter().filter(|(_, one)| one.is_in_progress());
        if in_progress().count() < self.limits.handshakes {
            return true;
        }
        let mut crowds = BTreeMap::from([(address_block(from), 1_usize)]);
        for (_, one) in in_progress().filter(|(_, one)| !one.is_unknown()) {
            *crowds.entry(address_block(one.reply_to().ip())).or_default() += 1;
        }
        let crowd = |one: &Stranger| crowds.get(&address_block(one.reply_to().ip())).copied();
        let oldest = in_progress()
            .filter(|(_, one)| is_validated || one.is_unknown())
            .min_by_key(|(_, one)| (!one.is_unknown(), Reverse(crowd(one)), one.began()))
            .map(|(label, _)| *label);
        let Some(label) = oldest else { return false };
        if let Some(evicted) = self.strangers.remove(&label) {
            let (from, error) = (evicted.reply_to(), HandshakeError::Crowded);
            self.tell(ListenEvent::Failed { from, error });
        }
        self.pending.remove(&label);
        true
    }

    /// Takes what a handshake has come to.
    fn collect(&mut self, now: Time, label: u64) {
        while let Some(stranger) = self.strangers.get_mut(&label)
            && let Some(progress) = stranger.handshake.poll_progress()
        {
            let from = stranger.reply_to();
            // The peer may have to be told again.
            stranger.linger_until = Some(now + self.settings.handshake_time);
            match progress {
                Progress::Established(established) => {
                    let labels = stranger.handshake.labels().cloned();
                    let connection = ConnectionId(self.next_id);
                    self.next_id += 1;
                    let labels = labels.expect("made with the session");
                    let registered = Registered {
                        labels,
                        paths: BTreeSet::new(),
                        retired: VecDeque::new(),
                        next: 0,
                    };
                    self.connections.insert(connection, registered);
                    self.expect_paths(connection, PATHS_AHEAD);
                    self.drop_lingering(now);
                    self.tell(ListenEvent::Established { connection, from, established });
                }
                Progress::Failed(error) => {
                    self.drop_lingering(now);
                    self.tell(ListenEvent::Failed { from, error });
                }
                Progress::Confirmed(_) => {}
            }
        }
    }

    /// Events have to be polled; failures beyond a bound are not told.
    fn tell(&mut self, event: ListenEvent) {
        let is_failure = matches!(event, ListenEvent::Failed { .. });
        if !is_failure || self.events.len() < MOST_ANSWERS {
            self.events.push_back(event);
        }
    }

    /// The oldest of too many handshakes that are over is forgotten.
    fn drop_lingering(&mut self, now: Time) {
        let completed = || self.strangers.iter().filter(|(_, one)| !one.is_in_progress());
        if completed().count() > self.limits.lingering {
            let oldest = completed().min_by_key(|(_, one)| one.began()).map(|(label, _)| *label);
            if let Some(label) = oldest {
                self.strangers.remove(&label);
                self.pending.remove(&label);
                self.spend(now, label);
            }
        }
    }

    /// The caller has opened the first packet of a path: further paths may follow.
    pub fn handle_path_opened(&mut self, connection: ConnectionId, path: SubflowId) {
        self.expect_paths(connection, path.0.saturating_add(1 + PATHS_AHEAD));
    }

    /// Knows the labels of the paths up to `end`.
    fn expect_paths(&mut self, connection: ConnectionId, end: u16) {
        let Some(registered) = self.connections.get_mut(&connection) else { return };
        while registered.next < end && registered.paths.len() < MOST_LABELS {
            let path = SubflowId(registered.next);
            registered.next += 1;
            let label = registered.labels.label(Side::Client, path);
            // In the case, one in 2^64, that another connection has the label, the path stays shut.
            if let std::collections::btree_map::Entry::Vacant(entry) = self.routes.entry(label) {
                entry.insert(Route { connection, path });
                registered.paths.insert(path);
            }
        }
    }

    /// A path has ended: its label is unknown from here on.
    pub fn retire_path(&mut self, connection: ConnectionId, path: SubflowId) {
        if let Some(registered) = self.connections.get_mut(&connection)
            && registered.paths.remove(&path)
        {
            let label = registered.labels.label(Side::Client, path);
            self.routes.remove(&label);
            self.retired.insert(label);
            if registered.retired.len() >= MOST_RETIRED
                && let Some(oldest) = registered.retired.pop_front()
            {
                self.retired.remove(&registered.labels.label(Side::Client, oldest));
            }
            registered.retired.push_back(path);
        }
    }

    /// A connection has ended: all of its labels are unknown from here on.
    pub fn close(&mut self, connection: ConnectionId) {
        let Some(registered) = self.connections.remove(&connection) else { return };
        for path in registered.paths {
            self.routes.remove(&registered.labels.label(Side::Client, path));
        }
        for path in registered.retired {
            self.retired.remove(&registered.labels.label(Side::Client, path));
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        while let Some(label) = self.pending.first().copied() {
            if let Some(stranger) = self.strangers.get_mut(&label)
                && let Some(transmit) = stranger.poll_transmit(now)
            {
                return Some(transmit);
            }
            self.pending.remove(&label);
        }
        None
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<ListenEvent> {
        self.events.pop_front()
    }

    /// When [`Listener::handle_deadline`] is due.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.strangers.values().filter_map(Stranger::poll_deadline).min()
    }

    /// Repeats what was not acknowledged, gives up and forgets handshakes.
    pub fn handle_deadline(&mut self, now: Time) {
        let is_due = |stranger: &Stranger| stranger.poll_deadline().is_some_and(|at| at <= now);
        let due = self.strangers.iter().filter(|(_, one)| is_due(one));
        let due: Vec<u64> = due.map(|(label, _)| *label).collect();
        for label in due {
            let Some(stranger) = self.strangers.get_mut(&label) else { continue };
            if stranger.linger_until.is_some() {
                self.strangers.remove(&label);
                self.pending.remove(&label);
                self.spend(now, label);
            } else {
                stranger.handshake.handle_deadline(now);
                self.pending.insert(label);
                self.collect(now, label);
            }
        }
        self.forget_spent(now);
    }

    /// A token for this label is good for nothing more.
    fn spend(&mut self, now: Time, label: u64) {
        if self.spent_until.len() >= MOST_SPENT
            && let Some((_, oldest)) = self.spent_until.pop_front()
        {
            self.spent.remove(&oldest);
        }
        if self.spent.insert(label) {
            self.spent_until.push_back((now + TOKEN_LIFE, label));
        }
    }

    fn forget_spent(&mut self, now: Time) {
        while self.spent_until.front().is_some_and(|(until, _)| *until < now)
            && let Some((_, label)) = self.spent_until.pop_front()
        {
            self.spent.remove(&label);
        }
    }

    /// Queues a list of versions or a reset, unless there have been many.
    fn answer(&mut self, now: Time, to: SocketAddr, emit: impl FnOnce(&mut Vec<u8>, &Listener)) {
        if self.ration.take(now) {
            self.push_answer(to, emit);
        }
    }

    fn push_answer(&mut self, to: SocketAddr, emit: impl FnOnce(&mut Vec<u8>, &Listener)) {
        if self.answers.len() < MOST_ANSWERS {
            let mut bytes = Vec::new();
            emit(&mut bytes, self);
            self.answers.push_back(Transmit { to, bytes });
        }
    }

    /// How many labels are remembered: what peers cost in memory.
    #[must_use]
    pub fn labels(&self) -> usize {
        self.routes.len() + self.retired.len()
    }

    /// How many handshakes are in progress or remembered: what strangers cost in memory.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.strangers.len()
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("handshakes", &self.strangers.len())
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}
