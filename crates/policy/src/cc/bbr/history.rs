//! The per-packet state of the draft's section 4.1.2.1.2, kept by the time of sending.

use alloc::collections::VecDeque;

use units::{Span, Time};

/// The most snapshots; beyond it every other one is dropped.
const LIMIT: usize = 4_096;

/// The controller's counters when a packet was sent, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendSnapshot {
    pub(super) at: Time,
    /// `P.delivered`: bytes delivered before.
    pub(super) delivered: u64,
    /// `P.lost`: bytes lost before.
    pub(super) lost: u64,
    /// `P.tx_in_flight`: bytes in flight, the packet included.
    pub(super) in_flight: u64,
    /// Whether the controller itself limited sending, as in `ProbeRTT`.
    pub(super) is_limited: bool,
}

/// The snapshots of the packets in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    snapshots: VecDeque<SendSnapshot>,
}

impl History {
    /// Adds a snapshot, unless the last one is less than `gap` older.
    pub(super) fn add(&mut self, snapshot: SendSnapshot, gap: Span) {
        if let Some(last) = self.snapshots.back_mut() {
            if last.at >= snapshot.at {
                last.in_flight = snapshot.in_flight;
                return;
            }
            if snapshot.at - last.at < gap {
                return;
            }
        }
        if self.snapshots.len() >= LIMIT {
            let mut is_kept = false;
            self.snapshots.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.snapshots.push_back(snapshot);
    }

    /// The snapshot at `sent_at`, or the last one before it; the first one for packets sent earlier
    /// than all.
    pub(super) fn find(&self, sent_at: Time) -> Option<SendSnapshot> {
        let after = self.snapshots.partition_point(|snapshot| snapshot.at <= sent_at);
        self.snapshots.get(after.saturating_sub(1)).copied()
    }

    /// Drops the snapshots that only packets sent before `sent_at` need.
    pub(super) fn forget(&mut self, sent_at: Time) {
        while self.snapshots.get(1).is_some_and(|next| next.at <= sent_at) {
            self.snapshots.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(millis: u64) -> SendSnapshot {
        let at = Time::ZERO + Span::from_millis(millis);
        SendSnapshot { at, delivered: millis, lost: 0, in_flight: 0, is_limited: false }
    }

    fn found(history: &History, millis: u64) -> Option<u64> {
        history.find(Time::ZERO + Span::from_millis(millis)).map(|snapshot| snapshot.delivered)
    }

    #[test]
    fn the_last_snapshot_before_is_found() {
        let mut history = History::default();
        assert_eq!(found(&history, 5), None);
        for millis in [10, 20, 21, 30] {
            history.add(snapshot(millis), Span::from_millis(2));
        }
        assert_eq!(found(&history, 25), Some(20));
        assert_eq!(found(&history, 10), Some(10));
        history.forget(Time::ZERO + Span::from_millis(25));
        assert_eq!(
            (found(&history, 10), found(&history, 25)),
            (Some(20), Some(20)),
            "10 is forgotten"
        );
        assert_eq!(found(&history, 99), Some(30));
        history.add(SendSnapshot { in_flight: 7, ..snapshot(30) }, Span::ZERO);
        let last = history.find(Time::ZERO + Span::from_millis(30));
        assert_eq!(last.map(|snapshot| snapshot.in_flight), Some(7), "the last of a burst");
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut history = History::default();
        for millis in 0..100_000 {
            history.add(snapshot(millis), Span::ZERO);
        }
        assert!(history.snapshots.len() <= LIMIT);
        assert_eq!(found(&history, 99_999), Some(99_999));
    }
}
