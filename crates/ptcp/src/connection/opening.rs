//! Opening of a connection and its paths: handshake flights, path challenges, and size probes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use units::{Span, SubflowId, Time};
use wire::ptcp::{Body, Flight, MIN_FULL, Packet, Piece};

use super::bounds::MAX_EARLY;
use super::{Connection, ConnectionState, Event, Transmit};
use crate::Config;
use crate::path::{Opening, Path, PathPhase};
use crate::ranges::Ranges;

const FLIGHTS: usize = 5;

/// The handshake of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshake {
    /// Pieces of flights to be sent, with their paths.
    pieces: VecDeque<(SubflowId, Piece)>,
    /// What has arrived of each flight, over all paths.
    arrived: [Ranges; FLIGHTS],
    /// The timer of a client's Finish flight, which is repeated until the peer confirms it.
    finish: Option<Opening>,
    /// Challenges that overtook the end of the handshake, with their paths.
    early_challenges: Vec<(SubflowId, Packet)>,
}

impl Handshake {
    /// Keeps a challenge that came before the end of the handshake, so that the peer need not
    /// repeat it.
    pub(super) fn keep_early(&mut self, over: SubflowId, packet: &Packet) {
        if matches!(packet.body, Body::Challenge { .. }) && self.early_challenges.len() < MAX_EARLY
        {
            self.early_challenges.push((over, packet.clone()));
        }
    }

    /// The challenges that came before.
    #[inline]
    pub(super) fn take_early(&mut self) -> Vec<(SubflowId, Packet)> {
        core::mem::take(&mut self.early_challenges)
    }

    /// The peer has completed it.
    pub(super) fn confirm(&mut self) {
        self.finish = None;
    }

    /// When the Finish flight is repeated.
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.finish?.at
    }

    /// Queues those of the pieces that are not queued already.
    fn queue(&mut self, path: SubflowId, pieces: impl Iterator<Item = Piece>) {
        for piece in pieces {
            if !self.pieces.contains(&(path, piece)) {
                self.pieces.push_back((path, piece));
            }
        }
    }

    /// Queues a client's first flight. If anything of an answer has arrived, the server has all of
    /// it, and one packet asks for the rest.
    fn queue_hello(&mut self, path: SubflowId) {
        let is_answered = [Flight::Answer, Flight::Proof]
            .into_iter()
            .any(|flight| !self.arrived[flight as usize].is_empty());
        let is_needed = |piece: &Piece| !is_answered || piece.is_last();
        self.queue(path, Flight::Hello.pieces().filter(is_needed));
    }

    /// Queues a server's first flight.
    fn queue_answer(&mut self, path: SubflowId) {
        self.queue(path, Flight::Answer.pieces().chain(Flight::Proof.pieces()));
    }

    /// A piece arrived. Returns whether anything of it is new, and whether it completes its flight
    /// or ends a repetition of it.
    fn handle_piece(&mut self, piece: Piece) -> (bool, bool) {
        let was_whole = self.is_whole(piece.flight);
        let (from, arrived) = (u64::from(piece.offset), &mut self.arrived[piece.flight as usize]);
        let new = arrived.insert(from, from + u64::from(piece.len));
        let is_whole = self.is_whole(piece.flight);
        (new > 0, is_whole && (!was_whole || piece.is_last()))
    }

    /// Whether all of a flight has arrived.
    fn is_whole(&self, flight: Flight) -> bool {
        self.arrived[flight as usize].contains(0, u64::from(flight.octets()))
    }
}

impl Connection {
    /// A piece of the handshake arrived over a path.
    pub(super) fn handle_piece(&mut self, now: Time, path: SubflowId, piece: Piece) {
        let (is_new, ends_flight) = self.handshake.handle_piece(piece);
        if is_new && self.is_client {
            self.paths.handle_progress(now);
        }
        if ends_flight {
            self.handle_flight(now, path, piece.flight);
        }
        self.outbox.wake();
    }

    /// A flight of the handshake has arrived whole.
    fn handle_flight(&mut self, now: Time, path: SubflowId, flight: Flight) {
        let has_answer = [Flight::Answer, Flight::Proof]
            .into_iter()
            .all(|flight| self.handshake.is_whole(flight));
        match (flight, self.is_client, &self.state) {
            // The answer, for the first time or repeated.
            (Flight::Hello, false, ConnectionState::Opening | ConnectionState::Open) => {
                self.handshake.queue_answer(path);
            }
            (Flight::Answer | Flight::Proof, true, ConnectionState::Opening) if has_answer => {
                self.handshake.queue(path, Flight::Finish.pieces());
                self.handshake.finish = Some(Opening::new(None, None));
                self.begin(now, path);
                self.paths.challenge_all(now);
            }
            (Flight::Proof, true, ConnectionState::Open) if self.handshake.finish.is_some() => {
                self.handshake.queue(path, Flight::Finish.pieces());
            }
            (Flight::Finish, false, ConnectionState::Opening) => {
                self.handshake.queue(path, Flight::Done.pieces());
                self.begin(now, path);
            }
            (Flight::Finish, false, ConnectionState::Open) => {
                self.handshake.queue(path, Flight::Done.pieces());
            }
            (Flight::Done, true, ConnectionState::Open) => self.handshake.finish = None,
            _ => {}
        }
        self.outbox.wake();
    }

    /// The handshake is complete. The path is open, unless its address has to be validated.
    fn begin(&mut self, now: Time, path: SubflowId) {
        self.state = ConnectionState::Open;
        self.events.push_back(Event::Opened);
        self.paths.stop_flights();
        let token = self.paths.token();
        let Some(Path { phase: PathPhase::Opening(opening), .. }) = self.paths.get_mut(path) else {
            return;
        };
        if opening.tries > 0 {
            self.begin_path(now, path);
        } else {
            // The Finish arrived over another path than the Answer was sent on: that address is not
            // validated.
            (opening.token, opening.at) = (Some(token), Some(now));
        }
    }

    /// Opens a path for data.
    pub(super) fn begin_path(&mut self, now: Time, id: SubflowId) {
        // The peer delays the acknowledgements for which this end waits.
        let config = Config { max_ack_delay: self.peer.max_ack_delay, ..self.config.clone() };
        if self.paths.begin(now, id, &config) {
            self.events.push_back(Event::PathOpened { path: id });
        }
    }

    /// A challenge arrived; the response goes back on its path.
    pub(super) fn handle_challenge(&mut self, now: Time, id: SubflowId, token: u64) {
        let own = self.paths.token();
        let is_client = self.is_client;
        let Some(path) = self.paths.get_mut(id) else { return };
        path.response = Some(token);
        if let PathPhase::Opening(opening) = &mut path.phase
            && opening.token.is_none()
            && !is_client
        {
            // The server sends a challenge of its own, to validate the client's address.
            (opening.token, opening.at) = (Some(own), Some(now));
        }
        self.outbox.wake();
    }

    /// A response arrived: it opens the path, or confirms a packet size.
    pub(super) fn handle_response(&mut self, now: Time, id: SubflowId, token: u64) {
        let Some(path) = self.paths.get_mut(id) else { return };
        match &path.phase {
            PathPhase::Opening(opening) if opening.token == Some(token) => self.begin_path(now, id),
            PathPhase::Open(_) => {
                if path.handle_response(token, &self.config) && self.paths.revive(now, id) {
                    self.apply_outcomes(now);
                    self.handle_back(id);
                }
            }
            PathPhase::Opening(_) => {}
        }
        self.outbox.wake();
    }

    /// The next piece of a handshake, challenge, response or size probe that is due.
    pub(super) fn poll_opening(&mut self, now: Time) -> Option<Transmit> {
        while let Some((path, piece)) = self.handshake.pieces.pop_front() {
            if piece.offset == 0 {
                self.note_flight_sent(now, path, piece.flight);
            }
            let transmit = self.paths.emit(now, path, Body::Flight(piece));
            if transmit.is_some() {
                return transmit;
            }
        }
        if let Some(finish) = &mut self.handshake.finish
            && finish.at.is_some_and(|at| at <= now)
        {
            finish.at = None;
            let path = self.paths.iter().min_by_key(|path| path.subflow().is_none())?.id;
            self.handshake.queue(path, Flight::Finish.pieces());
            return self.poll_opening(now);
        }
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            let id = path.id;
            if let Some(token) = path.response.take() {
                return self.paths.emit(now, id, Body::Response { token });
            }
            match &mut path.phase {
                PathPhase::Opening(opening) if opening.at.is_some_and(|at| at <= now) => {
                    let Some(token) = opening.token else {
                        self.repeat_flight(now, index);
                        return self.poll_opening(now);
                    };
                    opening.handle_sent(now);
                    let body = Body::Challenge { token, padding: 0 };
                    if let Some(transmit) = self.paths.emit(now, id, body) {
                        return Some(transmit);
                    }
                }
                PathPhase::Open(_) => {
                    if let Some(challenge) = path.poll_validation(now) {
                        return self.paths.emit(now, id, challenge);
                    }
                    if let Some((token, size)) = self.paths.poll_size(now, index) {
                        let padding = u16::try_from(size.saturating_sub(MIN_FULL.0)).unwrap_or(0);
                        return self.paths.emit(now, id, Body::Challenge { token, padding });
                    }
                }
                PathPhase::Opening(_) => {}
            }
        }
        None
    }

    /// The first flight of this end goes over a path, for the first time or because there was no
    /// answer in time.
    fn repeat_flight(&mut self, now: Time, index: usize) {
        let path = &mut self.paths[index];
        let id = path.id;
        let PathPhase::Opening(opening) = &mut path.phase else { return };
        if !self.is_client {
            // The time of the next one is set when it leaves.
            opening.at = None;
            self.handshake.queue_answer(id);
            return;
        }
        opening.handle_sent(now);
        if opening.tries > 1 {
            self.try_next_path(now, index);
        }
        self.handshake.queue_hello(id);
    }

    /// The first piece of a flight leaves.
    fn note_flight_sent(&mut self, now: Time, path: SubflowId, flight: Flight) {
        match flight {
            Flight::Finish => {
                if let Some(finish) = &mut self.handshake.finish {
                    finish.handle_sent(now);
                }
            }
            Flight::Answer => {
                let is_over = self.state != ConnectionState::Opening;
                if let Some(Path {
                    phase: PathPhase::Opening(opening @ Opening { token: None, .. }),
                    ..
                }) = self.paths.get_mut(path)
                {
                    opening.handle_sent(now);
                    if is_over {
                        opening.at = None;
                    }
                }
            }
            Flight::Hello | Flight::Proof | Flight::Done => {}
        }
    }

    /// Makes sure that some path carries the handshake.
    pub(super) fn open_over_some_path(&mut self, now: Time) {
        if self.state != ConnectionState::Opening || !self.is_client {
            return;
        }
        let mut openings = self.paths.iter_mut().filter_map(|path| match &mut path.phase {
            PathPhase::Opening(opening) => Some(opening),
            PathPhase::Open(_) => None,
        });
        let Some(first) = openings.next() else { return };
        if first.at.is_none() && openings.all(|other| other.at.is_none()) {
            first.at = Some(now);
        }
        self.outbox.wake();
    }

    /// Without an answer, the handshake is tried over one further path at each repetition.
    fn try_next_path(&mut self, now: Time, after: usize) {
        let next = self.paths.iter_mut().skip(after + 1).find_map(|path| match &mut path.phase {
            PathPhase::Opening(opening) if opening.token.is_none() && opening.at.is_none() => {
                Some(opening)
            }
            _ => None,
        });
        if let Some(opening) = next {
            opening.at = Some(now + Span::from_nanos(1));
        }
    }

    /// When [`Connection::poll_opening`] is due.
    pub(super) fn opening_at(&self) -> Option<Time> {
        let paths = self.paths.iter().filter_map(|path| match &path.phase {
            PathPhase::Opening(opening) => opening.at,
            PathPhase::Open(_) => path.asks_at(),
        });
        paths.chain(self.handshake.poll_deadline()).min()
    }
}
