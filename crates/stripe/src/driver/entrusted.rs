//! What a connection shares with the guest of its endpoint.

use std::collections::VecDeque;

use units::SubflowId;

use crate::guest::RawPath;

/// A raw datagram that the state machine knows to wait.
pub(super) struct WaitingRaw {
    pub(super) path: SubflowId,
    pub(super) is_ecn_capable: bool,
    pub(super) payload: Vec<u8>,
}

/// What a link shares with the guest.
#[derive(Default)]
pub(super) struct Entrusted {
    /// Whether the guest has its raw datagrams.
    pub(super) is_guests: bool,
    /// What the guest was told last.
    pub(super) told: Vec<RawPath>,
    pub(super) waiting: VecDeque<WaitingRaw>,
}

impl Entrusted {
    /// The raw datagram that the state machine sends over a path. Those before it were for paths
    /// that have been retired.
    pub(super) fn take(&mut self, path: SubflowId, len: u16) -> Option<WaitingRaw> {
        let is_it = |raw: &WaitingRaw| raw.path == path && raw.payload.len() == usize::from(len);
        while let Some(raw) = self.waiting.pop_front() {
            if is_it(&raw) {
                return Some(raw);
            }
        }
        None
    }
}
