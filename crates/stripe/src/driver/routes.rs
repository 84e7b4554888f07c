//! The routes of a connection: sockets, addresses, and the datagrams on their way to the kernel.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use sys::datagram::unmapped;
use units::{PathId, Span, SubflowId, Time};

use super::link::Link;
use super::preambles::LeadState;
use super::signs::Signs;
use super::sockets::{Owner, SocketKey, Sockets};
use crate::socket::{EcnCodepoint, MOST_OFFLOADED, Outgoing, UdpSocket};
use crate::stats::{RouteChange, RouteEvent, RouteState, RouteStats};
use crate::{Class, ConnectError, Route, RouteId};

/// Bytes that wait for a socket to take them; what comes on top is dropped, as a network card
/// would.
const MOST_BLOCKED: usize = 256 << 10;
/// The wait before a failing socket is opened again.
const REOPEN: Span = Span::from_secs(1);

/// What observers know a route by.
#[derive(Clone)]
pub(super) struct RouteName {
    pub(super) number: RouteId,
    pub(super) path: PathId,
    pub(super) text: String,
}

impl RouteName {
    /// A route that the peer has opened, before it has a number.
    pub(super) fn of(from: SocketAddr) -> RouteName {
        RouteName { number: RouteId(0), path: PathId(0), text: unmapped(from).to_string() }
    }
}

/// A route of a connection.
pub(super) struct RouteEnd {
    pub(super) name: RouteName,
    /// What the program asked for; `None` on the side that listens.
    pub(super) wish: Option<Route>,
    pub(super) socket: SocketKey,
    pub(super) remote: SocketAddr,
    /// The local address, where the socket has several.
    pub(super) source: Option<IpAddr>,
    /// Whether its packets have the lower-effort mark.
    pub(super) is_lower_effort: bool,
    /// Its subflows.
    pub(super) paths: Vec<SubflowId>,
    pub(super) batch: Batch,
    blocked: VecDeque<Batch>,
    blocked_bytes: usize,
    dropped: u64,
    state: RouteState,
    /// When a sign of life is asked for.
    pub(super) signs: Signs,
    /// When a socket that failed is opened again.
    pub(super) reopen_at: Option<Time>,
    failure: String,
    /// As [`Link::has_refused`], over it.
    pub(super) is_refused: bool,
    pub(super) lead_state: LeadState,
}

/// Datagrams of one size; the last one may be shorter.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    segment: usize,
    count: usize,
    ecn: Option<EcnCodepoint>,
    /// Whether it takes no more, because the last one is shorter.
    is_closed: bool,
}

impl Batch {
    /// Whether a datagram fits.
    fn takes(&self, len: usize, ecn: Option<EcnCodepoint>, most: usize) -> bool {
        self.count == 0
            || !self.is_closed
                && len <= self.segment
                && ecn == self.ecn
                && self.count < most
                && self.bytes.len() + len <= MOST_OFFLOADED
    }

    /// A datagram was appended.
    fn note(&mut self, len: usize, ecn: Option<EcnCodepoint>) {
        if self.count == 0 {
            (self.segment, self.ecn) = (len, ecn);
        }
        self.is_closed = len < self.segment;
        self.count += 1;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.is_closed) = (0, false);
    }
}

impl RouteEnd {
    pub(super) fn new(name: RouteName, socket: SocketKey, remote: SocketAddr) -> RouteEnd {
        RouteEnd {
            name,
            wish: None,
            socket,
            remote,
            source: None,
            is_lower_effort: false,
            paths: Vec::new(),
            batch: Batch::default(),
            blocked: VecDeque::new(),
            blocked_bytes: 0,
            dropped: 0,
            state: RouteState::Opening,
            signs: Signs::new(Time::ZERO),
            reopen_at: None,
            failure: String::new(),
            is_refused: false,
            lead_state: LeadState::default(),
        }
    }

    /// Makes room in the batch for a datagram, sending it first if it does not fit.
    pub(super) fn prepare(&mut self, len: usize, ecn: Option<EcnCodepoint>, sockets: &Sockets) {
        let most = sockets.get(self.socket).map_or(1, UdpSocket::most_segments);
        if !self.batch.takes(len, ecn, most) {
            self.flush(sockets);
        }
    }

    /// A datagram was appended to the batch.
    pub(super) fn note(&mut self, len: usize, ecn: Option<EcnCodepoint>) {
        self.batch.note(len, ecn);
    }

    /// Whether it carries data.
    pub(super) fn is_open(&self) -> bool {
        self.state == RouteState::Open
    }

    /// Whether it carried data, be it silent at present.
    pub(super) fn has_opened(&self) -> bool {
        self.state != RouteState::Opening
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Sends the batch, behind what waits already. An error other than a lack of room is kept for
    /// [`RouteEnd::take_error`].
    pub(super) fn flush(&mut self, sockets: &Sockets) {
        if self.batch.count == 0 {
            return;
        }
        if self.is_blocked() {
            self.block();
            return;
        }
        match self.send(&self.batch, sockets) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.block();
                sockets.set_writable(self.socket, true);
            }
            sent => self.note_sent(sent),
        }
        self.batch.clear();
    }

    fn note_sent(&mut self, sent: io::Result<()>) {
        match sent {
            Ok(()) => self.failure.clear(),
            // A size that the device does not carry: the probe of it counts as lost.
            Err(error) if error.raw_os_error() == Some(EMSGSIZE) => {}
            Err(error) => self.note_error(&error),
        }
    }

    fn note_error(&mut self, error: &io::Error) {
        self.is_refused |= error.kind() == io::ErrorKind::ConnectionRefused;
        self.failure = error.to_string();
    }

    fn send(&self, batch: &Batch, sockets: &Sockets) -> io::Result<()> {
        let Batch { bytes, segment, ecn, .. } = batch;
        sockets.send(
            self.socket,
            &Outgoing {
                to: self.remote,
                source: self.source,
                ecn: *ecn,
                is_lower_effort: self.is_lower_effort,
                bytes,
                segment: *segment,
            },
        )
    }

    /// Keeps the batch until there is room.
    fn block(&mut self) {
        if self.blocked_bytes + self.batch.bytes.len() > MOST_BLOCKED {
            self.dropped += self.batch.count as u64;
            self.batch.clear();
            return;
        }
        self.blocked_bytes += self.batch.bytes.len();
        self.blocked.push_back(std::mem::take(&mut self.batch));
    }

    /// Sends what has waited.
    pub(super) fn unblock(&mut self, sockets: &Sockets) {
        while let Some(batch) = self.blocked.front() {
            match self.send(batch, sockets) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sockets.set_writable(self.socket, true);
                    return;
                }
                sent => self.note_sent(sent),
            }
            if let Some(batch) = self.blocked.pop_front() {
                self.blocked_bytes -= batch.bytes.len();
            }
        }
    }

    /// The local address, as far as it is known.
    pub(super) fn local(&self, sockets: &Sockets) -> Option<SocketAddr> {
        let mut local = sockets.get(self.socket)?.local();
        local.set_ip(self.source.unwrap_or(local.ip()));
        Some(local)
    }

    /// Forgets what waits for the socket.
    fn drop_blocked(&mut self) {
        self.blocked.clear();
        self.blocked_bytes = 0;
    }
}

/// The kernel's number of "message too long", which is the same on all Linux machines that Rust
/// knows but MIPS.
const EMSGSIZE: i32 = 90;

impl Link {
    /// Adds a route of the side that dials.
    pub(in crate::driver) fn add_route(
        &mut self,
        now: Time,
        route: Route,
        sockets: &mut Sockets,
    ) -> Result<RouteId, ConnectError> {
        let number = RouteId(self.next_route);
        let owner = Owner::Link { key: self.key, route: number };
        let socket = UdpSocket::for_route(&route);
        let socket = socket.and_then(|socket| sockets.add(socket, owner)).map_err(|error| {
            ConnectError::Socket { route: route.name.clone(), reason: error.to_string() }
        })?;
        self.next_route += 1;
        self.begin_route(now, number, route, socket, None);
        Ok(number)
    }

    /// Takes a route into use; `first` is the path that the handshake has opened over it.
    pub(super) fn begin_route(
        &mut self,
        now: Time,
        number: RouteId,
        route: Route,
        socket: SocketKey,
        first: Option<SubflowId>,
    ) {
        let name = RouteName { number, path: route.path, text: route.name.clone() };
        let mut end = RouteEnd::new(name, socket, route.remote);
        end.paths.extend(first);
        // A path over a relay would ask in vain before that knows the route.
        let (is_led, has_first) = (route.lead.is_some(), first.is_some());
        end.wish = Some(route);
        self.routes.insert(number, end);
        if has_first || !is_led {
            self.open_paths(now, number);
        }
        if is_led {
            self.tell_labels(Some(number));
        }
    }

    /// Opens the paths that a route has not yet.
    pub(super) fn open_paths(&mut self, now: Time, number: RouteId) {
        let Some(end) = self.routes.get_mut(&number) else { return };
        let Some(route) = end.wish.clone() else { return };
        let weight = usize::from(route.weight.max(1));
        while end.paths.len() < weight {
            end.paths.push(self.core.open_path(now));
        }
        for path in &end.paths.clone() {
            if self.route_of.contains_key(path) {
                continue;
            }
            // The first one is open. What cannot be sealed over one too many counts as lost.
            let _ = self.session.open_path(*path);
            self.member.name_route(now, *path, &route);
            self.route_of.insert(*path, number);
            self.class_path(*path, route.class);
            self.yield_path(now, *path, route.is_background);
            // Each subflow has its share of the bound.
            let share = u64::from(route.weight.max(1));
            let rate = route.max_rate.map(|rate| units::Rate::from_bits(rate.as_bits() / share));
            self.bound_path(*path, rate);
        }
    }

    pub(in crate::driver) fn remove_route(
        &mut self,
        now: Time,
        number: RouteId,
        sockets: &mut Sockets,
    ) {
        if self.routes.len() == 1 && self.routes.contains_key(&number) {
            // Nothing could be said over no route at all.
            self.close(now, 0);
            return;
        }
        self.leave_route(now, number, sockets);
    }

    /// Retires the paths of a route that is not the last one.
    pub(super) fn leave_route(&mut self, now: Time, number: RouteId, sockets: &mut Sockets) {
        let Some(route) = self.routes.get(&number) else { return };
        for path in route.paths.clone() {
            self.core.retire_path(now, path);
            self.forget_path(path);
        }
        self.drop_route(number, sockets);
    }

    /// Forgets a route whose paths are retired.
    pub(super) fn drop_route(&mut self, number: RouteId, sockets: &mut Sockets) {
        if let Some(route) = self.routes.remove(&number) {
            self.tell_route(&route.name, RouteChange::Removed);
            if route.wish.is_some() {
                sockets.remove(route.socket);
            }
        }
    }

    pub(in crate::driver) fn set_class(&mut self, number: RouteId, class: Class) {
        let Some(route) = self.routes.get(&number) else { return };
        for path in route.paths.clone() {
            self.class_path(path, class);
        }
    }

    pub(in crate::driver) fn set_rate(&mut self, number: RouteId, rate: Option<units::Rate>) {
        let Some(route) = self.routes.get(&number) else { return };
        let share = route.paths.len().max(1) as u64;
        for path in route.paths.clone() {
            let rate = rate.map(|rate| units::Rate::from_bits(rate.as_bits() / share));
            self.bound_path(path, rate);
        }
    }

    pub(super) fn tell_route(&self, name: &RouteName, change: RouteChange) {
        let RouteName { number, path, text } = name.clone();
        // Nobody may listen.
        let _ = self.ends.events.send(RouteEvent { route: number, path, name: text, change });
    }

    /// The state of the route of a path changed.
    pub(super) fn set_route_state(&mut self, path: SubflowId, state: RouteState) {
        let Some(number) = self.route_of.get(&path).copied() else { return };
        let Some(route) = self.routes.get_mut(&number) else { return };
        let before = std::mem::replace(&mut route.state, state);
        let change = match (before, state) {
            (RouteState::Opening, RouteState::Open) => RouteChange::Opened,
            (RouteState::Open, RouteState::Silent) => RouteChange::Silent,
            (RouteState::Silent, RouteState::Open) => RouteChange::Back,
            _ => return,
        };
        let name = route.name.clone();
        self.tell_route(&name, change);
    }

    /// A receive at a route's socket failed: the error of an earlier send, or of the device.
    pub(in crate::driver) fn handle_socket_error(
        &mut self,
        now: Time,
        number: RouteId,
        error: &io::Error,
    ) {
        if let Some(route) = self.routes.get_mut(&number) {
            route.note_error(error);
        }
        self.note_failures(now);
    }

    /// Tells of sockets that fail, and has them opened again.
    pub(super) fn note_failures(&mut self, now: Time) {
        let mut failures = Vec::new();
        for route in self.routes.values_mut() {
            if route.failure.is_empty() || route.reopen_at.is_some() {
                continue;
            }
            route.reopen_at = Some(now + REOPEN);
            failures.push((route.name.clone(), route.failure.clone()));
        }
        if !failures.is_empty() {
            self.handle_refusal(now);
        }
        for (name, reason) in failures {
            tracing::debug!(route = name.text, reason, "the socket fails");
            self.log_failure(now, name.number, &reason);
            self.tell_route(&name, RouteChange::Failing { reason });
        }
    }

    /// Opens sockets that have failed again: the device may be back, or have another address.
    pub(super) fn reopen_routes(&mut self, now: Time, sockets: &mut Sockets) {
        let key = self.key;
        let mut moved = Vec::new();
        for route in self.routes.values_mut() {
            if route.reopen_at.is_none_or(|at| at > now) {
                continue;
            }
            route.reopen_at = None;
            // The sockets of the side that listens stay.
            let Some(wish) = &route.wish else {
                route.failure.clear();
                continue;
            };
            // The address may have been renewed with the device.
            let wishes = [wish.clone(), Route { local: None, ..wish.clone() }];
            let opened = wishes.iter().find_map(|wish| UdpSocket::for_route(wish).ok());
            let owner = Owner::Link { key, route: route.name.number };
            match opened.and_then(|socket| sockets.add(socket, owner).ok()) {
                Some(socket) => {
                    sockets.remove(std::mem::replace(&mut route.socket, socket));
                    if let Some(lead) = &wish.lead {
                        lead.0.handle_reopened();
                    }
                    route.drop_blocked();
                    route.failure.clear();
                    moved.push((route.name.clone(), route.remote));
                }
                None => route.reopen_at = Some(now + REOPEN),
            }
        }
        for (name, remote) in moved {
            for path in self.routes[&name.number].paths.clone() {
                self.core.rebind_path(now, path);
                self.log_move(now, path, sockets);
            }
            self.tell_route(&name, RouteChange::Moved { remote });
        }
    }

    /// The counters of all routes.
    pub(super) fn route_stats(&self, sockets: &Sockets) -> Vec<RouteStats> {
        self.routes.values().map(|route| self.one_route(route, sockets)).collect()
    }

    fn one_route(&self, route: &RouteEnd, sockets: &Sockets) -> RouteStats {
        let core = &self.core;
        let mut stats = RouteStats {
            route: route.name.number,
            path: route.name.path,
            name: route.name.text.clone(),
            local: route.local(sockets),
            remote: route.remote,
            state: route.state,
            subflows: route.paths.clone(),
            is_in_reserve: route.paths.iter().any(|path| self.is_in_reserve(*path)),
            sent: units::Bytes::ZERO,
            received: units::Bytes::ZERO,
            datagrams: 0,
            window: units::Bytes::ZERO,
            round_trip: None,
            packets: 0,
            copies: units::Bytes::ZERO,
            lost: 0,
            marked: 0,
            datagram: units::Bytes::ZERO,
            background: None,
            shares_with: None,
            dropped_here: route.dropped,
            failure: route.lead_state.failure.clone(),
        };
        for path in route.paths.iter().copied() {
            let bytes = core.path_bytes(path).unwrap_or_default();
            stats.sent += bytes.sent;
            stats.received += bytes.received;
            stats.copies += bytes.copies;
            stats.datagrams += bytes.packets_sent + bytes.packets_received;
            stats.window += core.path_window(path);
            stats.round_trip = stats.round_trip.or(core.smoothed_rtt(path));
            stats.datagram = stats.datagram.max(core.path_size(path).unwrap_or_default());
            if let Some(counted) = core.stats(path) {
                stats.packets += counted.sent;
                stats.lost += counted.lost;
                stats.marked += counted.marks;
            }
            stats.background = stats.background.or_else(|| self.member.stats(path));
            let shares = core.bottleneck(path).and_then(|other| self.route_of.get(&other));
            stats.shares_with = stats.shares_with.or(shares.copied());
        }
        stats
    }
}
