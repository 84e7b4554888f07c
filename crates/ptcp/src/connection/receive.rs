//! What comes in: data, acknowledgements, and what the peer says of streams and paths.

use units::Time;
use wire::ptcp::{Ack, Body, Data, Packet, Reply};

use super::{Connection, Event, State};
use crate::path::{Binding, Control, Life, Opening, Path};
use crate::receipts::Arrival;
use crate::stream::recv::{Breach, RecvStream};
use crate::stream::send::{Piece, SendStream};
use crate::subflow::Outcome;

/// Paths that a connection may have at the same time.
const MAX_PATHS: usize = 256;

/// What a packet brought for the application: its payload is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Nothing.
    Nothing,
    /// A piece of a stream. It may have come before, in part or as a whole: what lies before what the application has
    /// read already is to be left alone.
    Data {
        /// Which stream.
        stream: u32,
        /// Where it begins.
        offset: u64,
        /// How long it is.
        len: u16,
    },
    /// A datagram.
    Datagram {
        /// How long it is.
        len: u16,
    },
}

/// The peer broke the protocol: the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It acknowledged a packet that was never sent.
    #[error("the peer acknowledged packet {number} of path {path}, which was never sent")]
    Acknowledged {
        /// Which path.
        path: u16,
        /// Which packet.
        number: u64,
    },
    /// It says that data arrived that was never sent.
    #[error("the peer says it has stream {stream} up to {offset}, which was never sent")]
    Delivered {
        /// Which stream.
        stream: u32,
        /// Up to where.
        offset: u64,
    },
    /// It sent more than the windows allow.
    #[error("the peer sent more of stream {stream} than it was allowed to")]
    Window {
        /// Which stream.
        stream: u32,
    },
    /// A stream ends in two places, or goes on after its end.
    #[error("stream {stream} of the peer does not end where it said")]
    End {
        /// Which stream.
        stream: u32,
    },
    /// It opened too many streams, or one that is ours to open.
    #[error("the peer may not open stream {stream}")]
    Stream {
        /// Which stream.
        stream: u32,
    },
    /// It opened too many paths.
    #[error("the peer opened more than {MAX_PATHS} paths")]
    Paths,
}

impl PeerError {
    /// The code with which the connection is closed.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            PeerError::Acknowledged { .. } => 0x101,
            PeerError::Delivered { .. } => 0x102,
            PeerError::Window { .. } => 0x103,
            PeerError::End { .. } => 0x104,
            PeerError::Stream { .. } => 0x105,
            PeerError::Paths => 0x106,
        }
    }
}

impl Connection {
    /// A packet came over a path (the paper's `receive`); `is_marked`: with congestion experienced (ECN). The payload behind it is the caller's to keep, as
    /// [`Arrived`] says.
    ///
    /// # Errors
    /// If the peer broke the protocol. The connection closes then, and the peer is told.
    pub fn handle_packet(
        &mut self,
        now: Time,
        over: u16,
        packet: &Packet,
        is_marked: bool,
    ) -> Result<Arrived, PeerError> {
        match self.state {
            State::Closed => return Ok(Arrived::Nothing),
            State::Closing { code, .. } => {
                self.state = State::Closing { code, is_told: matches!(packet.body, Body::Close { .. }) };
                return Ok(Arrived::Nothing);
            }
            // Nothing else can be read before the keys are there.
            State::Opening if !matches!(packet.body, Body::Flight(_)) => return Ok(Arrived::Nothing),
            State::Opening | State::Open => {}
        }
        let arrived = self.handle(now, over, packet, is_marked);
        if let Err(error) = arrived {
            self.close(error.code());
        }
        arrived
    }

    fn handle(&mut self, now: Time, over: u16, packet: &Packet, is_marked: bool) -> Result<Arrived, PeerError> {
        let index = self.path_of(now, over)?;
        let path = &mut self.paths[index];
        path.handle_arrived(now, packet.datagram_len());
        if path.is_retired() || !path.receipts.handle_number(packet.number) {
            return Ok(Arrived::Nothing);
        }
        let wait = self.config.max_ack_delay;
        if packet.is_eliciting() {
            let arrival = match packet.body {
                Body::Data(data) => Arrival { reply: data.reply, stream: Some(data.stream), stamp: Some(data.stamp) },
                Body::Datagram { reply, .. } | Body::Ping { reply, .. } => Arrival { reply, stream: None, stamp: None },
                _ => Arrival { reply: Reply::Path(over), stream: None, stamp: None },
            };
            path.receipts.handle_eliciting(now, packet.number, arrival, is_marked, wait);
        }
        match packet.body {
            Body::Data(data) => return self.handle_data(&data),
            Body::Datagram { len, .. } => return Ok(Arrived::Datagram { len }),
            Body::Ack(ack) => self.handle_ack(now, &ack)?,
            Body::StreamWindow { stream, limit } => {
                if let Some(sending) = self.sending.get_mut(&stream) {
                    sending.raise_limit(limit);
                }
            }
            Body::Need { buffer } => self.handle_need(now, buffer),
            Body::Reset { stream, code, end } => self.handle_reset(stream, code, end)?,
            Body::Stop { stream, code } => {
                if self.sending.contains_key(&stream) {
                    self.reset(stream, code);
                    self.events.push_back(Event::Stopped { stream, code });
                }
            }
            Body::Retire { path } => {
                if self.drop_path(now, path) {
                    self.events.push_back(Event::PathRetired { path });
                }
            }
            Body::Close { code } => {
                self.state = State::Closed;
                self.events.push_back(Event::Closed { code });
            }
            Body::Ping { .. } => {}
            Body::Challenge { token, .. } => self.handle_challenge(now, over, token),
            Body::Response { token } => self.handle_response(now, over, token),
            Body::Flight(flight) => self.handle_flight(now, over, flight),
        }
        Ok(Arrived::Nothing)
    }

    /// The path that a packet came over; a server learns of it that way.
    #[inline]
    fn path_of(&mut self, now: Time, over: u16) -> Result<usize, PeerError> {
        if let Some(index) = self.paths.iter().position(|path| path.id == over) {
            return Ok(index);
        }
        if self.paths.iter().filter(|path| !path.is_retired()).count() >= MAX_PATHS || self.is_client {
            return Err(PeerError::Paths);
        }
        let token = (self.state == State::Open).then(|| self.tokens.next());
        let opening = Opening::new(token, token.map(|_| now));
        self.paths.push(Path::new(over, &self.config, opening, false));
        self.has_chores = true;
        Ok(self.paths.len() - 1)
    }

    fn handle_data(&mut self, data: &Data) -> Result<Arrived, PeerError> {
        let Data { stream, offset, len, is_last, .. } = *data;
        if !self.accept_stream(stream)? {
            return Ok(Arrived::Nothing);
        }
        let receiving = self.receiving.get_mut(&stream).expect("it was accepted");
        let (next, read, unread) = (receiving.next(), receiving.read(), receiving.unread());
        let grown =
            receiving.handle_piece(offset, u64::from(len), is_last).map_err(|breach| breach_of(stream, breach))?;
        let (read, is_more) = (receiving.read() - read, receiving.next() > next || receiving.is_done());
        let unread_after = receiving.unread();
        let (end, is_whole) = (receiving.next(), receiving.is_whole());
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

    /// Whether a stream is there to receive; the peer's first packet of it opens it. `false`: it was, and is done.
    #[inline]
    fn accept_stream(&mut self, stream: u32) -> Result<bool, PeerError> {
        if self.receiving.contains_key(&stream) {
            return Ok(true);
        }
        let is_ours = (stream % 2 == 1) != self.is_client;
        if is_ours {
            return if stream < self.next_stream { Ok(false) } else { Err(PeerError::Stream { stream }) };
        }
        if stream < self.peer_streams {
            return Ok(false);
        }
        // All that come before it are open too (RFC 9000, section 2.1).
        let parity = stream % 2;
        let open = self.receiving.keys().filter(|open| *open % 2 == parity).count();
        let new = (stream - self.peer_streams) / 2 + 1;
        if u32::try_from(open).unwrap_or(u32::MAX).saturating_add(new) > self.config.max_streams {
            return Err(PeerError::Stream { stream });
        }
        while self.peer_streams <= stream {
            let window = self.config.receive_buffer.0;
            self.receiving.insert(self.peer_streams, RecvStream::new(window));
            self.sending.insert(self.peer_streams, SendStream::new(window));
            self.peer_streams += 2;
        }
        Ok(true)
    }

    fn handle_reset(&mut self, stream: u32, code: u32, end: u64) -> Result<(), PeerError> {
        if !self.accept_stream(stream)? {
            return Ok(());
        }
        let receiving = self.receiving.get_mut(&stream).expect("it was accepted");
        let (read, unread) = (receiving.read(), receiving.unread());
        let grown = receiving.handle_reset(end).map_err(|breach| breach_of(stream, breach))?;
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
        let Connection { paths, controller, outcomes, .. } = self;
        if let Some(path) = paths.iter_mut().find(|path| path.id == ack.path)
            && let Life::Open(subflow) = &mut path.life
        {
            let was_silent = subflow.is_silent();
            subflow
                .handle_ack(now, ack, controller.as_mut(), outcomes)
                .map_err(|bad| PeerError::Acknowledged { path: ack.path, number: bad.number })?;
            if was_silent && !subflow.is_silent() {
                path.probes = 0;
                self.events.push_back(Event::PathBack { path: ack.path });
            }
            // The peer has the keys.
            self.finish = None;
        }
        self.settle();
        if let Some(sending) = self.sending.get_mut(&ack.stream) {
            if !sending.handle_delivered(ack.delivered) {
                return Err(PeerError::Delivered { stream: ack.stream, offset: ack.delivered });
            }
            self.note_delivered(ack.stream);
        }
        self.ask_for_buffer();
        Ok(())
    }

    /// Takes in what became of packets.
    pub(super) fn settle(&mut self) {
        let mut outcomes = core::mem::take(&mut self.outcomes);
        for outcome in outcomes.drain(..) {
            match outcome {
                Outcome::Delivered(Binding::Data { stream, offset, len, is_last }) => {
                    if let Some(sending) = self.sending.get_mut(&stream) {
                        sending.handle_arrived(Piece { offset, len, is_last });
                        self.note_delivered(stream);
                    }
                }
                Outcome::Lost(Binding::Data { stream, offset, len, is_last })
                | Outcome::Shrunk(Binding::Data { stream, offset, len, is_last }) => {
                    if let Some(sending) = self.sending.get_mut(&stream) {
                        sending.handle_unbound(Piece { offset, len, is_last });
                    }
                }
                Outcome::Lost(Binding::Control(control)) | Outcome::Shrunk(Binding::Control(control)) => {
                    self.requeue(control);
                }
                Outcome::Delivered(Binding::Control(_)) => {}
            }
        }
        self.outcomes = outcomes;
    }

    /// What was lost is said again, if it is still worth saying.
    fn requeue(&mut self, control: Control) {
        let is_worth = match control {
            Control::StreamWindow { stream } | Control::Stop { stream, .. } => self.receiving.contains_key(&stream),
            Control::Need | Control::Reset { .. } | Control::Retire { .. } => true,
        };
        if is_worth && !self.controls.contains(&control) {
            self.controls.push_back(control);
            self.has_chores = true;
        }
    }

    /// A path is used no more: what it carried goes elsewhere. Returns whether it was in use.
    pub(super) fn drop_path(&mut self, now: Time, id: u16) -> bool {
        let Some(path) = self.paths.iter_mut().find(|path| path.id == id && !path.is_retired()) else { return false };
        if let Life::Open(mut subflow) = core::mem::replace(&mut path.life, Life::Retired) {
            subflow.unbind_all(&mut self.outcomes);
            self.controller.handle_remove(now, subflow.id());
        }
        self.settle();
        true
    }
}

fn breach_of(stream: u32, breach: Breach) -> PeerError {
    match breach {
        Breach::Window => PeerError::Window { stream },
        Breach::End => PeerError::End { stream },
    }
}
