//! One level of a handshake: its keys, and the TLS messages of both directions.

use std::ops::Range;

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Keys, Version};
use rustls::{Side, Tls13CipherSuite};
use wire::datagram::{self, Level, Message, PIECE_HEADER, TAG};
use wire::number;

use crate::HandshakeError;
use crate::assembly::Assembly;
use crate::protect::{self, Nonce};

/// Where the number of a packet of the handshake level begins: behind octet 0, version and label.
pub(crate) const HANDSHAKE_NUMBER_AT: usize = 13;
/// Octets of the packet numbers of handshakes, at least.
const NUMBER: usize = 2;

/// The keys that follow from version and label.
pub(crate) fn initial_keys(version: u32, label: u64, side: Side) -> Keys {
    let mut id = [0; 12];
    id[..4].copy_from_slice(&version.to_be_bytes());
    id[4..].copy_from_slice(&label.to_be_bytes());
    let suite = TLS13_AES_128_GCM_SHA256.tls13().and_then(Tls13CipherSuite::quic_suite);
    suite.expect("the suite of RFC 9001 is a QUIC suite").keys(&id, side, Version::V1)
}

/// The header of a handshake packet, without token and number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protected {
    pub(crate) level: Level,
    pub(crate) version: u32,
    pub(crate) label: u64,
}

/// The most octets of a packet besides the data of its piece.
pub(crate) fn overhead(level: Level, token: usize) -> usize {
    let token = match level {
        Level::Initial => 1 + token,
        Level::Handshake => 0,
    };
    HANDSHAKE_NUMBER_AT + token + number::MOST_OCTETS + PIECE_HEADER + TAG
}

/// The keys and TLS messages of a level.
#[derive(Default)]
pub(crate) struct Stream {
    keys: Option<Keys>,
    next_number: u64,
    /// The number behind the largest that was opened.
    expected: u64,
    outgoing: Vec<u8>,
    sent: usize,
    acknowledged: usize,
    incoming: Assembly,
    /// An acknowledgement is due.
    pub(crate) must_acknowledge: bool,
}

impl Stream {
    pub(crate) fn new(keys: Keys) -> Stream {
        Stream { keys: Some(keys), ..Stream::default() }
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    pub(crate) fn set_keys(&mut self, keys: Keys) {
        self.keys = Some(keys);
    }

    /// The peer has everything of this level, and the keys are not needed any more.
    pub(crate) fn finish(&mut self) {
        (self.keys, self.must_acknowledge) = (None, false);
        self.finish_sending();
    }

    /// The peer has everything that was sent.
    pub(crate) fn finish_sending(&mut self) {
        (self.sent, self.acknowledged) = (self.outgoing.len(), self.outgoing.len());
        self.must_acknowledge = false;
    }

    /// What is not acknowledged goes again. Whether there is any.
    pub(crate) fn rewind(&mut self) -> bool {
        self.sent = self.acknowledged;
        self.keys.is_some() && self.acknowledged < self.outgoing.len()
    }

    /// Adds TLS messages to send.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.outgoing.extend_from_slice(bytes);
    }

    /// The peer has this much. Whether that is news.
    pub(crate) fn handle_acknowledged(&mut self, delivered: usize) -> bool {
        let is_news = (self.acknowledged + 1..=self.outgoing.len()).contains(&delivered);
        if is_news {
            self.acknowledged = delivered;
            self.sent = self.sent.max(delivered);
        }
        is_news
    }

    /// Takes in a piece of the peer's messages.
    pub(crate) fn insert(&mut self, offset: usize, piece: &[u8]) -> Result<(), HandshakeError> {
        self.incoming.insert(offset, piece)
    }

    /// The peer's messages that arrived without a gap since the last call.
    pub(crate) fn read(&mut self) -> &[u8] {
        self.incoming.read()
    }

    /// Whether there are keys, and a piece or an acknowledgement to send.
    pub(crate) fn has_anything_to_send(&self) -> bool {
        self.has_keys() && (self.sent < self.outgoing.len() || self.must_acknowledge)
    }

    /// The next piece, of at most `most` octets, and its place.
    pub(crate) fn next_piece(&self, most: usize) -> (Message<'_>, Range<usize>) {
        let range = self.sent..self.outgoing.len().min(self.sent + most);
        let message = Message::Piece {
            delivered: u16::try_from(self.incoming.delivered()).unwrap_or(u16::MAX),
            offset: u16::try_from(range.start).unwrap_or(u16::MAX),
            data: &self.outgoing[range.clone()],
        };
        (message, range)
    }

    pub(crate) fn handle_sent(&mut self, range: &Range<usize>) {
        self.sent = range.end;
        self.must_acknowledge = false;
    }

    /// A packet of these octets, padded to a size. `None` without keys.
    pub(crate) fn seal(
        &mut self,
        header: Protected,
        token: &[u8],
        mut plain: Vec<u8>,
        padded: usize,
    ) -> Option<Vec<u8>> {
        let keys = &self.keys.as_ref()?.local;
        let octets = number::octets(self.next_number, None)?.max(NUMBER);
        let nonce = Nonce { path: None, number: self.next_number };
        self.next_number += 1;
        let mut packet = Vec::with_capacity(datagram::FULL);
        let Protected { level, version, label } = header;
        let number = (nonce.number, octets);
        datagram::emit_handshake(level, version, label, token, number, &mut packet);
        let len = packet.len();
        plain.resize(plain.len().max(padded.saturating_sub(len + TAG)), 0);
        packet.append(&mut plain);
        let place = (0, len, octets);
        protect::seal(&*keys.header, &*keys.packet, nonce, &mut packet, place).ok()?;
        Some(packet)
    }

    /// Opens a packet in place, and gives the place of what was sealed.
    pub(crate) fn open(&mut self, number_at: usize, packet: &mut [u8]) -> Option<Range<usize>> {
        let keys = &self.keys.as_ref()?.remote;
        let head = protect::unprotect(&*keys.header, packet, number_at, self.expected)?;
        let nonce = Nonce { path: None, number: head.number };
        let (header, sealed) = packet.split_at_mut(head.header);
        let len = protect::open(&*keys.packet, nonce, header, sealed)?;
        if datagram::has_reserved_bits(head.first) {
            return None;
        }
        self.expected = self.expected.max(head.number + 1);
        Some(head.header..head.header + len)
    }
}
