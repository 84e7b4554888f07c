//! One stranger's handshake, and what it may cost.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use units::{Span, Time};
use wire::datagram::Level;

use super::Transmit;
use crate::handshake::Handshake;

/// Bytes that may be sent for each byte received before an address is known to be the peer's (RFC
/// 9000, section 8.1).
const AMPLIFICATION: u64 = 3;
/// The addresses of one handshake.
const MOST_ADDRESSES: usize = 4;
/// The blocks of addresses whose handshakes are counted.
const MOST_BLOCKS: usize = 1_024;

/// An address that packets of a handshake came from.
struct Source {
    address: SocketAddr,
    received: u64,
    sent: u64,
    is_validated: bool,
}

/// A handshake and the addresses it comes from.
pub(super) struct Stranger {
    pub(super) handshake: Handshake,
    /// The one to answer to is the last one.
    sources: Vec<Source>,
    began: Time,
    /// When it is forgotten, if it is complete or has failed.
    pub(super) linger_until: Option<Time>,
}

impl Stranger {
    pub(super) fn new(
        handshake: Handshake,
        from: SocketAddr,
        received: usize,
        is_validated: bool,
        began: Time,
    ) -> Stranger {
        let source = Source { address: from, received: received as u64, sent: 0, is_validated };
        Stranger { handshake, sources: vec![source], began, linger_until: None }
    }

    pub(super) fn began(&self) -> Time {
        self.began
    }

    /// Whether the handshake is neither complete nor failed.
    pub(super) fn is_in_progress(&self) -> bool {
        self.linger_until.is_none()
    }

    /// Whether nobody knows that it is where it says.
    pub(super) fn is_unknown(&self) -> bool {
        !self.sources.iter().any(|source| source.is_validated)
    }

    pub(super) fn reply_to(&self) -> SocketAddr {
        self.sources.last().expect("there is one from the beginning").address
    }

    /// A packet came from an address; it was opened with the keys of this level, if any. Answers go
    /// to the address of the last one that was opened.
    pub(super) fn handle_received(
        &mut self,
        from: SocketAddr,
        bytes: usize,
        opened: Option<Level>,
    ) {
        let known = self.sources.iter().position(|source| source.address == from);
        let mut source = match (known, opened) {
            (Some(at), Some(_)) => self.sources.remove(at),
            (Some(at), None) => {
                self.sources[at].received += bytes as u64;
                return;
            }
            (None, Some(_)) if self.sources.len() < MOST_ADDRESSES => {
                Source { address: from, received: 0, sent: 0, is_validated: false }
            }
            (None, _) => return,
        };
        source.received += bytes as u64;
        // Its keys were in what was sent; with one address, they were sent there.
        source.is_validated |= opened == Some(Level::Handshake) && self.sources.is_empty();
        self.sources.push(source);
    }

    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        let source = self.sources.last_mut()?;
        let room = if source.is_validated {
            usize::MAX
        } else {
            let allowed = AMPLIFICATION * source.received;
            usize::try_from(allowed.saturating_sub(source.sent)).unwrap_or(usize::MAX)
        };
        let bytes = self.handshake.poll_transmit(now, room)?;
        source.sent += bytes.len() as u64;
        Some(Transmit { to: source.address, bytes })
    }

    /// When something is due.
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.linger_until.or_else(|| self.handshake.poll_deadline())
    }
}

/// The block of addresses that one host may take as its own: one of IPv4, 2^64 of IPv6.
#[must_use]
pub fn address_block(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_bits().into(),
        // The first half. Of a global address it is larger than any number of IPv4.
        IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX),
    }
}

/// Lets so many handshakes of a block of addresses begin in a second.
pub(super) struct Newcomers {
    rate: u64,
    begun: BTreeMap<u64, u64>,
    since: Time,
}

impl Newcomers {
    pub(super) fn new(rate: u64) -> Newcomers {
        Newcomers { rate, begun: BTreeMap::new(), since: Time::ZERO }
    }

    /// Whether one more may begin.
    pub(super) fn may_begin(&mut self, now: Time, from: IpAddr) -> bool {
        if now.since(self.since) >= Span::from_secs(1) {
            self.begun.clear();
            self.since = now;
        }
        self.begun.get(&address_block(from)).is_none_or(|begun| *begun < self.rate)
    }

    /// One has begun.
    pub(super) fn count(&mut self, from: IpAddr) {
        let (block, has_room) = (address_block(from), self.begun.len() < MOST_BLOCKS);
        if let Some(begun) = self.begun.get_mut(&block) {
            *begun += 1;
        } else if has_room {
            self.begun.insert(block, 1);
        }
    }
}

/// Lets so many things happen in a second.
pub(super) struct Rationed {
    rate: u64,
    left: u64,
    since: Time,
}

impl Rationed {
    pub(super) fn new(rate: u64) -> Rationed {
        Rationed { rate, left: rate, since: Time::ZERO }
    }

    /// Whether one more may happen.
    pub(super) fn take(&mut self, now: Time) -> bool {
        if now.since(self.since) >= Span::from_secs(1) {
            (self.left, self.since) = (self.rate, now);
        }
        let may_happen = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may_happen
    }
}
