//! Drains: now and then all senders leave the queue to empty itself at the same time, so that those
//! who came when it was full learn the least delay too.

use units::{Bytes, Span, Time};

/// The share of a window that is in flight in a drain: what waits may be three times the path.
const SHARE: f64 = 0.25;
/// The queue is empty for so long at least, so that senders with longer round trips see it too.
const LEAST: Span = Span::from_millis(200);

/// A drain of one path, until its window is whole again.
#[derive(Clone, Copy, Debug)]
pub(super) struct HarpDrain {
    /// What may be in flight.
    bytes: f64,
    /// Then it doubles in a round trip: a window that opens at once would be a burst.
    until: Time,
}

impl HarpDrain {
    /// Of a path with this window; a packet of `mss` bytes may always be in flight.
    pub(super) fn new(now: Time, window: f64, mss: f64, smoothed_rtt: Span) -> HarpDrain {
        HarpDrain { bytes: (SHARE * window).max(mss), until: now + smoothed_rtt + LEAST }
    }

    /// Bytes of the path arrived. Returns whether its window is whole again.
    pub(super) fn handle_delivered(&mut self, now: Time, bytes: Bytes, window: f64) -> bool {
        if now >= self.until {
            self.bytes += bytes.as_f64();
        }
        now >= self.until && self.bytes >= window
    }

    /// How much of a window may be in flight.
    pub(super) fn bound(&self, window: f64) -> f64 {
        window.min(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_in_flight_and_then_it_doubles() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut drain = HarpDrain::new(at(0), 100_000.0, 1_000.0, Span::from_millis(50));
        let bound = |drain: &HarpDrain| drain.bound(100_000.0);
        assert!(!drain.handle_delivered(at(249), Bytes(25_000), 100_000.0));
        assert!((bound(&drain) - 25_000.0).abs() < 1e-9);
        assert!(!drain.handle_delivered(at(250), Bytes(25_000), 100_000.0));
        assert!((bound(&drain) - 50_000.0).abs() < 1e-9);
        assert!(drain.handle_delivered(at(300), Bytes(50_000), 100_000.0));
        // A window of less than a packet stays what it is.
        let small = HarpDrain::new(at(0), 100.0, 1_000.0, Span::ZERO);
        assert!((small.bound(100.0) - 100.0).abs() < 1e-9);
    }
}
