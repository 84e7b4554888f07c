//! Signs of life of the peer, and what is concluded without them: idle routes, a peer that seems to
//! know the connection no more, lines that are too narrow.

use tokio::sync::oneshot;
use units::{Span, Time};

use super::link::{Link, NARROW};
use super::routes::RouteEnd;
use super::sockets::Sockets;
use crate::ConnectionError;
use crate::stats::RouteChange;

/// How long nothing may be heard of a peer that says that it knows the connection no more, besides
/// [`RESET_ROUND_TRIPS`]. It says so too of a path whose first packet came before the end of the
/// handshake, which took another way; and an attacker may have learnt what to say. So it is asked
/// for a sign of life.
const RESET_WAIT: Span = Span::from_millis(250);
/// Round trips of the slowest path: the question may be lost and asked again.
const RESET_ROUND_TRIPS: u64 = 3;

/// How long nothing may be heard of a peer whose host refuses packets.
const REFUSED_WAIT: Span = Span::from_secs(2);

impl Link {
    /// The peer seems to know the connection no more: it is asked for a sign of life over each
    /// path.
    pub(super) fn handle_reset(&mut self, now: Time) {
        if self.reset_at.is_some() {
            return;
        }
        let mut slowest = Span::ZERO;
        for path in self.core.paths().collect::<Vec<_>>() {
            let metrics = self.core.path_metrics(path);
            slowest = slowest.max(metrics.and_then(|all| all.smoothed_rtt).unwrap_or_default());
            self.core.ping_path(path);
        }
        self.reset_at = Some(now + RESET_WAIT + slowest * RESET_ROUND_TRIPS);
    }

    /// Asks for a sign of life over each path; `heard` is told once anything arrives.
    pub(super) fn ask(&mut self, heard: oneshot::Sender<()>) {
        for path in self.core.paths().collect::<Vec<_>>() {
            self.core.ping_path(path);
        }
        self.asked.push(heard);
    }

    /// If the peer's host refuses packets over every route, nothing has its port any more. Anybody
    /// can say so who has seen a packet, and a firewall that is loaded anew does for a moment. So
    /// the peer is asked for a sign of life; at first over routes that may have nothing to send,
    /// such as those in reserve: these are to be refused too.
    pub(super) fn handle_refusal(&mut self, now: Time) {
        let is_first = !self.has_refused;
        self.has_refused = self.routes.values().any(|route| route.is_refused);
        if self.reset_at.is_some() {
            return;
        }
        if !self.routes.values().all(|route| route.is_refused) {
            for route in self.routes.values().filter(|route| is_first && !route.is_refused) {
                for path in &route.paths {
                    self.core.ping_path(*path);
                }
            }
            return;
        }
        for path in self.core.paths().collect::<Vec<_>>() {
            self.core.ping_path(path);
        }
        self.reset_at = Some(now + REFUSED_WAIT);
    }

    /// Why the connection ends without a sign of life.
    pub(super) fn reset_error(&self) -> ConnectionError {
        if self.routes.values().all(|route| route.is_refused) {
            ConnectionError::Refused
        } else {
            ConnectionError::Reset
        }
    }

    /// Asks for a sign of life over each open route over which nothing has left for a while. The
    /// side that listens asks over all, for some time after the peer's latest data: behind a
    /// translator that gave it another port, or address, it hears of nothing that the peer sends,
    /// until the peer, or a relay, has heard of the new one.
    pub(super) fn keep_alive(&mut self, now: Time) {
        let Some(after) = self.keep_alive.filter(|_| self.error.is_none()) else { return };
        if !self.is_client {
            if self.signs.asks_after_news().is_some_and(|at| at <= now) {
                self.signs.handle_asked(now, after);
                for path in self.core.paths().collect::<Vec<_>>() {
                    self.core.ping_path(path);
                }
            }
            return;
        }
        let core = &mut self.core;
        let mut is_asked = false;
        for route in self.routes.values_mut() {
            if route.is_open() && route.signs.asks_at(after) <= now {
                route.signs.handle_asked(now, after);
                // All subflows of a route have one socket.
                is_asked |= route.paths.iter().any(|path| core.ping_path(*path));
            }
        }
        if self.heard_at + after <= now {
            self.heard_at = now;
            if !is_asked {
                core.ping();
            }
        }
    }

    /// When [`Link::keep_alive`] is due.
    pub(super) fn ping_at(&self) -> Option<Time> {
        let after = self.keep_alive.filter(|_| self.error.is_none())?;
        if !self.is_client {
            return self.signs.asks_after_news();
        }
        let open = self.routes.values().filter(|route| route.is_open());
        let asks_at = open.map(|route| route.signs.asks_at(after));
        Some(asks_at.fold(self.heard_at + after, Time::min))
    }

    /// Gives up paths that are too narrow for the protocol: over them nothing would ever be whole.
    pub(super) fn leave_narrow_paths(&mut self, now: Time, sockets: &mut Sockets) {
        for path in std::mem::take(&mut self.narrow_paths) {
            let Some(number) = self.route_of.get(&path).copied() else { continue };
            let Some(route) = self.routes.get(&number) else { continue };
            self.tell_route(&route.name, RouteChange::Narrow);
            let others = self.routes.values().filter(|other| other.name.number != number);
            if others.into_iter().any(RouteEnd::has_opened) {
                self.leave_route(now, number, sockets);
            } else if self.error.is_none() {
                self.core.close(now.max(self.latest), NARROW);
                self.fail(ConnectionError::Narrow);
            }
        }
    }
}
