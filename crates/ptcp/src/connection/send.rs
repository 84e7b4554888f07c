//! Sent packets in the order of their urgency: acknowledgements, probes, control messages, and
//! data, which is bound to a packet at the time of sending (the paper's `send`).

use units::{Bytes, Time};
use wire::ptcp::{ALL_STREAMS, Body, MIN_FULL, PING_PADDING, Packet, Reply};

use super::{Connection, ConnectionState, Event, Transmit};
use crate::path::{Binding, Control, Path, PathPhase};
use crate::stream::recv::RecvStream;
use crate::stream::send::Piece;
use crate::subflow::Subflow;

/// Every so many of the probes of a silent path carry no data: they arrive where the line is too
/// narrow for full packets.
const SMALLEST_PROBE: u32 = 4;

impl Connection {
    /// The next packet to send. Call it until it returns `None`, after each other call.
    #[inline]
    pub fn poll_send(&mut self, now: Time) -> Option<Transmit> {
        if !self.is_alive() {
            return self.poll_close();
        }
        if let Some(transmit) = self.poll_ack(now) {
            return Some(transmit);
        }
        self.striping.begin_round();
        if self.outbox.is_awake() {
            if let Some(transmit) = self.poll_pending(now) {
                return Some(transmit);
            }
            self.outbox.rest();
        }
        if self.state == ConnectionState::Open { self.poll_data(now) } else { None }
    }

    /// An acknowledgement that is due, over the path that the peer named or over all.
    #[inline]
    fn poll_ack(&mut self, now: Time) -> Option<Transmit> {
        while let Some(index) = self.paths.iter().position(|path| path.acks.due(now).is_some()) {
            let transmit = self.acknowledge(now, index);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    #[inline]
    fn acknowledge(&mut self, now: Time, index: usize) -> Option<Transmit> {
        let path = &mut self.paths[index];
        let id = path.id;
        // An address that may get only one of both would stay without a challenge.
        if path.allowed.is_some()
            && let Some(challenge) = path.poll_validation(now)
        {
            return self.paths.emit(now, id, challenge);
        }
        let reply = path.acks.due(now)?;
        let mut ack = path.acks.ack(now, id)?;
        let stream = path.acks.stream();
        ack.stream = stream;
        path.acks.handle_ack_sent();
        ack.delivered = self.streams.receiving(stream).map_or(0, RecvStream::next);
        ack.limit = self.flow.grant_lower();
        let over = match reply {
            Reply::Path(wanted)
                if self.paths.get(wanted).is_some_and(|path| path.subflow().is_some()) =>
            {
                wanted
            }
            Reply::Path(_) | Reply::All => id,
        };
        if self.paths.get(over).is_some_and(|path| self.ack_limited(path)) {
            return None;
        }
        match reply {
            Reply::Path(_) => self.paths.emit(now, over, Body::Ack(ack)),
            Reply::All => {
                for other in self.paths.iter() {
                    if other.id != id && other.subflow().is_some() {
                        self.outbox.push_copy(other.id, ack.clone());
                    }
                }
                self.outbox.wake();
                self.paths.emit(now, id, Body::Ack(ack))
            }
        }
    }

    /// Everything except data and acknowledgements.
    fn poll_pending(&mut self, now: Time) -> Option<Transmit> {
        while let Some((id, ack)) = self.outbox.pop_copy() {
            if let Some(transmit) = self.paths.emit(now, id, Body::Ack(ack)) {
                return Some(transmit);
            }
        }
        if let Some(transmit) = self.poll_opening(now) {
            return Some(transmit);
        }
        while let Some((id, len)) = self.outbox.pop_raw() {
            if let Some(transmit) = self.paths.emit(now, id, Body::Raw { len }) {
                return Some(transmit);
            }
        }
        if self.state != ConnectionState::Open {
            return None;
        }
        let is_probed =
            |path: &Path| path.probes > 0 && path.subflow().is_some() && path.allows(1_500);
        if let Some(index) = self.paths.iter().position(is_probed) {
            self.paths[index].probes -= 1;
            return Some(self.probe(now, index));
        }
        let is_pinged =
            |path: &Path| path.is_ping_due && path.subflow().is_some() && path.allows(1_500);
        if let Some(index) = self.paths.iter().position(is_pinged) {
            let path = &mut self.paths[index];
            path.is_ping_due = false;
            let body = Body::Ping { padding: PING_PADDING, reply: Reply::Path(path.id) };
            return Some(self.transmit(now, index, body, None));
        }
        let other = self.poll_control(now).or_else(|| self.poll_datagram(now));
        other.or_else(|| self.poll_ping(now))
    }

    /// A probe of a silent path, regardless of its window: a copy of the data that is needed first
    /// (the paper's redundant striping).
    fn probe(&mut self, now: Time, index: usize) -> Transmit {
        let path = &self.paths[index];
        let expired = path.subflow().map_or(0, Subflow::expired);
        if expired > 2 && expired.is_multiple_of(SMALLEST_PROBE) {
            return self.transmit(now, index, Body::Ping { padding: 0, reply: Reply::All }, None);
        }
        // The path may be silent because packets of the initial size are too large for it.
        let most =
            if expired > 2 && !expired.is_multiple_of(2) { MIN_FULL } else { self.config.datagram };
        let room = Packet::room_for_data(path.datagram.min(most)).0;
        if let Some(stream) = self.streams.sending().first_again()
            && let Some(Some((piece, _))) =
                self.streams.update_sending(stream, |sending| sending.take(room, 0, true))
        {
            return self.transmit_piece(now, index, stream, piece, Reply::All);
        }
        let streams = self.streams.sending();
        let oldest = match &mut self.paths[index].phase {
            PathPhase::Open(subflow) => {
                subflow.bound_packets().find_map(|(_, binding, is_unbound)| match binding {
                    // Of a stream that was reset, and of what has arrived over another path, the
                    // driver has freed the bytes.
                    Binding::Data { stream, offset, len, is_last } if u64::from(len) <= room => {
                        let piece = streams.get(stream)?.owed(Piece { offset, len, is_last })?;
                        *is_unbound = true;
                        Some((stream, piece))
                    }
                    _ => None,
                })
            }
            PathPhase::Opening(_) => None,
        };
        match oldest {
            Some((stream, piece)) => self.transmit_piece(now, index, stream, piece, Reply::All),
            None => self.transmit(now, index, Body::Ping { padding: 0, reply: Reply::All }, None),
        }
    }

    /// A control message, over the fastest path with room.
    fn poll_control(&mut self, now: Time) -> Option<Transmit> {
        if !self.outbox.has_controls() {
            return None;
        }
        let index = self.best_with_room(now, |_| true)?;
        while let Some(control) = self.outbox.pop_control() {
            let body = match control {
                Control::StreamWindow { stream } => {
                    let Some(receiving) = self.streams.receiving(stream) else { continue };
                    Body::StreamWindow { stream, limit: receiving.advertised() }
                }
                Control::StreamCount => Body::StreamWindow {
                    stream: ALL_STREAMS,
                    limit: self.config.max_streams.into(),
                },
                Control::BufferRequest => Body::Need { buffer: self.flow.requested_buffer() },
                Control::Reset { stream, code, end } => Body::Reset { stream, code, end },
                Control::Stop { stream, code } => Body::Stop { stream, code },
                Control::Retire { path } => Body::Retire { path },
            };
            return Some(self.transmit(now, index, body, Some(Binding::Control(control))));
        }
        None
    }

    fn poll_datagram(&mut self, now: Time) -> Option<Transmit> {
        let carries =
            |path: &Path, len: u16| Packet::room_for_data(path.datagram) >= Bytes(u64::from(len));
        let len = loop {
            let len = self.outbox.first_datagram()?;
            let mut open = self.paths.iter().filter(|path| path.subflow().is_some()).peekable();
            if open.peek().is_none() || open.any(|path| carries(path, len)) {
                break len;
            }
            self.outbox.pop_datagram();
            self.events.push_back(Event::DatagramDropped { len });
        };
        let index = self.best_with_room(now, |path| carries(path, len))?;
        self.outbox.pop_datagram();
        let reply = self.reply(now, index);
        Some(self.transmit(now, index, Body::Datagram { len, reply }, None))
    }

    /// A ping that the application asked for, over the fastest path with room.
    fn poll_ping(&mut self, now: Time) -> Option<Transmit> {
        if !self.outbox.is_ping_due() {
            return None;
        }
        let index = self.best_with_room(now, |_| true)?;
        self.outbox.handle_ping_sent();
        let reply = self.reply(now, index);
        Some(self.transmit(now, index, Body::Ping { padding: 0, reply }, None))
    }

    /// Sends an ack-eliciting packet.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        now: Time,
        index: usize,
        body: Body,
        binding: Option<Binding>,
    ) -> Transmit {
        self.idle.handle_sent(now);
        self.paths.transmit(now, index, body, binding)
    }
}
