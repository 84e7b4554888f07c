//! Received packets: data, acknowledgements, and control messages.

use units::{SubflowId, Time};
use wire::ptcp::{ALL_STREAMS, Ack, Body, Packet, Reply, StreamData};

use super::{Connection, ConnectionState, Event, PeerError};
use crate::ack_tracker::ElicitingPacket;
use crate::path::{Binding, Control};
use crate::stream::recv::{RecvStream, StreamViolation};
use crate::stream::send::Piece;
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
    /// A datagram that the peer's application put on this path.
    Raw {
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
        over: SubflowId,
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
                self.handshake.keep_early(over, packet);
                return Ok(Arrived::Nothing);
            }
            ConnectionState::Opening | ConnectionState::Open => {}
        }
        self.began_at.get_or_insert(now);
        let mut arrived = self.handle(now, over, packet, is_marked);
        if self.state == ConnectionState::Open {
            for (over, packet) in self.handshake.take_early() {
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
        over: SubflowId,
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
        let most = self.config.max_streams;
        let is_refused = match &packet.body {
            Body::Data(data) => {
                self.would_exceed_gaps(data) || self.streams.is_beyond(data.stream, most)
            }
            Body::Reset { stream, .. } => self.streams.is_beyond(*stream, most),
            _ => false,
        };
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
            let plain = ElicitingPacket {
                reply: Reply::Path(over),
                stream: None,
                stamp: None,
                marked,
                is_question: matches!(packet.body, Body::Ping { .. }),
            };
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
            Body::Ack(ref ack) => self.handle_ack(now, ack)?,
            Body::StreamWindow { stream: ALL_STREAMS, limit } => self.raise_peer_streams(limit),
            Body::StreamWindow { stream, limit } => {
                self.streams.update_sending(stream, |sending| sending.raise_limit(limit));
            }
            Body::Need { buffer } => self.handle_buffer_request(now, buffer),
            Body::Reset { stream, code, end } => self.handle_reset(stream, code, end)?,
            Body::Stop { stream, code } => {
                if self.streams.sending().contains(stream) {
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
                    self.paths.forbid(path);
                }
            }
            Body::Raw { len } => return Ok(Arrived::Raw { len }),
            Body::Close { .. } | Body::Ping { .. } => {}
            Body::Challenge { token, .. } | Body::ShortChallenge { token } => {
                self.handle_challenge(now, over, token);
            }
            Body::Response { token } => self.handle_response(now, over, token),
            Body::Flight(piece) => self.handle_piece(now, over, piece),
        }
        Ok(Arrived::Nothing)
    }

    fn handle_data(&mut self, data: &StreamData) -> Result<Arrived, PeerError> {
        let StreamData { stream, offset, len, is_last, .. } = *data;
        if !self.accept_stream(stream)? {
            return Ok(Arrived::Nothing);
        }
        let piece = |receiving: &mut RecvStream| {
            let (next, read, unread) = (receiving.next(), receiving.read(), receiving.unread());
            let was_whole = receiving.is_whole();
            let grown = receiving
                .handle_piece(offset, u64::from(len), is_last)
                .map_err(|violation| violation_error(stream, violation))?;
            let (end, is_whole) = (receiving.next(), receiving.is_whole());
            let is_more = end > next || is_whole && !was_whole;
            let readable = is_more.then_some(Event::Readable { stream, end, is_whole });
            Ok((grown, receiving.read() - read, (unread, receiving.unread()), readable))
        };
        let (grown, read, (before, after), readable) =
            self.streams.update_receiving(stream, piece).expect("it was accepted")?;
        if !self.flow.handle_arrived(grown) {
            return Err(PeerError::Window { stream });
        }
        self.events.extend(readable);
        self.flow.handle_unread(before, after);
        self.count_read(stream, read);
        Ok(Arrived::Data { stream, offset, len })
    }

    fn accept_stream(&mut self, stream: u32) -> Result<bool, PeerError> {
        self.streams.accept(stream, self.config.max_streams, self.windows())
    }

    fn handle_reset(&mut self, stream: u32, code: u32, end: u64) -> Result<(), PeerError> {
        if !self.accept_stream(stream)? {
            return Ok(());
        }
        let reset = |receiving: &mut RecvStream| {
            let (read, unread) = (receiving.read(), receiving.unread());
            let grown = receiving
                .handle_reset(end)
                .map_err(|violation| violation_error(stream, violation))?;
            Ok((grown, receiving.read() - read, unread))
        };
        let (grown, read, unread) =
            self.streams.update_receiving(stream, reset).expect("it was accepted")?;
        if !self.flow.handle_arrived(grown) {
            return Err(PeerError::Window { stream });
        }
        self.flow.handle_unread(unread, 0);
        self.count_read(stream, read);
        self.events.push_back(Event::Reset { stream, code });
        Ok(())
    }

    fn handle_ack(&mut self, now: Time, ack: &Ack) -> Result<(), PeerError> {
        self.flow.raise_limit(ack.limit);
        let acked = self.paths.handle_ack(now, ack, &self.config)?;
        if acked.is_back {
            self.handle_back(ack.path);
        }
        if acked.is_open {
            self.handshake.confirm();
        }
        if acked.is_narrow {
            self.events.push_back(Event::PathNarrow { path: ack.path });
        }
        self.apply_outcomes(now);
        let Ack { stream, delivered, .. } = *ack;
        match self
            .streams
            .update_sending(stream, |sending| sending.handle_delivered(now, delivered))
        {
            Some(false) => return Err(PeerError::Delivered { stream, offset: delivered }),
            Some(true) => self.note_delivered(stream),
            None => {}
        }
        self.ask_for_buffer();
        Ok(())
    }

    /// A silent path carries acknowledged packets again.
    pub(super) fn handle_back(&mut self, id: SubflowId) {
        if let Some(path) = self.paths.get_mut(id)
            && core::mem::take(&mut path.is_told_silent)
        {
            self.events.push_back(Event::PathBack { path: id });
        }
        self.leave_silent_paths();
    }

    /// Applies the outcomes of packets to streams and control messages.
    pub(super) fn apply_outcomes(&mut self, now: Time) {
        let outcomes = self.paths.take_outcomes();
        for &outcome in &outcomes {
            match outcome {
                Outcome::Delivered(Binding::Data { stream, offset, len, is_last }) => {
                    let piece = Piece { offset, len, is_last };
                    self.streams
                        .update_sending(stream, |sending| sending.handle_arrived(now, piece));
                    self.note_delivered(stream);
                }
                Outcome::Lost(Binding::Data { stream, offset, len, is_last })
                | Outcome::Shrunk(Binding::Data { stream, offset, len, is_last }) => {
                    let piece = Piece { offset, len, is_last };
                    self.streams.update_sending(stream, |sending| sending.handle_unbound(piece));
                }
                Outcome::Lost(Binding::Control(control))
                | Outcome::Shrunk(Binding::Control(control)) => {
                    self.requeue(control);
                }
                Outcome::Delivered(Binding::Control(Control::Reset { stream, .. })) => {
                    self.streams.end_reset(stream);
                }
                Outcome::Delivered(Binding::Control(_)) => {}
            }
        }
        self.paths.give_back(outcomes);
    }

    /// Queues a lost control message again, if it is still relevant.
    fn requeue(&mut self, control: Control) {
        let is_worth = match control {
            Control::StreamWindow { stream } | Control::Stop { stream, .. } => {
                self.streams.receiving(stream).is_some()
            }
            Control::Reset { stream, .. } => self.streams.is_resetting(stream),
            Control::BufferRequest | Control::StreamCount | Control::Retire { .. } => true,
        };
        if is_worth {
            self.outbox.push_once(control);
        }
    }

    /// Removes a path; its data goes elsewhere. Returns whether it was in use.
    pub(super) fn drop_path(&mut self, now: Time, id: SubflowId) -> bool {
        let was_in_use = self.paths.remove(now, id);
        self.apply_outcomes(now);
        was_in_use
    }
}

fn violation_error(stream: u32, violation: StreamViolation) -> PeerError {
    match violation {
        StreamViolation::Window => PeerError::Window { stream },
        StreamViolation::End => PeerError::End { stream },
    }
}
