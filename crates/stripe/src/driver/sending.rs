//! What a connection sends: packets sealed into batches, a batch at a time to the kernel.

use std::sync::atomic::Ordering;

use ptcp::Transmit;
use secure::{PacketNumber, SealError};
use units::{Bytes, Time};
use wire::ptcp::{Body, StreamData};

use super::link::Link;
use super::sockets::Sockets;
use crate::clock::StampedClock;
use crate::socket::EcnCodepoint;

/// Packets after which the clock is read again.
const PACKETS: u32 = 32;

impl Link {
    /// Sends what the windows, the pace and the sockets allow.
    pub(super) fn send(&mut self, clock: &StampedClock, sockets: &Sockets) {
        for route in self.routes.values_mut().filter(|route| route.is_blocked()) {
            route.unblock(sockets);
        }
        let mut now = clock.now().max(self.latest);
        let mut packets = 0;
        while let Some(transmit) = self.core.poll_send(now) {
            self.latest = now;
            let sent = self.send_packet(now, &transmit, sockets);
            if let Err(SealError::KeyExhausted) = sent {
                // The peer has not followed a key update for as many packets as a key may seal.
                tracing::warn!("the key of a striped connection is used up");
                break;
            }
            if let Some(total) = &self.max_rate {
                let bytes = Bytes(transmit.packet.datagram_len() as u64);
                let free_at = total.take(clock.shared(clock.now()), bytes);
                self.core.hold_data(clock.own(free_at));
            }
            packets += 1;
            if packets % PACKETS == 0 {
                now = clock.now().max(now);
            }
        }
        for route in self.routes.values_mut() {
            route.flush(sockets);
        }
    }

    fn send_packet(
        &mut self,
        now: Time,
        transmit: &Transmit,
        sockets: &Sockets,
    ) -> Result<(), SealError> {
        let Transmit { path, packet, .. } = transmit;
        let path = *path;
        let raw = match packet.body {
            Body::Raw { len } => self.entrusted.take(path, len),
            _ => None,
        };
        // A guest's packets are as capable as what is in them (RFC 6040, section 4.1).
        let ecn = match &raw {
            Some(raw) => raw.is_ecn_capable.then_some(EcnCodepoint::Ect0),
            None if transmit.is_scalable => Some(EcnCodepoint::Ect1),
            None => transmit.is_ecn_capable.then_some(EcnCodepoint::Ect0),
        };
        // A path without a route is retired; a packet of it counts as lost.
        let Some(number) = self.route_of.get(&path) else { return Ok(()) };
        let Some(route) = self.routes.get_mut(number) else { return Ok(()) };
        let len = packet.datagram_len();
        if let Some(log) = &mut self.log {
            log.packet(now, path, packet, true);
        }
        route.signs.handle_sent(now);
        self.signs.handle_sent(now);
        route.prepare(len, ecn, sockets);
        let number = PacketNumber { path, number: packet.number };
        let start = route.batch.bytes.len();
        let datagram = match packet.body {
            Body::Datagram { .. } => self.datagrams.pop_front(),
            _ => None,
        };
        if datagram.is_some() {
            self.ends.outgoing.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        let streams = &self.streams;
        let mut is_whole = true;
        let write = |into: &mut Vec<u8>| {
            packet.emit(into);
            match packet.body {
                Body::Data(StreamData { stream, offset, len, .. }) => {
                    let entry = streams.get(&stream);
                    is_whole =
                        entry.is_some_and(|entry| entry.cell.copy(offset, usize::from(len), into));
                }
                Body::Datagram { .. } => {
                    is_whole = datagram.is_some();
                    into.extend_from_slice(datagram.as_deref().unwrap_or_default());
                }
                Body::Raw { .. } => {
                    is_whole = raw.is_some();
                    if let Some(raw) = &raw {
                        into.extend_from_slice(&raw.payload);
                    }
                }
                _ => {}
            }
        };
        let sealed = self.session.seal_with(now, number, &mut route.batch.bytes, write);
        if !is_whole {
            tracing::error!(?packet, "the bytes of a packet are gone");
        }
        if sealed.is_ok() && is_whole {
            route.note(len, ecn);
            self.carried.add_sent(route.remote.ip(), len);
        } else {
            // It counts as lost.
            route.batch.bytes.truncate(start);
        }
        sealed
    }

    /// The program hands over a datagram.
    pub(in crate::driver) fn send_datagram(&mut self, bytes: Vec<u8>) {
        match self.core.send_datagram(Bytes(bytes.len() as u64)) {
            Ok(()) => self.datagrams.push_back(bytes),
            // A path that carries less, or the end, came in between: it is lost.
            Err(_) => self.count_datagram(),
        }
    }

    /// The datagram that has waited longest fits no path any more.
    pub(super) fn drop_datagram(&mut self) {
        self.datagrams.pop_front();
        self.count_datagram();
    }

    fn count_datagram(&self) {
        self.ends.outgoing.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
