//! What a loss says: that a buffer is full, or that the line loses.
//!
//! A buffer overflows at about the same backlog each time. So after a loss the path keeps half of
//! the backlog that it had then, for a minute or until its rate doubles. If it then loses with a
//! quarter of the first backlog or less, losses do not depend on the queue: for a minute they
//! count as congestion only beyond the tolerated share, or with a larger backlog. The path keeps a
//! quarter meanwhile, because what looked like the line may have been the rest of an overflow.

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
    cause: LossCause,
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
    /// The line loses, with a backlog of `cap` packets at most.
    Line { since: Time, cap: f64 },
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
        let is_over = match self.cause {
            LossCause::None => false,
            LossCause::Buffer { since, rate: then, .. } => {
                now.since(since) >= MEMORY || rate >= 2.0 * then
            }
            LossCause::Line { since, .. } => now.since(since) >= MEMORY,
        };
        if is_over {
            self.cause = LossCause::None;
        }
    }

    /// The most packets that the path may keep in the queue.
    pub(super) fn cap(&self) -> f64 {
        match self.cause {
            LossCause::None => f64::INFINITY,
            LossCause::Buffer { cap, .. } | LossCause::Line { cap, .. } => cap,
        }
    }

    /// Whether the share of losses in the present and the last round trip may be the line's.
    pub(super) fn are_tolerable(&self, tolerance: f64) -> bool {
        let lost = self.present.0.max(self.last.0);
        let delivered = self.present.1.max(self.last.1);
        tolerance > 0.0 && lost <= tolerance * delivered + FREE
    }

    /// Whether a loss with a backlog of so many packets is congestion; `rate` in packets a second.
    pub(super) fn is_congestion(
        &mut self,
        now: Time,
        backlog: f64,
        rate: f64,
        tolerance: f64,
    ) -> bool {
        let is_tolerable = self.are_tolerable(tolerance);
        let first = match self.cause {
            LossCause::None if is_tolerable && backlog <= FEW => return false,
            // Twice as much, because backlogs vary.
            LossCause::Line { cap, .. } if is_tolerable && backlog <= 2.0 * cap => return false,
            LossCause::Buffer { first, .. }
                if is_tolerable && backlog <= (INDEPENDENT * first).max(FEW) =>
            {
                let cap = (INDEPENDENT * first).max(FEW);
                self.cause = LossCause::Line { since: now, cap };
                return false;
            }
            LossCause::Buffer { first, .. } => first.max(backlog),
            LossCause::None | LossCause::Line { .. } => backlog,
        };
        let cap = (REMAINDER * backlog).max(1.0);
        self.cause = LossCause::Buffer { since: now, first, cap, rate };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RATE: f64 = 1_000.0;

    /// A loss a second, one packet in a hundred, with these backlogs: whether each is congestion.
    fn judged(losses: &mut PathLosses, backlogs: &[f64]) -> Vec<bool> {
        let mut now = Time::ZERO;
        let judge = |backlog: &f64| {
            now += Span::from_secs(1);
            losses.handle_lost(1.0);
            losses.handle_delivered(99.0);
            let is_congestion = losses.is_congestion(now, *backlog, RATE, 0.03);
            losses.end_round(now, RATE);
            is_congestion
        };
        backlogs.iter().map(judge).collect()
    }

    #[test]
    fn a_buffer_loses_at_its_size_and_a_line_at_any() {
        let mut losses = PathLosses::default();
        assert_eq!(judged(&mut losses, &[1.0, 100.0, 80.0, 100.0]), [false, true, true, true]);
        assert!((losses.cap() - 50.0).abs() < 1e-9);
        // A quarter: the line. Later losses at up to twice the cap are its own, too.
        assert_eq!(judged(&mut losses, &[25.0, 50.0, 10.0]), [false; 3]);
        assert!((losses.cap() - 25.0).abs() < 1e-9);
        assert_eq!(judged(&mut losses, &[51.0]), [true]);
    }

    #[test]
    fn more_than_the_tolerated_share_is_congestion() {
        let mut losses = PathLosses::default();
        losses.handle_lost(6.0);
        losses.handle_delivered(99.0);
        assert!(losses.is_congestion(Time::ZERO, 0.0, RATE, 0.03));
        let mut losses = PathLosses::default();
        assert!(losses.is_congestion(Time::ZERO, 0.0, RATE, 0.0), "nothing is tolerated");
    }

    #[test]
    fn a_minute_or_twice_the_rate_ends_the_cap() {
        let mut losses = PathLosses::default();
        judged(&mut losses, &[100.0]);
        losses.end_round(Time::ZERO + Span::from_secs(2), 1.9 * RATE);
        assert!(losses.cap() < 51.0);
        losses.end_round(Time::ZERO + Span::from_secs(3), 2.0 * RATE);
        assert!(losses.cap().is_infinite());
        judged(&mut losses, &[100.0]);
        losses.end_round(Time::ZERO + Span::from_secs(61), RATE);
        assert!(losses.cap().is_infinite());
    }
}
