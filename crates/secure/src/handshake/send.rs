//! What a handshake sends.

use rustls::Side;
use units::{SubflowId, Time};
use wire::datagram::{FULL, Level, Message, RESET_TOKEN};

use super::level::overhead;
use super::{Handshake, Phase, Protected, RESET_PATHS};

/// The least room in which a piece of a flight is worth a packet.
const LEAST_ROOM: usize = 200;

impl Handshake {
    /// The next packet to send, of at most `room` bytes.
    pub(crate) fn poll_transmit(&mut self, now: Time, room: usize) -> Option<Vec<u8>> {
        if self.is_end_due {
            let packet = match (self.phase, self.refusal) {
                (Phase::Failed, Some(code)) => {
                    self.emit(self.level(), room, &Message::Refused { code })?
                }
                (Phase::Established { .. }, _) => {
                    let tokens = self.reset_tokens();
                    self.emit(Level::Handshake, room, &Message::Done { tokens: &tokens })?
                }
                _ => return None,
            };
            self.is_end_due = false;
            return Some(packet);
        }
        if matches!(self.phase, Phase::Confirmed | Phase::Failed) {
            return None;
        }
        [Level::Initial, Level::Handshake]
            .into_iter()
            .find(|level| self.levels[*level as usize].has_anything_to_send())
            .and_then(|level| self.emit_piece(now, level, room.min(FULL)))
    }

    /// The next piece of the flight at this level, or an acknowledgement.
    fn emit_piece(&mut self, now: Time, level: Level, room: usize) -> Option<Vec<u8>> {
        if room < LEAST_ROOM.max(self.least(level)) {
            return None;
        }
        let stream = &mut self.levels[level as usize];
        let (message, range) =
            stream.next_piece(room.saturating_sub(overhead(level, self.token.len())));
        let mut plain = Vec::with_capacity(FULL);
        message.emit(&mut plain);
        stream.handle_sent(&range);
        if !range.is_empty() && self.resend_at.is_none_or(|at| at <= now) {
            self.tries = self.tries.max(1);
            self.resend_at = Some(now + self.wait());
        }
        self.seal(level, plain)
    }

    /// A packet with this message, if there is room for it.
    fn emit(&mut self, level: Level, room: usize, message: &Message<'_>) -> Option<Vec<u8>> {
        let mut plain = Vec::new();
        message.emit(&mut plain);
        let most = plain.len() + overhead(level, self.token.len());
        if room < most.max(self.least(level)) { None } else { self.seal(level, plain) }
    }

    fn seal(&mut self, level: Level, plain: Vec<u8>) -> Option<Vec<u8>> {
        let header = Protected { level, version: self.version, label: self.label };
        let least = self.least(level);
        self.levels[level as usize].seal(header, &self.token, plain, least)
    }

    /// The least size of a packet.
    fn least(&self, level: Level) -> usize {
        match (level, self.side) {
            (Level::Initial, Side::Client) => FULL,
            _ => 0,
        }
    }

    fn reset_tokens(&self) -> Vec<[u8; RESET_TOKEN]> {
        match (&self.secret, &self.labels) {
            (Some(secret), Some(labels)) => (0..RESET_PATHS)
                .map(|path| secret.reset_token(labels.label(Side::Client, SubflowId(path))))
                .collect(),
            _ => Vec::new(),
        }
    }
}
