//! What happened at a link: counters, and the packets that were dropped inside.

use alloc::collections::VecDeque;

use units::Time;

use crate::counters::Counters;

/// A packet that a link dropped after it was queued: by CoDel, by FQ-CoDel for another packet, or
/// at its departure into a blackout. A dropped duplicate is one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// When it was dropped.
    pub at: Time,
    /// The packet.
    pub packet: P,
}

/// The counters of a link, and the packets dropped inside if anybody wants them.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<P> {
    pub(crate) counters: Counters,
    dropped: Option<VecDeque<Dropped<P>>>,
}

impl<P> Default for Ledger<P> {
    fn default() -> Ledger<P> {
        Ledger { counters: Counters::default(), dropped: None }
    }
}

impl<P> Ledger<P> {
    pub(crate) fn keep_dropped(&mut self) {
        self.dropped.get_or_insert_default();
    }

    pub(crate) fn keeps_dropped(&self) -> bool {
        self.dropped.is_some()
    }

    pub(crate) fn note_dropped(&mut self, at: Time, packet: P) {
        if let Some(dropped) = &mut self.dropped {
            dropped.push_back(Dropped { at, packet });
        }
    }

    pub(crate) fn poll_dropped(&mut self) -> Option<Dropped<P>> {
        self.dropped.as_mut()?.pop_front()
    }
}
