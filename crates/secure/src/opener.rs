//! Opening in one direction: the key in use, the next one, and for a while the last one.

use rustls::quic::{DirectionalKeys, HeaderProtectionKey, PacketKey};
use units::{Span, SubflowId, Time};
use wire::datagram::{self, DATA_NUMBER_AT};

use crate::OpenError;
use crate::protect::{self, Nonce};

/// How long the keys before an update open packets that come late, once the peer uses the new ones
/// (RFC 9001, section 6.5). The next update waits for its end, so that at most three keys are in
/// question, of which the key phase leaves two. With 2^23 packets for a key of AES-GCM, 2.8 million
/// packets a second are possible.
pub(crate) const OLD_KEYS: Span = Span::from_secs(3);

/// Which key opened a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedBy {
    Previous,
    Current,
    Next,
}

/// A packet that is authentic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authentic {
    pub(crate) number: u64,
    pub(crate) key: OpenedBy,
    pub(crate) has_reserved_bits: bool,
    /// The begin of what was sealed, and its end.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The key before the last update.
struct OldKey {
    key: Box<dyn PacketKey>,
    /// `None`: until the peer has used the new one. A peer that hears nothing meanwhile goes on
    /// with the old one, for as long as that takes.
    until: Option<Time>,
}

/// Opens packets of all paths.
pub(crate) struct Opener {
    header: Box<dyn HeaderProtectionKey>,
    previous: Option<OldKey>,
    current: Box<dyn PacketKey>,
    /// Ready before it is needed, so that the time does not tell that the phase has changed (RFC
    /// 9001, section 6.3).
    next: Box<dyn PacketKey>,
    key_phase: bool,
    /// Packets that no key has opened, with all keys and on all paths together.
    forged: u64,
    /// How many there may be (RFC 9001, section 6.6).
    limit: u64,
}

impl Opener {
    pub(crate) fn new(keys: DirectionalKeys, next: Box<dyn PacketKey>) -> Opener {
        let limit = keys.packet.integrity_limit();
        let (header, current) = (keys.header, keys.packet);
        Opener { header, previous: None, current, next, key_phase: false, forged: 0, limit }
    }

    /// When the old key is to be dropped.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        self.previous.as_ref().and_then(|old| old.until)
    }

    pub(crate) fn handle_deadline(&mut self, now: Time) {
        self.previous.take_if(|old| old.until.is_some_and(|until| until <= now));
    }

    /// Continues with the next key; `next` is the one behind it.
    pub(crate) fn update(&mut self, next: Box<dyn PacketKey>) {
        let current = std::mem::replace(&mut self.next, next);
        let key = std::mem::replace(&mut self.current, current);
        self.previous = Some(OldKey { key, until: None });
        self.key_phase = !self.key_phase;
    }

    /// The peer uses the key in use too.
    pub(crate) fn handle_followed(&mut self, now: Time) {
        if let Some(old) = &mut self.previous {
            old.until.get_or_insert(now + OLD_KEYS);
        }
    }

    /// Opens a packet in place. `expected` is the number behind the largest of the path.
    pub(crate) fn open(
        &mut self,
        now: Time,
        path: SubflowId,
        expected: u64,
        packet: &mut [u8],
    ) -> Result<Authentic, OpenError> {
        self.handle_deadline(now);
        if self.forged >= self.limit {
            return Err(OpenError::TooManyForged);
        }
        let head = protect::unprotect(&*self.header, packet, DATA_NUMBER_AT, expected)
            .ok_or(OpenError::NotOurs)?;
        let nonce = Nonce { path: Some(path), number: head.number };
        let (header, sealed) = packet.split_at_mut(head.header);
        let mut attempt = |key: &dyn PacketKey| protect::open(key, nonce, header, sealed);
        let opened = if datagram::key_phase(head.first) == self.key_phase {
            attempt(&*self.current).map(|len| (OpenedBy::Current, len))
        } else if let Some(old) = &self.previous {
            // Either an old packet or an update of the peer's: an attempt spoils the packet.
            let mut copy = sealed.to_vec();
            match protect::open(&*old.key, nonce, header, &mut copy) {
                Some(len) => {
                    sealed[..len].copy_from_slice(&copy[..len]);
                    Some((OpenedBy::Previous, len))
                }
                None => protect::open(&*self.next, nonce, header, sealed)
                    .map(|len| (OpenedBy::Next, len)),
            }
        } else {
            attempt(&*self.next).map(|len| (OpenedBy::Next, len))
        };
        let Some((key, len)) = opened else {
            self.forged += 1;
            return Err(OpenError::Forged);
        };
        Ok(Authentic {
            number: head.number,
            key,
            has_reserved_bits: datagram::has_reserved_bits(head.first),
            start: head.header,
            end: head.header + len,
        })
    }

    #[cfg(test)]
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }
}
