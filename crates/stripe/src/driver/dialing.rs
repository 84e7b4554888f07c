//! A handshake of the side that dials, over the first route that answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ptcp::Config;
use secure::{DialEvent, Dialer, Established, HandshakeError, Settings};
use tokio::sync::oneshot;
use units::Time;
use wire::relay::LabelPair;

use super::link::{Link, Start};
use super::preambles::{is_of_preamble, serve_preamble};
use super::sockets::{Owner, SocketKey, Sockets};
use crate::connection::Connection;
use crate::connection::inbox::{Connect, Inbox, Key};
use crate::options::NEXT_ROUTE;
use crate::socket::{Outgoing, UdpSocket, known_mtu, least_mtu};
use crate::{Class, ConnectError, Options, Route, RouteId};

/// A handshake in progress.
pub(super) struct Dialing {
    key: Key,
    dialer: Dialer,
    options: Options,
    routes: Vec<(Route, SocketKey)>,
    reply: oneshot::Sender<Result<Connection, ConnectError>>,
    /// The datagrams that were sent last: a further route gets them too.
    flight: Vec<Vec<u8>>,
    /// The routes up to this one were tried.
    tried: usize,
    /// When the next one is.
    next_at: Option<Time>,
    /// The routes over which packets are refused, and how the kernel says so.
    refused: BTreeMap<usize, String>,
    /// The routes over relays that know them: over the others nothing would arrive.
    led: BTreeSet<usize>,
    /// The route over which the peer answered.
    answered: Option<usize>,
    outcome: Option<Result<Box<Established>, ConnectError>>,
    pub(super) due: Option<Time>,
}

impl Dialing {
    /// Begins a handshake. `None`: it has failed, and the program knows.
    pub(super) fn begin(
        now: Time,
        key: Key,
        label: u64,
        wish: Connect,
        sockets: &mut Sockets,
    ) -> Option<Dialing> {
        let Connect { mut routes, tls, mut options, reply } = wish;
        options.config.holds_bytes = true;
        let settings = settings(&options.config);
        let dialer = match Dialer::new(&tls, &Arc::new(settings), now, label) {
            Ok(dialer) => dialer,
            Err(error) => {
                let _ = reply.send(Err(error.into()));
                return None;
            }
        };
        // Routes in reserve are tried last.
        routes.sort_by_key(|route| route.class);
        let mut open = Vec::new();
        let mut failure = ConnectError::NoRoute;
        for route in routes {
            let number = route_id(open.len());
            let socket = UdpSocket::for_route(&route);
            match socket.and_then(|socket| sockets.add(socket, Owner::Link { key, route: number }))
            {
                Ok(socket) => {
                    if let Some(lead) = &route.lead {
                        // One label for both directions.
                        lead.0.handle_labels(&[LabelPair { to: label, from: label }]);
                    }
                    open.push((route, socket));
                }
                Err(error) => {
                    tracing::debug!(route = route.name, %error, "no socket");
                    let (route, reason) = (route.name, error.to_string());
                    failure = ConnectError::Socket { route, reason };
                }
            }
        }
        if open.is_empty() {
            let _ = reply.send(Err(failure));
            return None;
        }
        Some(Dialing {
            key,
            dialer,
            options,
            next_at: (open.len() > 1).then(|| now + NEXT_ROUTE),
            routes: open,
            reply,
            flight: Vec::new(),
            tried: 0,
            refused: BTreeMap::new(),
            led: BTreeSet::new(),
            answered: None,
            outcome: None,
            due: None,
        })
    }

    /// A datagram arrived over a route.
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        route: RouteId,
        (from, bytes): (SocketAddr, &mut [u8]),
    ) {
        let at = route.0 as usize;
        if is_of_preamble(bytes) {
            let lead = self.routes.get(at).and_then(|(route, _)| route.lead.as_ref());
            if let Some(lead) = lead {
                lead.0.handle_datagram(now, from, bytes);
            }
            return;
        }
        self.dialer.handle_datagram(now, bytes);
        if self.dialer.has_answer() && self.answered.is_none() && at < self.routes.len() {
            (self.answered, self.next_at) = (Some(at), None);
        }
    }

    /// A route's socket reports an error.
    pub(super) fn handle_socket_error(&mut self, route: RouteId, error: &io::Error) {
        let says_no = matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::PermissionDenied
        );
        if says_no {
            self.refused.insert(route.0 as usize, error.to_string());
        }
        // Anybody who sees the packets can forge a refusal, and no answer.
        if !self.dialer.has_answer() && self.refused.len() == self.routes.len() {
            let reason = error.to_string();
            self.outcome.get_or_insert(Err(ConnectError::Refused { reason }));
        }
    }

    pub(super) fn handle_deadline(&mut self, now: Time) {
        if self.dialer.poll_deadline().is_some_and(|at| at <= now) {
            self.dialer.handle_deadline(now);
            // The route that answered may be the one that has failed since.
            self.answered = self.answered.map(|at| (at + 1) % self.routes.len());
            self.note_narrow();
        }
    }

    /// There was no answer in time: it is of no use to go on if the system knows of each route that
    /// it carries no packets as large as the handshake's.
    fn note_narrow(&mut self) {
        let known = |(route, _): &(Route, SocketKey)| {
            let (mtu, least) = (known_mtu(route)?, least_mtu(route));
            (mtu < least).then(|| ConnectError::Narrow { route: route.name.clone(), mtu, least })
        };
        let all: Option<Vec<ConnectError>> = self.routes.iter().map(known).collect();
        if let Some(first) = all.into_iter().flatten().next() {
            self.outcome = Some(Err(first));
        }
    }

    /// Sends what relays are to know. One that has come to know its route gets what was sent before
    /// over it.
    fn serve_leads(&mut self, now: Time, sockets: &Sockets) {
        let mut opened = Vec::new();
        for (at, (route, socket)) in self.routes.iter().enumerate() {
            let Some(lead) = &route.lead else { continue };
            serve_preamble(now, (route, lead), *socket, sockets);
            match lead.0.is_open() {
                true if self.led.insert(at) => opened.push(at),
                true => {}
                false => drop(self.led.remove(&at)),
            }
        }
        opened.retain(|at| *at < self.tried);
        for at in opened {
            self.send_flight(at, sockets);
        }
    }

    /// Sends what is due, and takes what the handshake has come to.
    pub(super) fn serve(&mut self, now: Time, sockets: &mut Sockets) {
        self.serve_leads(now, sockets);
        let mut is_new = true;
        while let Some(datagram) = self.dialer.poll_transmit(now) {
            if std::mem::take(&mut is_new) {
                self.flight.clear();
            }
            self.flight.push(datagram);
        }
        if !is_new {
            self.tried = self.tried.max(1);
            for at in self.answered.map_or(0..self.tried, |at| at..at + 1) {
                self.send_flight(at, sockets);
            }
        }
        if self.next_at.is_some_and(|at| at <= now) {
            let (next, has_more) = (self.tried, self.tried + 1 < self.routes.len());
            let is_reserve = |at: usize| self.routes[at].0.class != Class::Usual;
            // A route in reserve waits for the first repetition.
            let rest = if has_more && is_reserve(next + 1) { 4 } else { 1 };
            self.next_at = has_more.then(|| now + NEXT_ROUTE * rest);
            if next < self.routes.len() {
                self.tried += 1;
                self.send_flight(next, sockets);
            }
        }
        while let Some(event) = self.dialer.poll_event() {
            match event {
                DialEvent::Established(established) => self.outcome = Some(Ok(established)),
                DialEvent::Failed(error) => self.outcome = Some(Err(error.into())),
                DialEvent::Confirmed(_) => {}
            }
            if self.outcome.is_some() {
                break;
            }
        }
    }

    fn send_flight(&mut self, at: usize, sockets: &Sockets) {
        let (route, socket) = &self.routes[at];
        if route.lead.is_some() && !self.led.contains(&at) {
            return;
        }
        let mut failure = None;
        for datagram in &self.flight {
            let outgoing = Outgoing {
                to: route.remote,
                source: None,
                ecn: None,
                is_lower_effort: false,
                bytes: datagram,
                segment: datagram.len(),
            };
            // What is not sent is repeated, and over the other routes too.
            if let Err(error) = sockets.send(*socket, &outgoing) {
                tracing::debug!(route = route.name, %error, "the handshake cannot be sent");
                failure = Some(error);
            }
        }
        if let Some(error) = failure {
            self.handle_socket_error(route_id(at), &error);
        }
    }

    pub(super) fn poll_deadline(&self, now: Time) -> Option<Time> {
        let leads = self.routes.iter().filter_map(|(route, _)| route.lead.as_ref());
        let leads = leads.map(|lead| lead.0.poll_deadline(now)).min();
        [self.dialer.poll_deadline(), self.next_at, leads].into_iter().flatten().min()
    }

    /// Whether the handshake has come to an end, or nobody waits for it.
    pub(super) fn is_over(&self) -> bool {
        self.outcome.is_some() || self.reply.is_closed()
    }

    /// The connection that it yields; the program is told.
    pub(super) fn finish(
        self,
        now: Time,
        inbox: &Arc<Inbox>,
        sockets: &mut Sockets,
    ) -> Option<Link> {
        let Dialing { key, dialer, options, routes, reply, answered, outcome, .. } = self;
        let first = answered.unwrap_or(0);
        let remote = routes[first].0.remote;
        let started = outcome.unwrap_or(Err(HandshakeError::TimedOut.into()));
        let begun = started.and_then(|established| {
            let start = Start { now, key, options, remote, inbox, share: None };
            Link::dialed(start, *established, dialer, routes.clone(), first, sockets)
        });
        match begun {
            Ok((link, connection)) => {
                // If nobody waits for it any more, the connection's drop closes it.
                let _ = reply.send(Ok(connection));
                Some(link)
            }
            Err(error) => {
                let _ = reply.send(Err(error));
                for (_, socket) in &routes {
                    sockets.remove(*socket);
                }
                None
            }
        }
    }
}

/// The number of a route, by its place.
fn route_id(at: usize) -> RouteId {
    RouteId(u32::try_from(at).expect("a handful of routes"))
}

/// What the handshake tells the peer of the connection.
pub(super) fn settings(config: &Config) -> Settings {
    let mut parameters = Vec::new();
    config.parameters().emit(&mut parameters);
    Settings { parameters, ..Settings::default() }
}
