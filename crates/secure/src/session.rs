//! The keys and paths of a connection whose handshake is complete.

use rustls::Side;
use rustls::quic::{Keys, PacketKey, Secrets};
use units::{SubflowId, Time};

use crate::labels::Labels;
use crate::opener::{OpenedBy, Opener};
use crate::path::Paths;
use crate::protect::Nonce;
use crate::sealer::Sealer;
use crate::{OpenError, PathError, SealError};

/// The largest packet number (RFC 9000, section 12.3).
const MOST_NUMBER: u64 = (1 << 62) - 1;
/// Octets of a packet number: the connection above knows the size of a packet before it is sealed.
const NUMBER: usize = 4;

/// Seals and opens the packets of one connection, on all of its paths.
///
/// A path is identified by its number, which is part of each nonce and never used again. Both
/// directions and all paths share one key phase. The keys are updated by themselves, once one has
/// sealed as many packets as the settings say; the peer's updates are followed.
pub struct Session {
    paths: Paths,
    sealer: Sealer,
    opener: Opener,
    secrets: Secrets,
    next_local: Box<dyn PacketKey>,
    /// How often the keys were updated.
    generation: u64,
    /// Whether a packet was opened with the current keys: the peer has them.
    is_followed: bool,
    update_after: u64,
}

/// The number of a packet to seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketNumber {
    /// The path.
    pub path: SubflowId,
    /// Larger than any that was sealed on the path.
    pub number: u64,
}

/// A packet that was opened: it is the peer's, and arrived for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// Its number on the path.
    pub number: u64,
    /// What was sealed.
    pub payload: &'a [u8],
}

impl Session {
    pub(crate) fn new(
        side: Side,
        keys: Keys,
        mut secrets: Secrets,
        labels: Labels,
        update_after: u64,
    ) -> Session {
        let next = secrets.next_packet_keys();
        let sealer = Sealer::new(keys.local);
        let update_after = update_after.min(sealer.limit() / 2);
        Session {
            paths: Paths::new(side, labels),
            sealer,
            opener: Opener::new(keys.remote, next.remote),
            secrets,
            next_local: next.local,
            generation: 0,
            is_followed: false,
            update_after,
        }
    }

    /// Opens a path for sending. A path that the peer opened is open already.
    ///
    /// # Errors
    /// If the number has had a path, or there are too many.
    pub fn open_path(&mut self, path: SubflowId) -> Result<(), PathError> {
        let candidate = self.paths.candidate(path)?;
        self.paths.insert(path, candidate);
        Ok(())
    }

    /// Ends a path. Its number is never used again.
    pub fn retire_path(&mut self, path: SubflowId) {
        self.paths.retire(path);
    }

    /// The open path over which packets with this label come.
    #[must_use]
    pub fn path_of(&self, label: u64) -> Option<SubflowId> {
        self.paths.by_label(label)
    }

    /// Whether a path of this number is in use.
    #[must_use]
    pub fn has_path(&self, path: SubflowId) -> bool {
        self.paths.has(path)
    }

    /// The labels of the packets of a path, whether or not there is one of this number: of those
    /// that this side sends, and of those that come.
    #[must_use]
    pub fn labels_of(&self, path: SubflowId) -> (u64, u64) {
        (self.paths.label_out(path), self.paths.label_in(path))
    }

    /// The number behind the largest that has had a path.
    #[must_use]
    pub fn next_path(&self) -> u16 {
        self.paths.next()
    }

    /// How often the keys have been updated.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// When the keys before the last update are to be dropped.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.opener.poll_deadline()
    }

    /// Drops keys that are due.
    pub fn handle_deadline(&mut self, now: Time) {
        self.opener.handle_deadline(now);
    }

    /// Appends a sealed packet to `into`.
    ///
    /// # Errors
    /// If the packet cannot be sealed; nothing is appended.
    pub fn seal(
        &mut self,
        now: Time,
        number: PacketNumber,
        payload: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        self.seal_with(now, number, into, |into| into.extend_from_slice(payload))
    }

    /// The same with a payload that `write` appends, without a copy of it.
    ///
    /// # Errors
    /// If the packet cannot be sealed; nothing is appended.
    pub fn seal_with(
        &mut self,
        now: Time,
        PacketNumber { path, number }: PacketNumber,
        into: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), SealError> {
        self.opener.handle_deadline(now);
        if self.sealer.sealed() >= self.update_after && self.may_update() {
            self.update();
        }
        let of_path = self.paths.get_mut(path).ok_or(SealError::NoPath(path))?;
        if of_path.sealed.is_some_and(|last| number <= last) {
            return Err(SealError::NumberUsed(number));
        }
        if number > MOST_NUMBER {
            return Err(SealError::NumberTooFar(number));
        }
        let nonce = Nonce { path: Some(path), number };
        self.sealer.seal(of_path.label_out, nonce, NUMBER, into, write)?;
        of_path.sealed = Some(number);
        Ok(())
    }

    /// Opens a packet that came over a path, in place. The first packet on a path that was not open
    /// opens it.
    ///
    /// # Errors
    /// If it is not authentic or arrived before; it is then to be ignored, unless the error [is
    /// fatal](OpenError::is_fatal).
    pub fn open<'a>(
        &mut self,
        now: Time,
        path: SubflowId,
        packet: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        let label = packet.get(1..9).and_then(|octets| octets.try_into().ok());
        let label = u64::from_be_bytes(label.ok_or(OpenError::NotOurs)?);
        let candidate = match self.paths.get_mut(path) {
            Some(_) => None,
            None => Some(self.paths.candidate(path).map_err(|_| OpenError::NoPath)?),
        };
        let known = match &candidate {
            Some(candidate) => candidate,
            None => self.paths.get_mut(path).ok_or(OpenError::NoPath)?,
        };
        if known.label_in != label {
            return Err(OpenError::NotOurs);
        }
        let opened = self.opener.open(now, path, known.window.expected(), packet)?;
        if opened.has_reserved_bits {
            return Err(OpenError::Reserved);
        }
        if let Some(candidate) = candidate {
            self.paths.insert(path, candidate);
        }
        let generation = match opened.key {
            OpenedBy::Previous => self.generation.checked_sub(1),
            OpenedBy::Current => Some(self.generation),
            OpenedBy::Next => Some(self.generation + 1),
        };
        let known = self.paths.get_mut(path).ok_or(OpenError::NoPath)?;
        if !known.window.insert(opened.number) {
            return Err(OpenError::Replayed);
        }
        match (generation, known.first_of) {
            // RFC 9001, section 6.4: old keys have lower numbers.
            (Some(of), Some((latest, first))) if of < latest => {
                if opened.number > first {
                    return Err(OpenError::OldKeys);
                }
            }
            (Some(of), Some((latest, first))) if of == latest => {
                known.first_of = Some((of, first.min(opened.number)));
            }
            (Some(of), _) => known.first_of = Some((of, opened.number)),
            (None, _) => {}
        }
        match opened.key {
            OpenedBy::Previous => {}
            OpenedBy::Current => self.note_followed(now),
            OpenedBy::Next => {
                // The peer has to have opened a packet with the keys that it leaves (RFC 9001,
                // section 6.1).
                if self.sealer.sealed() == 0 {
                    return Err(OpenError::UpdatedTooSoon);
                }
                self.update();
                self.note_followed(now);
            }
        }
        Ok(Opened { number: opened.number, payload: &packet[opened.start..opened.end] })
    }

    /// Updates the keys, if the peer has followed the last update and the time of the old keys is
    /// over. Whether it did.
    pub fn update_keys(&mut self, now: Time) -> bool {
        self.opener.handle_deadline(now);
        let may_update = self.may_update();
        if may_update {
            self.update();
        }
        may_update
    }

    #[cfg(test)]
    pub(crate) fn set_limits(&mut self, sealed: u64, forged: u64) {
        self.sealer.set_limit(sealed);
        self.opener.set_limit(forged);
    }

    #[cfg(test)]
    pub(crate) fn limits(&self) -> (u64, u64) {
        (self.sealer.limit(), self.opener.limit())
    }

    #[cfg(test)]
    pub(crate) fn pretend_followed(&mut self) {
        self.is_followed = true;
    }

    #[cfg(test)]
    pub(crate) fn forget_numbers(&mut self) {
        self.paths.get_mut(SubflowId(0)).expect("it is open").sealed = None;
    }

    fn may_update(&self) -> bool {
        self.is_followed && self.opener.poll_deadline().is_none()
    }

    /// The peer has sealed a packet with the keys in use.
    fn note_followed(&mut self, now: Time) {
        self.is_followed = true;
        self.opener.handle_followed(now);
    }

    fn update(&mut self) {
        let next = self.secrets.next_packet_keys();
        self.sealer.update(std::mem::replace(&mut self.next_local, next.local));
        self.opener.update(next.remote);
        self.generation += 1;
        self.is_followed = false;
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("generation", &self.generation).finish_non_exhaustive()
    }
}
