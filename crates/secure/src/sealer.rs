//! Sealing in one direction: the key in use and how much it has sealed.

use rustls::quic::{DirectionalKeys, HeaderProtectionKey, PacketKey};
use wire::datagram;

use crate::SealError;
use crate::protect::{self, Nonce};

/// Seals packets of all paths with one key.
pub(crate) struct Sealer {
    header: Box<dyn HeaderProtectionKey>,
    key: Box<dyn PacketKey>,
    key_phase: bool,
    /// Packets sealed with the key, on all paths together.
    sealed: u64,
    /// How many the key may seal (RFC 9001, section 6.6).
    limit: u64,
}

impl Sealer {
    pub(crate) fn new(keys: DirectionalKeys) -> Sealer {
        let limit = keys.packet.confidentiality_limit();
        Sealer { header: keys.header, key: keys.packet, key_phase: false, sealed: 0, limit }
    }

    pub(crate) fn sealed(&self) -> u64 {
        self.sealed
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Continues with the next key.
    pub(crate) fn update(&mut self, key: Box<dyn PacketKey>) {
        (self.key, self.key_phase, self.sealed) = (key, !self.key_phase, 0);
    }

    /// Appends a packet, whose number has not been used on its path. `write` appends its payload.
    pub(crate) fn seal(
        &mut self,
        label: u64,
        nonce: Nonce,
        octets: usize,
        into: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), SealError> {
        if self.sealed >= self.limit {
            return Err(SealError::KeyExhausted);
        }
        let start = into.len();
        datagram::emit_data(label, self.key_phase, nonce.number, octets, into);
        let header = into.len() - start;
        write(into);
        let len = into.len() - start - header;
        if len == 0 {
            into.truncate(start);
            return Err(SealError::Length(len));
        }
        self.sealed += 1;
        protect::seal(&*self.header, &*self.key, nonce, into, (start, header, octets)).map_err(
            |_| {
                into.truncate(start);
                SealError::Length(len)
            },
        )
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }
}
