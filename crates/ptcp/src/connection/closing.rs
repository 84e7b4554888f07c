//! The end of a connection: closing, draining (RFC 9000, section 10.2), and timeouts.

use alloc::vec::Vec;

use units::{Span, SubflowId, Time};
use wire::ptcp::{Body, Packet};

use super::opening::Handshake;
use super::outbox::Outbox;
use super::{Connection, ConnectionState, Event, TimeoutError, Transmit};
use crate::path::{AMPLIFICATION, Path};

/// Probe timeouts for which a connection that ends still answers, or ignores, late packets.
const ENDING_TIMEOUTS: u64 = 3;

/// What is left of a connection that was closed at this end. It sends CLOSE over all paths that
/// seem to work, repeats it after each probe timeout, and answers packets of a peer that has not
/// learnt of it: the first, the second, the fourth and so on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Closing {
    code: u32,
    until: Time,
    repeat_at: Time,
    timeout: Span,
    routes: Vec<Route>,
    /// Packets that arrived since.
    arrived: u32,
}

/// What is left of a connection that the peer closed: it sends one answer, so that the peer stops
/// repeating, and ignores what arrives late.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draining {
    code: u32,
    until: Time,
    answer: Option<Route>,
}

/// What is left of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Route {
    id: SubflowId,
    /// The next packet number.
    next: u64,
    /// The number expected next from the peer.
    expected: u64,
    /// Bytes that may be sent before the peer's address is validated; `None`: it is.
    allowed: Option<u64>,
    /// Whether CLOSE is repeated over it.
    is_in_use: bool,
    /// Whether a CLOSE waits to be sent over it.
    is_due: bool,
}

/// How long a connection has been idle (RFC 9000, section 10.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    /// When a packet arrived last, or when the first ack-eliciting one was sent since.
    since: Time,
    /// Whether one was sent since.
    has_sent: bool,
}

impl Idle {
    #[inline]
    pub(super) fn handle_arrived(&mut self, now: Time) {
        (self.since, self.has_sent) = (now, false);
    }

    /// An ack-eliciting packet leaves.
    #[inline]
    pub(super) fn handle_sent(&mut self, now: Time) {
        if !core::mem::replace(&mut self.has_sent, true) {
            self.since = now;
        }
    }
}

impl Closing {
    fn handle_packet(&mut self, over: SubflowId, packet: &Packet) {
        self.arrived = self.arrived.saturating_add(1);
        let Some(route) = self.routes.iter_mut().find(|route| route.id == over) else { return };
        route.handle_packet(packet);
        route.is_due |= self.arrived.is_power_of_two();
    }

    fn handle_deadline(&mut self, now: Time) {
        if self.repeat_at <= now {
            self.repeat_at = now + self.timeout;
            self.routes.iter_mut().for_each(|route| route.is_due |= route.is_in_use);
        }
    }

    fn poll_send(&mut self) -> Option<Transmit> {
        let code = self.code;
        self.routes.iter_mut().find_map(|route| route.poll_close(code))
    }
}

impl Route {
    fn new(path: &Path, is_in_use: bool) -> Route {
        Route {
            id: path.id,
            next: path.next_number(),
            expected: path.acks.expected(),
            allowed: path.allowed,
            is_in_use,
            is_due: is_in_use,
        }
    }

    fn handle_packet(&mut self, packet: &Packet) {
        self.expected = self.expected.max(packet.number.saturating_add(1));
        if let Some(allowed) = &mut self.allowed {
            *allowed += AMPLIFICATION * packet.datagram_len() as u64;
        }
    }

    /// A CLOSE that is due.
    fn poll_close(&mut self, code: u32) -> Option<Transmit> {
        if !core::mem::take(&mut self.is_due) {
            return None;
        }
        let packet = Packet { number: self.next, body: Body::Close { code } };
        if let Some(allowed) = &mut self.allowed {
            *allowed = allowed.checked_sub(packet.datagram_len() as u64)?;
        }
        self.next += 1;
        Some(Transmit { path: self.id, packet, is_ecn_capable: false, is_scalable: false })
    }
}

impl Connection {
    /// Closes the connection with `code`, which is sent to the peer. Data in flight is lost, and so
    /// are the counters of the paths.
    ///
    /// As in RFC 9000, section 10.2, the peer is told again for three probe timeouts, until it
    /// answers: drive the connection until [`Connection::is_closed`].
    pub fn close(&mut self, now: Time, code: u32) {
        match self.state {
            // Before the handshake is complete, nothing that a client says can be read.
            ConnectionState::Opening if self.is_client => self.end(now),
            ConnectionState::Opening | ConnectionState::Open => {
                let timeout = self.paths.longest_timeout();
                let has_live = self.paths.iter().any(Path::is_live);
                let is_in_use = |path: &Path| {
                    if has_live { path.is_live() } else { path.subflow().is_some() }
                };
                let routes =
                    self.paths.iter().map(|path| Route::new(path, is_in_use(path))).collect();
                self.forget(now);
                self.state = ConnectionState::Closing(Closing {
                    code,
                    until: now + timeout * ENDING_TIMEOUTS,
                    repeat_at: now + timeout,
                    timeout,
                    routes,
                    arrived: 0,
                });
            }
            ConnectionState::Closing(_)
            | ConnectionState::Draining(_)
            | ConnectionState::Closed => {}
        }
    }

    /// Whether both ends know of the end: the peer has answered, or was answered. What is left of
    /// the connection only ignores packets that arrive late, for which a process that ends need not
    /// stay.
    #[must_use]
    pub fn has_parted(&self) -> bool {
        match &self.state {
            ConnectionState::Opening | ConnectionState::Open | ConnectionState::Closing(_) => false,
            ConnectionState::Draining(draining) => draining.answer.is_none(),
            ConnectionState::Closed => true,
        }
    }

    /// The peer closed the connection.
    pub(super) fn handle_close(&mut self, now: Time, over: SubflowId, code: u32) {
        self.events.push_back(Event::Closed { code });
        let until = now + self.paths.longest_timeout() * ENDING_TIMEOUTS;
        let answer = self.paths.get(over).map(|path| Route::new(path, true));
        self.forget(now);
        self.state = ConnectionState::Draining(Draining { code, until, answer });
    }

    /// A packet arrived after the end.
    pub(super) fn handle_late_packet(&mut self, over: SubflowId, packet: &Packet) {
        let ConnectionState::Closing(closing) = &mut self.state else { return };
        if matches!(packet.body, Body::Close { .. }) {
            let (code, until) = (closing.code, closing.until);
            self.state = ConnectionState::Draining(Draining { code, until, answer: None });
        } else {
            closing.handle_packet(over, packet);
        }
    }

    /// A CLOSE that is due.
    pub(super) fn poll_close(&mut self) -> Option<Transmit> {
        match &mut self.state {
            ConnectionState::Closing(closing) => closing.poll_send(),
            ConnectionState::Draining(Draining { code, answer, .. }) => {
                answer.take()?.poll_close(*code)
            }
            ConnectionState::Opening | ConnectionState::Open | ConnectionState::Closed => None,
        }
    }

    /// When a timeout or the rest of an end is due.
    pub(super) fn end_at(&self) -> Option<Time> {
        match &self.state {
            ConnectionState::Opening => Some(self.began_at? + self.config.handshake_timeout?),
            ConnectionState::Open => {
                let most = self.config.idle_timeout?;
                Some(self.idle.since + most.max(self.paths.longest_timeout() * ENDING_TIMEOUTS))
            }
            ConnectionState::Closing(closing) => Some(closing.until.min(closing.repeat_at)),
            ConnectionState::Draining(draining) => Some(draining.until),
            ConnectionState::Closed => None,
        }
    }

    /// [`Connection::end_at`] has come.
    pub(super) fn handle_end(&mut self, now: Time) {
        match &mut self.state {
            ConnectionState::Opening => {
                let after = self.config.handshake_timeout.unwrap_or_default();
                self.events.push_back(Event::TimedOut(TimeoutError::Handshake { after }));
                self.end(now);
            }
            ConnectionState::Open => {
                let error = TimeoutError::Idle { after: now - self.idle.since };
                self.events.push_back(Event::TimedOut(error));
                // The peer may wait longer.
                self.close(now, TimeoutError::IDLE_CODE);
            }
            ConnectionState::Closing(closing) if closing.until > now => {
                closing.handle_deadline(now);
            }
            ConnectionState::Closing(_)
            | ConnectionState::Draining(_)
            | ConnectionState::Closed => self.end(now),
        }
    }

    /// The number expected next on a path of a connection that is closing.
    pub(super) fn expected_while_closing(&self, path: SubflowId) -> Option<u64> {
        let ConnectionState::Closing(closing) = &self.state else { return None };
        closing.routes.iter().find(|route| route.id == path).map(|route| route.expected)
    }

    fn end(&mut self, now: Time) {
        self.forget(now);
        self.state = ConnectionState::Closed;
    }

    /// Frees the memory of all but events.
    fn forget(&mut self, now: Time) {
        self.paths.clear(now);
        self.streams.clear();
        self.striping.clear();
        self.handshake = Handshake::default();
        self.outbox = Outbox::new();
    }
}
