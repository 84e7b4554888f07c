//! What arrives for one open connection: datagrams, packets, and where they come from.

use std::net::SocketAddr;

use ptcp::Arrived;
use units::{SubflowId, Time};
use wire::closing::CloseCode;
use wire::datagram::Outer;
use wire::ptcp::{Body, Packet};

use super::link::Link;
use super::preambles::is_of_preamble;
use super::routes::{RouteEnd, RouteName};
use super::sockets::{Datagram, SocketKey, Sockets};
use crate::guest::{Guest, RawArrival};
use crate::stats::RouteChange;
use crate::{ConnectionError, RouteId};

/// The code after a packet that no honest peer sends under the connection's keys.
const PROTECTION: u32 = CloseCode::Protection.number();

impl Link {
    /// A datagram arrived at a socket of the side that dialed.
    pub(super) fn handle_datagram(
        &mut self,
        route: RouteId,
        datagram: Datagram<'_>,
        guest: &mut Option<Box<dyn Guest>>,
    ) {
        if is_of_preamble(datagram.bytes) {
            if let Some(lead) = self.routes.get(&route).and_then(RouteEnd::lead) {
                lead.handle_datagram(datagram.at, datagram.from, datagram.bytes);
            }
            return;
        }
        match Outer::parse(datagram.bytes) {
            Ok(Outer::Data { label }) => {
                if let Some(path) = self.session.path_of(label) {
                    self.handle_packet(path, datagram, guest);
                }
            }
            Ok(Outer::Reset { .. }) => {
                let path = self.resets.as_ref().and_then(|all| all.path_of_reset(datagram.bytes));
                if path.is_some_and(|path| self.session.has_path(path)) {
                    self.handle_reset(datagram.at);
                }
            }
            Ok(_) => {
                if let Some(dialer) = &mut self.dialer {
                    dialer.handle_datagram(datagram.at, datagram.bytes);
                }
            }
            Err(_) => {}
        }
    }

    /// A data packet arrived over a path.
    pub(super) fn handle_packet(
        &mut self,
        path: SubflowId,
        datagram: Datagram<'_>,
        guest: &mut Option<Box<dyn Guest>>,
    ) {
        let Datagram { bytes, from, to, is_marked, at, taken, socket, .. } = datagram;
        let now = at.max(self.latest);
        if !self.is_client && !self.route_of.contains_key(&path) && !self.may_add_path() {
            return;
        }
        let length = bytes.len();
        let opened = match self.session.open(now, path, bytes) {
            Ok(opened) => opened,
            Err(error) if error.is_fatal() => {
                self.core.close(now, PROTECTION);
                self.fail(ConnectionError::Protection(error));
                return;
            }
            Err(_) => return,
        };
        // The peer speaks a later version of the protocol, or is broken: under the keys nobody else
        // can send.
        let Ok(parsed) = Packet::parse(opened.number, opened.payload) else { return };
        (self.latest, self.heard_at, self.reset_at) = (now, now, None);
        for asked in self.asked.drain(..) {
            // Who asked may have lost patience.
            let _ = asked.send(());
        }
        if std::mem::take(&mut self.has_refused) {
            self.routes.values_mut().for_each(|route| route.is_refused = false);
        }
        self.carried.add_received(from.ip(), length);
        if let Some(dialer) = &mut self.dialer {
            dialer.handle_data();
        }
        if !self.is_client {
            if !self.route_of.contains_key(&path) {
                let mut route = RouteEnd::new(RouteName::of(from), socket, from);
                route.source = to;
                self.add_accepted(path, route);
                self.opened_paths.push(path);
            }
            self.follow(now, path, opened.number, from, (socket, to));
        }
        if let Some(number) = self.route_of.get(&path)
            && let Some(route) = self.routes.get_mut(number)
        {
            route.signs.handle_came(now);
            if matches!(parsed.packet.body, Body::Data(_) | Body::Datagram { .. }) {
                route.signs.handle_news(now);
                self.signs.handle_news(now);
            }
        }
        if let Some(log) = &mut self.log {
            log.packet(now, path, &parsed.packet, false);
        }
        let is_new = self.opened_paths.last() == Some(&path);
        let arrived = self.core.handle_packet(now, path, &parsed.packet, is_marked);
        if is_new {
            self.follow_standing(path);
        }
        match arrived {
            Ok(Arrived::Nothing) => {}
            Ok(Arrived::Raw { .. }) => {
                if let Some(guest) = guest.as_mut().filter(|_| self.entrusted.is_guests) {
                    let arrival = RawArrival { connection: self.key, path, at, is_marked };
                    guest.handle_raw(taken, &arrival, parsed.payload);
                }
            }
            Ok(Arrived::Data { stream, offset, .. }) => {
                if let Some(cell) = self.arrived_stream(stream) {
                    cell.handle_arrived(offset, parsed.payload);
                }
            }
            // It is unreliable: one that nobody takes in time is lost.
            Ok(Arrived::Datagram { .. }) if !self.may_keep_datagram() => {}
            Ok(Arrived::Datagram { .. }) => {
                let _ = self.ends.datagrams.try_send(parsed.payload.to_vec());
            }
            Err(error) => self.fail(ConnectionError::Peer(error)),
        }
    }

    /// Packets have arrived. The program is woken once for all of them: woken for each it would
    /// read one packet at a time.
    pub(super) fn handle_batch(&mut self, sockets: &Sockets) {
        self.free_delivered();
        self.take_events(self.latest, sockets);
    }

    /// Notes the address that the latest packet of a path came from.
    fn follow(
        &mut self,
        now: Time,
        path: SubflowId,
        number: u64,
        from: SocketAddr,
        (socket, to): (SocketKey, Option<std::net::IpAddr>),
    ) {
        let largest = self.largest.entry(path).or_default();
        if number < *largest {
            return;
        }
        *largest = number;
        let number = self.route_of.get(&path);
        let Some(route) = number.and_then(|number| self.routes.get_mut(number)) else { return };
        // The own address may be another one too, where packets come by way of a relay. Sockets
        // that do not say which it was do not say that it changed.
        if route.remote == from && (to.is_none() || route.source == to) {
            return;
        }
        (route.remote, route.source, route.socket) = (from, to, socket);
        route.name.text = from.to_string();
        let name = route.name.clone();
        self.core.rebind_path(now, path);
        if let Some(log) = &mut self.log {
            log.path_moved(now, path, None, from);
        }
        self.tell_route(&name, RouteChange::Moved { remote: from });
    }
}
