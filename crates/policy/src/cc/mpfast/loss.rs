//! What a loss says: that a buffer is full, or that the line loses.
//!
//! A buffer overflows at about the same backlog each time. So after a loss the path keeps half of
//! the backlog that it had then, for a minute or until its rate doubles. If it then loses with a
//! quarter of the backlog or less, losses do not depend on the queue; for a minute they are the
//! line's, and count as congestion only beyond the tolerated share.

use units::{Span, Time};

/// For how long the answer holds.
const MEMORY: Span = Span::from_secs(60);
/// The share of the backlog that remains after a loss.
const REMAINDER: f64 = 0.5;
/// With at most this share of the backlog of the first loss, losses do not depend on the queue.
const INDEPENDENT: f64 = 0.25;
/// So few packets are no queue.
const FEW: f64 = 2.0;
/// Packets of a round trip that may be lost besides the tolerated share: in a small window one loss
/// is a large share.
const FREE: f64 = 2.0;

/// What losses have shown about a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathLosses {
    verdict: LossCause,
    /// Packets lost and delivered in the present and in the last round trip.
    present: (f64, f64),
    last: (f64, f64),
}

#[derive(Clone, Copy, Debug, Default)]
enum LossCause {
    /// No loss within a minute.
    #[default]
    None,
    /// A buffer overflowed, for the first time with a backlog of `first` packets. `cap` may stay.
    Buffer { since: Time, first: f64, cap: f64, rate: f64 },
    /// The line loses.
    Line { until: Time },
}

impl PathLosses {
    pub(super) fn handle_lost(&mut self, packets: f64) {
        self.present.0 += packets;
    }

    pub(super) fn handle_delivered(&mut self, packets: f64) {
        self.present.1 += packets;
    }

    /// A round trip is over, with a rate of so many packets a second.
    pub(super) fn end_round(&mut self, now: Time, rate: f64) {
        self.last = core::mem::take(&mut self.present);
        let is_over = match self.verdict {
            LossCause::None => false,
            LossCause::Buffer { since, rate: then, .. } => {
                now.since(since) >= MEMORY || rate >= 2.0 * then
            }
            LossCause::Line { until } => now >= until,
        };
        if is_over {
            self.verdict = LossCause::None;
        }
    }

    /// The most packets that the path may keep in the queue.
    pub(super) fn cap(&self) -> f64 {
        match self.verdict {
            LossCause::Buffer { cap, .. } => cap,
            LossCause::None | LossCause::Line { .. } => f64::INFINITY,
        }
    }

    /// Whether a loss with a backlog of so many packets is congestion; `rate` in packets a second.
    pub(super) fn is_congestion(
        &mut self,
        now: Time,
        backlog: f64,
        rate: f64,
        tolerance: f64,
    ) -> bool {
        let lost = self.present.0.max(self.last.0);
        let delivered = self.present.1.max(self.last.1);
        let is_tolerable = tolerance > 0.0 && lost <= tolerance * delivered + FREE;
        let is_independent = |first: f64| backlog <= (INDEPENDENT * first).max(FEW);
        let first = match self.verdict {
            LossCause::Line { .. } if is_tolerable => None,
            LossCause::None if is_tolerable && is_independent(0.0) => None,
            LossCause::Buffer { first, .. } if is_tolerable && is_independent(first) => None,
            LossCause::Buffer { first, .. } => Some(first.max(backlog)),
            LossCause::None | LossCause::Line { .. } => Some(backlog),
        };
        self.verdict = match first {
            None => LossCause::Line { until: now + MEMORY },
            Some(first) => {
                let cap = (REMAINDER * backlog).max(1.0);
                LossCause::Buffer { since: now, first, cap, rate }
            }
        };
        first.is_some()
    }
}
