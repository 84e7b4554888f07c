//! One open connection: its state machines, its streams and routes, and the program's ends.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::cc::Divided;
use ptcp::{Config, Event};
use secure::{ConnectionId, DialEvent, Dialer, Established, ResetTokens, Session};
use tokio::sync::oneshot;
use units::{Bytes, PathId, Span, SubflowId, Time};
use wire::closing::CloseCode;
use wire::effort::Effort;
use wire::ptcp::ConnectionParameters;

use super::carried::CarriedBytes;
use super::entrusted::Entrusted;
use super::holdings::{Holdings, early_streams};
use super::listening::Listener;
use super::routes::RouteEnd;
use super::signs::Signs;
use super::sockets::{SocketKey, Sockets};
use super::standings::Standings;
use super::streams::{StreamEntry, WaitingForStream};
use crate::background::Member;
use crate::clock::StampedClock;
use crate::connection::inbox::{Inbox, Key};
use crate::connection::{Agreed, Connection, DriverEnds};
use crate::memory::{PeerKey, Share};
use crate::qlog::Log;
use crate::stats::{RouteChange, RouteState, Stats};
use crate::tokens::SystemTokens;
use crate::{ConnectError, ConnectionError, Options, Route, RouteId, StreamError, TotalRate};

/// The interval of counters that are written down.
const RECENT: Span = Span::from_millis(50);
/// The code of a connection that is one too many for the side that listens.
const CROWDED: u32 = CloseCode::Crowded.number();
/// The code of a connection whose last route carries no full packets.
pub(super) const NARROW: u32 = CloseCode::Narrow.number();

/// An open connection.
pub(super) struct Link {
    pub(super) key: Key,
    pub(super) inbox: Arc<Inbox>,
    pub(super) is_client: bool,
    /// The handshake of the side that dialed, until the peer has completed it.
    pub(super) dialer: Option<Dialer>,
    pub(super) resets: Option<ResetTokens>,
    /// The connection's name at the listener.
    pub(super) listed: Option<ConnectionId>,
    /// What the listener has yet to be told: paths that were opened, and that were retired.
    pub(super) opened_paths: Vec<SubflowId>,
    retired_paths: Vec<SubflowId>,
    /// Paths that lose full packets and carry small ones.
    pub(super) narrow_paths: Vec<SubflowId>,
    pub(super) session: Session,
    pub(super) core: ptcp::Connection,
    /// Its part of the controller of its peer, for what is in the background.
    pub(super) member: Member,
    /// That of all its paths.
    pub(super) effort: Effort,
    pub(super) routes: BTreeMap<RouteId, RouteEnd>,
    pub(super) route_of: HashMap<SubflowId, RouteId>,
    /// The largest packet number that arrived over each path: a packet with a larger one says where
    /// the peer is.
    pub(super) largest: HashMap<SubflowId, u64>,
    pub(super) next_route: u32,
    /// Relays know the labels of paths below this number.
    pub(super) labelled: u16,
    /// When the preambles of routes are due.
    pub(super) leads_due: Option<Time>,
    /// What its paths are for.
    pub(super) standings: Standings,
    pub(super) streams: HashMap<u32, StreamEntry>,
    /// Those of them that were opened here.
    pub(super) own_streams: usize,
    pub(super) next_of_peer: u32,
    pub(super) waiting_for_streams: VecDeque<WaitingForStream>,
    /// Datagrams that the state machine knows to wait.
    pub(super) datagrams: VecDeque<Vec<u8>>,
    pub(super) entrusted: Entrusted,
    /// As [`Options::unsent`].
    pub(super) unsent: Bytes,
    pub(super) holdings: Holdings,
    /// What a peer may send at first.
    pub(super) first_buffer: Bytes,
    /// The peer's key, by which its connections are counted.
    pub(super) peer_key: PeerKey,
    /// A bound that it shares with other connections.
    pub(super) max_rate: Option<TotalRate>,
    pub(super) keep_alive: Option<Span>,
    /// The silence over all routes, for the side that listens.
    pub(super) signs: Signs,
    /// When a packet arrived last, or a sign of life was asked for.
    pub(super) heard_at: Time,
    pub(super) ends: DriverEnds,
    /// When the peer's word counts that it knows the connection no more.
    pub(super) reset_at: Option<Time>,
    /// Whether the peer's host has refused a packet, and nothing came from there since.
    pub(super) has_refused: bool,
    /// Those who want to know when something arrives.
    pub(super) asked: Vec<oneshot::Sender<()>>,
    /// The latest time that the state machine knows.
    pub(super) latest: Time,
    pub(super) error: Option<ConnectionError>,
    /// Whether it had no place: it is forgotten once the peer was told, and waits for nothing.
    is_refused: bool,
    /// When the counters are written down for the program.
    recent_at: Option<Time>,
    pub(super) carried: CarriedBytes,
    /// The connection's log, if it has one.
    pub(super) log: Option<Log>,
    pub(super) due: Option<Time>,
}

/// What a stranger may do at the side that listens, and what it is told.
pub(super) fn early(config: &Config, buffer: Bytes) -> Config {
    Config {
        receive_buffer: config.receive_buffer.min(buffer),
        max_streams: early_streams(config.max_streams),
        ..config.clone()
    }
}

/// What a connection begins with.
pub(super) struct Start<'a> {
    pub(super) now: Time,
    pub(super) key: Key,
    pub(super) options: Options,
    pub(super) remote: SocketAddr,
    pub(super) inbox: &'a Arc<Inbox>,
    /// The memory of a connection that is counted.
    pub(super) share: Option<Share>,
}

impl Link {
    fn new(
        start: Start<'_>,
        established: Established,
        is_client: bool,
    ) -> Result<(Link, Connection), ConnectError> {
        let Start { now, key, options, remote, inbox, share } = start;
        let Established { session, peer_key, parameters, protocol } = established;
        let peer =
            ConnectionParameters::parse(&parameters).map_err(|_| ConnectError::Parameters)?;
        let Options { controller, scheduler, sites, mut config, buffer_before_admission, .. } =
            options;
        let Options { keep_alive, unsent, max_rate, qlog, .. } = options;
        let (most_streams, first_buffer) = (config.max_streams, config.receive_buffer);
        if !is_client {
            config = early(&config, buffer_before_admission);
        }
        config.holds_bytes = true;
        config.tells_losses = qlog.is_some();
        let effort = config.effort.with(peer.effort);
        let peer_key = PeerKey::from(peer_key.as_ref());
        let member = sites.join(now, &peer_key);
        // Any path may go into the background, at any time.
        let controller = Box::new(Divided::new(controller.copy(), Box::new(member.clone())));
        let tokens = Box::new(SystemTokens::default());
        let make = if is_client { ptcp::Connection::client } else { ptcp::Connection::server };
        let mut core = make(config, controller, scheduler.copy(), tokens);
        let holdings = match share {
            None => Holdings::dialed(),
            Some(share) => {
                core.set_max_receive_buffer(buffer_before_admission);
                // What nobody reads is granted to other streams once.
                let allowance = buffer_before_admission + buffer_before_admission;
                core.set_allowance(now, allowance);
                Holdings::of_stranger(share, allowance, most_streams)
            }
        };
        core.begin_established(now, &peer);
        let agreed = Agreed { effort, protocol };
        let (connection, ends) =
            Connection::new(key, Arc::clone(inbox), Arc::clone(&peer_key), remote, agreed);
        let most = usize::try_from(core.max_datagram().0).unwrap_or(0);
        ends.outgoing.most.store(most, Ordering::Relaxed);
        let link = Link {
            key,
            inbox: Arc::clone(inbox),
            is_client,
            dialer: None,
            resets: None,
            listed: None,
            opened_paths: Vec::new(),
            retired_paths: Vec::new(),
            narrow_paths: Vec::new(),
            session,
            core,
            member,
            effort,
            routes: BTreeMap::new(),
            route_of: HashMap::new(),
            largest: HashMap::new(),
            next_route: 0,
            labelled: 0,
            leads_due: None,
            standings: Standings::default(),
            streams: HashMap::new(),
            own_streams: 0,
            next_of_peer: u32::from(is_client),
            waiting_for_streams: VecDeque::new(),
            datagrams: VecDeque::new(),
            entrusted: Entrusted::default(),
            unsent,
            holdings,
            first_buffer,
            peer_key,
            max_rate,
            keep_alive,
            signs: Signs::new(now),
            heard_at: now,
            ends,
            reset_at: None,
            has_refused: false,
            asked: Vec::new(),
            latest: now,
            error: None,
            is_refused: false,
            recent_at: None,
            carried: CarriedBytes::default(),
            log: qlog.map(|qlog| Log::begin(&qlog, now, is_client)),
            due: None,
        };
        link.share_unsent();
        Ok((link, connection))
    }

    /// A connection of the side that dialed; the handshake took the route `first`.
    pub(super) fn dialed(
        start: Start<'_>,
        established: Established,
        dialer: Dialer,
        routes: Vec<(Route, SocketKey)>,
        first: usize,
        sockets: &Sockets,
    ) -> Result<(Link, Connection), ConnectError> {
        let now = start.now;
        let (mut link, connection) = Link::new(start, established, true)?;
        link.dialer = Some(dialer);
        link.next_route = u32::try_from(routes.len()).expect("a handful of routes");
        for (at, (route, socket)) in routes.into_iter().enumerate() {
            let number = RouteId(u32::try_from(at).expect("a handful of routes"));
            link.begin_route(now, number, route, socket, (at == first).then_some(SubflowId(0)));
        }
        link.log_start(now, sockets);
        // That the first route is open is no news to the program.
        link.take_events(now, sockets);
        link.write_max_datagram();
        Ok((link, connection))
    }

    /// A connection of the side that listens.
    pub(super) fn accepted(
        start: Start<'_>,
        established: Established,
        listed: ConnectionId,
        route: RouteEnd,
        sockets: &Sockets,
    ) -> Result<(Link, Connection), ConnectError> {
        let now = start.now;
        let (mut link, connection) = Link::new(start, established, false)?;
        link.listed = Some(listed);
        link.add_accepted(SubflowId(0), route);
        link.log_start(now, sockets);
        link.take_events(now, sockets);
        link.write_max_datagram();
        Ok((link, connection))
    }

    /// A path that the peer opened.
    pub(super) fn add_accepted(&mut self, path: SubflowId, mut route: RouteEnd) {
        let number = RouteId(self.next_route);
        (route.name.number, route.name.path) = (number, PathId(number.0));
        route.paths = vec![path];
        self.member.name_addresses(self.latest, path, route.source, route.remote.ip());
        self.route_of.insert(path, number);
        self.routes.insert(number, route);
        self.next_route += 1;
        self.follow_effort(path);
    }

    /// The connection is one too many.
    pub(super) fn refuse(&mut self, now: Time) {
        self.close(now, CROWDED);
        self.is_refused = true;
    }

    /// Takes what the state machine tells.
    pub(super) fn take_events(&mut self, now: Time, sockets: &Sockets) {
        while let Some(event) = self.core.poll_event() {
            if self.log.is_some() {
                self.log_event(now, event, sockets);
            }
            match event {
                Event::Opened => {}
                Event::PathOpened { path } | Event::PathBack { path } => {
                    self.set_route_state(path, RouteState::Open);
                }
                Event::PathSilent { path } => self.set_route_state(path, RouteState::Silent),
                Event::PathNarrow { path } => self.narrow_paths.push(path),
                Event::PathRetired { path } => self.forget_path(path),
                Event::Readable { stream, end, is_whole } => {
                    if let Some(cell) = self.cell(stream) {
                        cell.handle_readable(end, is_whole);
                    }
                }
                Event::Delivered { stream } => {
                    if let Some(cell) = self.cell(stream) {
                        cell.handle_delivered();
                    }
                    self.end_halves(stream, true, false);
                }
                Event::Reset { stream, code } => {
                    if let Some(cell) = self.arrived_stream(stream) {
                        cell.fail_receiving(StreamError::Reset { code });
                    }
                    self.end_halves(stream, false, true);
                }
                Event::Stopped { stream, code } => {
                    if let Some(cell) = self.cell(stream) {
                        cell.fail_sending(StreamError::Stopped { code });
                    }
                    self.end_halves(stream, true, false);
                }
                Event::DatagramDropped { .. } => self.drop_datagram(),
                Event::Closed { code } => {
                    if code == NARROW {
                        let open = self.routes.values().filter(|route| route.has_opened());
                        for RouteEnd { name, .. } in open {
                            self.tell_route(name, RouteChange::Narrow);
                        }
                    }
                    self.fail(self.closed_by_peer(code));
                }
                Event::TimedOut(error) => self.fail(ConnectionError::TimedOut(error)),
            }
        }
        self.open_streams();
        self.latest = self.latest.max(now);
    }

    fn closed_by_peer(&self, code: u32) -> ConnectionError {
        let error = match code {
            NARROW => ConnectionError::Narrow,
            code => ConnectionError::ClosedByPeer { code },
        };
        self.error.clone().unwrap_or(error)
    }

    /// A path is retired: nothing is sent or expected over it.
    pub(super) fn forget_path(&mut self, path: SubflowId) {
        self.session.retire_path(path);
        self.retire_label(path);
        self.forget_standing(path);
        self.member.forget(self.latest, path);
        if let Some(log) = &mut self.log {
            log.path_closed(self.latest, path);
        }
        self.retired_paths.push(path);
        self.largest.remove(&path);
        let Some(number) = self.route_of.remove(&path) else { return };
        let Some(route) = self.routes.get_mut(&number) else { return };
        route.paths.retain(|known| *known != path);
        // The socket of an accepted route is the listener's.
        if route.paths.is_empty()
            && !self.is_client
            && let Some(route) = self.routes.remove(&number)
        {
            self.tell_route(&route.name, RouteChange::Removed);
        }
    }

    /// Tells the listener which labels to expect.
    pub(super) fn tell_listener(&mut self, listener: &mut Listener) {
        let Some(listed) = self.listed else { return };
        for path in self.opened_paths.drain(..) {
            listener.handle_path_opened(listed, path);
        }
        for path in self.retired_paths.drain(..) {
            listener.retire_path(listed, path);
        }
    }

    /// Drives the handshake of the side that dialed to its end.
    fn serve_dialer(&mut self, now: Time, sockets: &Sockets) {
        let Some(dialer) = &mut self.dialer else { return };
        while let Some(datagram) = dialer.poll_transmit(now) {
            let Some(number) = self.route_of.get(&SubflowId(0)) else { break };
            let Some(route) = self.routes.get_mut(number) else { break };
            route.prepare(datagram.len(), None, sockets);
            route.batch.bytes.extend_from_slice(&datagram);
            route.note(datagram.len(), None);
            route.flush(sockets);
        }
        while let Some(event) = self.dialer.as_mut().and_then(Dialer::poll_event) {
            match event {
                DialEvent::Confirmed(tokens) => {
                    self.resets = Some(tokens);
                    self.dialer = None;
                }
                DialEvent::Failed(error) => self.fail(ConnectionError::Handshake(error)),
                DialEvent::Established(_) => {}
            }
        }
    }

    pub(super) fn handle_deadline(&mut self, now: Time, sockets: &mut Sockets) {
        let now = now.max(self.latest);
        if let Some(dialer) = &mut self.dialer
            && dialer.poll_deadline().is_some_and(|at| at <= now)
        {
            dialer.handle_deadline(now);
        }
        self.session.handle_deadline(now);
        if self.core.poll_deadline().is_some_and(|at| at <= now) {
            self.core.handle_deadline(now);
        }
        if self.reset_at.is_some_and(|at| at <= now) {
            self.fail(self.reset_error());
        }
        self.keep_alive(now);
        self.reopen_routes(now, sockets);
        if let Some(log) = &mut self.log {
            log.handle_deadline(now);
        }
    }

    /// Sends what there is to send.
    pub(super) fn serve(&mut self, clock: &StampedClock, sockets: &mut Sockets) {
        let now = clock.now().max(self.latest);
        if self.error.is_none() {
            self.serve_leads(now, sockets);
        } else {
            self.leads_due = None;
        }
        self.serve_dialer(now, sockets);
        self.take_events(now, sockets);
        self.adapt_memory(now);
        self.leave_narrow_paths(now, sockets);
        self.send(clock, sockets);
        if self.log.is_some() {
            self.log_paths();
        }
        self.note_failures(now);
        self.write_stats(now, sockets);
        self.ends.streams.send_if_modified(|count| {
            let before = std::mem::replace(count, self.own_streams);
            before != *count
        });
        if self.has_parted() {
            // Whoever hears of it may end the process: the log is complete before.
            self.log = None;
            self.ends.parted.send_if_modified(|parted| !std::mem::replace(parted, true));
        }
        self.write_max_datagram();
    }

    /// Tells the program how large a datagram may be: before it has the connection, and after each
    /// change.
    fn write_max_datagram(&self) {
        let most = usize::try_from(self.core.max_datagram().0).unwrap_or(0);
        self.ends.outgoing.most.store(most, Ordering::Relaxed);
    }

    pub(super) fn poll_deadline(&self) -> Option<Time> {
        let dialer = self.dialer.as_ref().and_then(Dialer::poll_deadline);
        let reopen = self.routes.values().filter_map(|route| route.reopen_at).min();
        [dialer, self.session.poll_deadline(), self.core.poll_deadline(), reopen]
            .into_iter()
            .chain([self.recent_at, self.ping_at(), self.reset_at, self.leads_due])
            .chain([self.log.as_ref().and_then(Log::poll_deadline)])
            .flatten()
            .min()
    }

    pub(super) fn update_keys(&mut self, now: Time) {
        // It is too soon: keys are updated later by themselves.
        let _ = self.session.update_keys(now.max(self.latest));
    }

    pub(super) fn stats(&self, sockets: &Sockets) -> Stats {
        Stats {
            routes: self.route_stats(sockets),
            carried: self.carried.all().to_vec(),
            is_silent: self.core.is_silent(),
            streams: self.streams.len(),
            key_updates: self.session.generation(),
            receive_buffer: self.core.receive_buffer(),
        }
    }

    /// Writes the counters down now and then, and a last time after the last change.
    fn write_stats(&mut self, now: Time, sockets: &Sockets) {
        match self.recent_at {
            Some(at) if at <= now => self.write_stats_now(sockets),
            Some(_) => {}
            None => self.recent_at = Some(now + RECENT),
        }
    }

    fn write_stats_now(&mut self, sockets: &Sockets) {
        let stats = Arc::new(self.stats(sockets));
        *self.ends.recent.lock().expect("no panic while held") = stats;
        self.recent_at = None;
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.routes.values().any(RouteEnd::is_blocked)
    }

    /// This side closes the connection.
    pub(super) fn close(&mut self, now: Time, code: u32) {
        if self.error.is_none() {
            self.core.close(now.max(self.latest), code);
            self.fail(ConnectionError::Closed);
        }
    }

    /// The connection has ended for the program. The peer may yet be told.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.error.is_none() {
            self.end_streams(&error);
            self.member.leave(self.latest);
            let _ = self.ends.ended.send(Some(error.clone()));
            if let Some(log) = &mut self.log {
                log.closed(self.latest, &error);
            }
            self.error = Some(error);
            // What was handed over and not sent is lost.
            self.datagrams.clear();
            self.asked.clear();
        }
    }

    /// Whether the program has been told of an end.
    pub(super) fn is_abandoned(&self) -> bool {
        self.error.is_some()
    }

    /// Whether both ends know of the end.
    pub(super) fn has_parted(&self) -> bool {
        self.is_over() || self.core.has_parted()
    }

    pub(super) fn is_over(&self) -> bool {
        let is_gone =
            matches!(self.error, Some(ConnectionError::Reset | ConnectionError::Handshake(_)));
        is_gone || self.is_refused || self.core.is_closed()
    }

    /// Gives back what it had.
    pub(super) fn end(&mut self, sockets: &mut Sockets) {
        self.end_streams(&self.error.clone().unwrap_or(ConnectionError::Ended));
        if self.recent_at.is_some() {
            self.write_stats_now(sockets);
        }
        for route in self.routes.values().filter(|route| route.wish.is_some()) {
            sockets.remove(route.socket);
        }
    }
}
