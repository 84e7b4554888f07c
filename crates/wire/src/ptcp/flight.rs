//! Pieces of a handshake, as they are on the wire.
//!
//! The crate `secure` makes and reads the real ones, with TLS inside. Simulations have flights of
//! the same number of datagrams, each of the same size.

use alloc::vec;
use alloc::vec::Vec;

use crate::WireError;
use crate::datagram::{FULL, Level, Message, PIECE_HEADER, RESET_TOKEN, TAG};

/// A flight of the handshake: TLS 1.3 with raw Ed25519 keys on both sides and a post-quantum key
/// agreement (X25519MLKEM768).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flight {
    /// The client's first: its key shares, of which one alone fills a packet.
    Hello,
    /// The server's key share.
    Answer,
    /// The server's key and proof, under the keys of the handshake.
    Proof,
    /// The client's key and proof.
    Finish,
    /// The server confirms the handshake, with reset tokens.
    Done,
}

/// A piece of a flight: what one packet carries of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The flight.
    pub flight: Flight,
    /// Where it begins in the flight.
    pub offset: u16,
    /// Its length in octets.
    pub len: u16,
}

/// Octet 0, version, label and a packet number of two octets.
const HEADER: usize = 15;
/// The octet for the length of the retry token, at the initial level.
const TOKEN_LEN: usize = 1;
/// Octets that a sender keeps for a longer packet number.
const NUMBER_RESERVE: usize = 2;
/// The paths whose reset tokens are sent.
const RESET_TOKENS: usize = 16;

impl Flight {
    /// Octets of its messages.
    #[must_use]
    pub const fn octets(self) -> u16 {
        match self {
            Flight::Hello => 1_520,
            Flight::Answer => 1_178,
            Flight::Proof => 285,
            Flight::Finish => 181,
            // As a piece, which has another header than this message.
            #[expect(clippy::cast_possible_truncation, reason = "it is 250")]
            Flight::Done => (1 + RESET_TOKENS * RESET_TOKEN - PIECE_HEADER) as u16,
        }
    }

    /// The keys that seal it.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Flight::Hello | Flight::Answer => Level::Initial,
            Flight::Proof | Flight::Finish | Flight::Done => Level::Handshake,
        }
    }

    /// Whether the client sends it.
    #[must_use]
    pub const fn is_of_client(self) -> bool {
        matches!(self, Flight::Hello | Flight::Finish)
    }

    /// Its pieces, in order.
    pub fn pieces(self) -> impl Iterator<Item = Piece> {
        let room = FULL - overhead(self.level()) - NUMBER_RESERVE;
        let room = u16::try_from(room).unwrap_or(u16::MAX);
        (0..self.octets()).step_by(usize::from(room)).map(move |offset| {
            let len = room.min(self.octets() - offset);
            Piece { flight: self, offset, len }
        })
    }
}

impl Piece {
    /// Whether the flight ends with it.
    #[must_use]
    pub const fn is_last(self) -> bool {
        self.offset + self.len == self.flight.octets()
    }

    /// Its size as a UDP payload. Those of a hello are full.
    #[must_use]
    pub const fn datagram_len(self) -> usize {
        match self.flight {
            Flight::Hello => FULL,
            _ => overhead(self.flight.level()) + self.len as usize,
        }
    }

    /// Writes what is sealed of its packet, with zeros in the place of TLS messages.
    pub fn emit(self, into: &mut Vec<u8>) {
        let sealed = self.datagram_len() + PIECE_HEADER - overhead(self.flight.level());
        let end = into.len() + sealed;
        if self.flight == Flight::Done {
            Message::Done { tokens: &[[0; RESET_TOKEN]; RESET_TOKENS] }.emit(into);
        } else {
            let data = vec![0; usize::from(self.len)];
            Message::Piece { delivered: 0, offset: self.offset, data: &data }.emit(into);
        }
        into.resize(end, 0);
    }

    /// Reads what was sealed of a packet.
    ///
    /// # Errors
    /// If it is not a message, or not of a flight.
    pub fn parse(level: Level, is_of_client: bool, sealed: &[u8]) -> Result<Piece, WireError> {
        let wrong = WireError::Field { frame: "flight", field: "piece" };
        let (flight, offset, len) = match (Message::parse(sealed)?, level, is_of_client) {
            (Message::Done { .. }, Level::Handshake, false) => {
                (Flight::Done, 0, usize::from(Flight::Done.octets()))
            }
            (Message::Piece { offset, data, .. }, level, is_of_client) => {
                let flight = match (level, is_of_client) {
                    (Level::Initial, true) => Flight::Hello,
                    (Level::Initial, false) => Flight::Answer,
                    (Level::Handshake, true) => Flight::Finish,
                    (Level::Handshake, false) => Flight::Proof,
                };
                (flight, offset, data.len())
            }
            _ => return Err(wrong),
        };
        let len = u16::try_from(len).ok().filter(|len| {
            offset.checked_add(*len).is_some_and(|end| end <= flight.octets()) && *len > 0
        });
        len.map(|len| Piece { flight, offset, len }).ok_or(wrong)
    }
}

/// Octets of a packet without the messages in it.
const fn overhead(level: Level) -> usize {
    let token = match level {
        Level::Initial => TOKEN_LEN,
        Level::Handshake => 0,
    };
    HEADER + token + PIECE_HEADER + TAG
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Flight; 5] =
        [Flight::Hello, Flight::Answer, Flight::Proof, Flight::Finish, Flight::Done];

    #[test]
    fn pieces_are_written_and_read() {
        for flight in ALL {
            let mut end = 0;
            for piece in flight.pieces() {
                assert_eq!(piece.offset, end);
                end += piece.len;
                assert_eq!(piece.is_last(), end == flight.octets());
                let mut sealed = Vec::new();
                piece.emit(&mut sealed);
                let token = usize::from(flight.level() == Level::Initial);
                assert_eq!(HEADER + token + sealed.len() + TAG, piece.datagram_len());
                assert!(piece.datagram_len() <= FULL);
                let read = Piece::parse(flight.level(), flight.is_of_client(), &sealed);
                assert_eq!(read, Ok(piece));
            }
            assert_eq!(end, flight.octets());
        }
    }

    #[test]
    fn a_hello_takes_two_packets() {
        assert_eq!(Flight::Hello.pieces().count(), 2);
    }
}
