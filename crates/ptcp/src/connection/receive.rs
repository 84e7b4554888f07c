//! Received packets: data, acknowledgements, and control messages.

use units::Time;
use wire::ptcp::{Ack, Body, Packet, Reply, StreamData};

use super::bounds::MAX_EARLY;
use super::{Connection, ConnectionState, Event, PeerError};
use crate::ack_tracker::ElicitingPacket;
use crate::path::{Binding, Control, PathPhase};
use crate::stream::recv::{RecvStream, StreamViolation};
use crate::stream::send::{Piece, SendStream};
use crate::subflow::Outcome;

/// The payload of a received packet, for the application to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Nothing.
    Nothing,
    /// A piece of a stream. Parts of it may be duplicates; bytes before the application's reading
    /// position must be ignored.
    Data {
        /// The stream.
        stream: u32,
        /// The offset of its first byte.
        offset: u64,
        /// Its length in bytes.
        len: u16,
    },
    /// A datagram.
    Datagram {
        /// Its length in bytes.
        len: u16,
    },
}

impl Connection {
    /// A packet arrived over a path (the paper's `receive`); `is_marked`: with congestion
    /// experienced (ECN). The caller keeps its payload as [`Arrived`] describes.
    ///
    /// # Errors
    /// If the peer violated the protocol. The connection then closes, and the peer is told.
    pub fn handle_packet(
        &mut self,
        now: Time,
        over: u16,
        packet: &Packet,
        is_marked: bool,
    ) -> Result<Arrived, PeerError> {
        match self.state {
            ConnectionState::Closing(_)
            | ConnectionState::Draining(_)
            | ConnectionState::Closed => {
                self.handle_late_packet(over, packet);
                return Ok(Arrived::Nothing);
            }
            // Only flights can be decrypted before the handshake is complete. Challenges are kept,
            // so that the peer need not repeat them.
            ConnectionState::Opening if !matches!(packet.body, Body::Flight(_)) => {
                self.began_at.get_or_insert(now);
                if matches!(packet.body, Body::Challenge { .. })
                    && self.early_challenges.len() < MAX_EARLY
                {
                    self.early_challenges.push((over, *packet));
                }
                return Ok(Arrived::Nothing);
            }
            ConnectionState::Opening | ConnectionState::Open => {}
        }
        self.began_at.get_or_insert(now);
        let mut arrived = self.handle(now, over, packet, is_marked);
        if self.state == ConnectionState::Open && !self.early_challenges.is_empty() {
            for (over, packet) in core::mem::take(&mut self.early_challenges) {
                arrived = arrived
                    .and_then(|arrived| self.handle(now, over, &packet, false).map(|_| arrived));
            }
        }
        if let Err(error) = arrived {
            self.close(now, error.code());
        }
        arrived
    }

    fn handle(
        &mut self,
        now: Time,
        over: u16,
        packet: &Packet,
        is_marked: bool,
    ) -> Result<Arrived, PeerError> {
        Connection::check_number(over, packet.number)?;
        if let Body::Close { code } = packet.body {
            // Also over a path that is retired here, and not yet there.
            self.handle_close(now, over, code);
            return Ok(Arrived::Nothing);
        }
        let Some(index) = self.path_index(now, over)? else { return Ok(Arrived::Nothing) };
        let is_refused = matches!(&packet.body, Body::Data(data) if self.would_exceed_gaps(data));
        let path = &mut self.paths[index];
        path.handle_arrived(now, packet.datagram_len());
        if is_refused || !path.acks.record_number(packet.number) {
            return Ok(Arrived::Nothing);
        }
        self.idle.handle_arrived(now);
        let wait = self.config.max_ack_delay;
        if packet.is_eliciting() {
            let size = u32::try_from(packet.datagram_len()).expect("a datagram");
            let marked = is_marked.then_some(size);
            let plain =
                ElicitingPacket { reply: Reply::Path(over), stream: None, stamp: None, marked };
            let arrival = match packet.body {
                Body::Data(StreamData { reply, stream, stamp, .. }) => {
                    ElicitingPacket { reply, stream: Some(stream), stamp: Some(stamp), ..plain }
                }
                Body::Datagram { reply, .. } | Body::Ping { reply, .. } => {
                    ElicitingPacket { reply, ..plain }
                }
                _ => plain,
            };
            path.acks.handle_eliciting(now, packet.number, arrival, wait);
        }
        match packet.body {
            Body::Data(data) => return self.handle_data(&data),
            Body::Datagram { len, .. } => return Ok(Arrived::Datagram { len }),
            Body::Ack(ack) => self.handle_ack(now, &ack)?,
            Body::StreamWindow { stream, limit } => {
                self.sending.update(stream, |sending| sending.raise_limit(limit));
            }
            Body::Need { buffer } => self.handle_buffer_request(now, buffer),
            Body::Reset { stream, code, end } => self.handle_reset(stream, code, end)?,
            Body::Stop { stream, code } => {
                if self.sending.contains(stream) {
                    self.reset(stream, code);
                    self.events.push_back(Event::Stopped { stream, code });
                }
            }
            Body::Retire { path } => {
                if self.drop_path(now, path) {
                    self.events.push_back(Event::PathRetired { path });
                }
                if !self.is_client {
                    // Also for a path without packets so far: those still in flight must not open
                    // it.
                    self.retired.insert(path);
                }
            }
            Body::Close { .. } | Body::Ping { .. } => {}
            Body::Challenge { token, .. } => self.handle_challenge(now, over, token),
            Body::Response { token } => self.handle_response(now, over, token),
            Body::Flight(flight) => self.handle_flight(now, over, flight),
        }
        Ok(Arrived::Nothing)
    }

    fn handle_data(&mut self, data: &StreamData) -> Result<Arrived, PeerError> {
        let StreamData { stream, offset, len, is_last, .. } = *data;
        if !self.accept_stream(stream)? {
            return Ok(Arrived::Nothing);
        }
        let receiving = self.receiving.get_mut(&stream).expect("it was accepted");
        let (next, read, unread) = (receiving.next(), receiving.read(), receiving.unread());
        let was_whole = receiving.is_whole();
        let gaps = receiving.gaps();
        let grown = receiving
            .handle_piece(offset, u64::from(len), is_last)
            .map_err(|violation| violation_error(stream, violation))?;
        let read = receiving.read() - read;
        let unread_after = receiving.unread();
        let (end, is_whole) = (receiving.next(), receiving.is_whole());
        let is_more = end > next || is_whole && !was_whole;
        self.gaps = self.gaps + receiving.gaps() - gaps;
        if !self.flow.handle_arrived(grown) {
            return Err(PeerError::Window { stream });
        }
        if is_more {
            self.events.push_back(Event::Readable { stream, end, is_whole });
        }
        self.note_unread(unread, unread_after);
        self.count_read(stream, read);
        Ok(Arrived::Data { stream, offset, len })
    }

    /// Whether a stream can receive; the first packet of a peer's stream opens it. `false`: it is
    /// completed.
    #[inline]
    fn accept_stream(&mut self, stream: u32) -> Result<bool, PeerError> {
        if self.receiving.contains_key(&stream) {
            return Ok(true);
        }
        let is_ours = (stream % 2 == 1) != self.is_client;
        if is_ours {
            return if stream < self.next_stream {
                Ok(false)
            } else {
                Err(PeerError::Stream { stream })
            };
        }
        if stream < self.peer_streams {
            return Ok(false);
        }
        // All streams with lower numbers are open too (RFC 9000, section 2.1).
        let new = (stream - self.peer_streams) / 2 + 1;
        // The last numbers are not used, so that each has a successor.
        if self.peer_open.saturating_add(new) > self.config.max_streams || stream >= u32::MAX - 1 {
            return Err(PeerError::Stream { stream });
        }
        while self.peer_streams <= stream {
            let window = self.config.receive_buffer.0;
            self.receiving.insert(self.peer_streams, RecvStream::new(window));
            self.sending.insert(self.peer_streams, SendStream::new(window));
            self.peer_streams += 2;
            self.peer_open += 1;
        }
        Ok(true)
    }

    fn handle_reset(&mut self, stream: u32, code: u32, end: u64) -> Result<(), PeerError> {
        if !self.accept_stream(stream)? {
            return Ok(());
        }
        let receiving = self.receiving.get_mut(&stream).expect("it was accepted");
        let (read, unread) = (receiving.read(), receiving.unread());
        self.gaps -= receiving.gaps();
        let grown =
            receiving.handle_reset(end).map_err(|violation| violation_error(stream, violation))?;
        let read = receiving.read() - read;
        if !self.flow.handle_arrived(grown) {
            return Err(PeerError::Window { stream });
        }
        self.note_unread(unread, 0);
        self.count_read(stream, read);
        self.events.push_back(Event::Reset { stream, code });
        Ok(())
    }

    fn handle_ack(&mut self, now: Time, ack: &Ack) -> Result<(), PeerError> {
        self.flow.raise_limit(ack.limit);
        let Connection { paths, controller, outcomes, config, bottlenecks, .. } = self;
        let has_several = paths.len() > 1;
        if let Some(path) = paths.iter_mut().find(|path| path.id == ack.path)
            && let PathPhase::Open(subflow) = &mut path.phase
        {
            let was_silent = subflow.is_silent();
            subflow
                .handle_ack(now, ack, controller.as_mut(), outcomes)
                .map_err(|bad| PeerError::Acknowledged { path: ack.path, number: bad.number })?;
            if let Some(delay) = ack.one_way.filter(|_| has_several) {
                let stats = subflow.stats();
                bottlenecks.handle_delay(now, subflow.id(), delay.get(), stats.sent, stats.lost);
            }
            let is_back = was_silent && !subflow.is_silent();
            if subflow.poll_black_hole() {
                path.reset_size(now, config);
            }
            if is_back {
                path.probes = 0;
                self.events.push_back(Event::PathBack { path: ack.path });
            }
            // The peer has completed the handshake.
            self.finish = None;
        }
        if let Some(id) = self.bottlenecks.poll_test() {
            let Connection { paths, controller, .. } = self;
            let mut open = paths.iter_mut().filter_map(super::Path::subflow_mut);
            if let Some(subflow) = open.find(|subflow| subflow.id() == id) {
                subflow.penalise(now, controller.as_mut());
            }
        }
        if self.bottlenecks.poll_regrouped() {
            let Connection { paths, controller, bottlenecks, .. } = self;
            for subflow in paths.iter_mut().filter_map(super::Path::subflow_mut) {
                let id = subflow.id();
                controller.handle_bottleneck(now, id, bottlenecks.bottleneck(id));
            }
        }
        self.apply_outcomes();
        let Ack { stream, delivered, .. } = *ack;
        match self.sending.update(stream, |sending| sending.handle_delivered(delivered)) {
            Some(false) => return Err(PeerError::Delivered { stream, offset: delivered }),
            Some(true) => self.note_delivered(stream),
            None => {}
        }
        self.ask_for_buffer();
        Ok(())
    }

    /// Applies the outcomes of packets to streams and control messages.
    pub(super) fn apply_outcomes(&mut self) {
        let mut outcomes = core::mem::take(&mut self.outcomes);
        for outcome in outcomes.drain(..) {
            match outcome {
                Outcome::Delivered(Binding::Data { stream, offset, len, is_last }) => {
                    let piece = Piece { offset, len, is_last };
                    self.sending.update(stream, |sending| sending.handle_arrived(piece));
                    self.note_delivered(stream);
                }
                Outcome::Lost(Binding::Data { stream, offset, len, is_last })
                | Outcome::Shrunk(Binding::Data { stream, offset, len, is_last }) => {
                    let piece = Piece { offset, len, is_last };
                    self.sending.update(stream, |sending| sending.handle_unbound(piece));
                }
                Outcome::Lost(Binding::Control(control))
                | Outcome::Shrunk(Binding::Control(control)) => {
                    self.requeue(control);
                }
                Outcome::Delivered(Binding::Control(Control::Reset { stream, .. })) => {
                    if self.resetting.remove(&stream) {
                        self.note_half_ended(stream);
                    }
                }
                Outcome::Delivered(Binding::Control(_)) => {}
            }
        }
        self.outcomes = outcomes;
    }

    /// Queues a lost control message again, if it is still relevant.
    fn requeue(&mut self, control: Control) {
        let is_worth = match control {
            Control::StreamWindow { stream } | Control::Stop { stream, .. } => {
                self.receiving.contains_key(&stream)
            }
            Control::Reset { stream, .. } => self.resetting.contains(&stream),
            Control::BufferRequest | Control::Retire { .. } => true,
        };
        if is_worth && !self.controls.contains(&control) {
            self.controls.push_back(control);
            self.has_pending = true;
        }
    }

    /// Removes a path; its data goes elsewhere. Returns whether it was in use.
    pub(super) fn drop_path(&mut self, now: Time, id: u16) -> bool {
        let Some(index) = self.paths.iter().position(|path| path.id == id) else { return false };
        self.retired.insert(id);
        if let PathPhase::Open(mut subflow) = self.paths.remove(index).phase {
            subflow.unbind_all(&mut self.outcomes);
            self.controller.handle_remove(now, subflow.id());
            self.bottlenecks.handle_remove(subflow.id());
        }
        self.apply_outcomes();
        true
    }
}

fn violation_error(stream: u32, violation: StreamViolation) -> PeerError {
    match violation {
        StreamViolation::Window => PeerError::Window { stream },
        StreamViolation::End => PeerError::End { stream },
    }
}
