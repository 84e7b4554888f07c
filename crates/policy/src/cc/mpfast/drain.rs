//! The base round-trip time, which expires, and the drains that show it.
//!
//! A flow of FAST never sees the base again: its own packets and the others' always wait. A flow
//! that comes late takes the standing queue for propagation delay, and more than its share. So all
//! flows have 85 % of their pipe in flight for a moment, at the same instants: multiples of the
//! drain interval on the clock, and of two, four or more intervals with long round trips. A base
//! counts until the second drain after it.

use units::{Span, Time};

/// The share of the bandwidth-delay product in flight in a drain.
const SHARE: f64 = 0.85;
/// The least time for which the queue is empty, so that flows with longer round trips see it too.
const LEAST: Span = Span::from_millis(200);

/// The smallest round-trip time since the last drain, and before it; seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    present: f64,
    before: f64,
}

impl Base {
    /// Begins with the handshake's, if it is known.
    pub(super) fn new(rtt: Option<f64>) -> Base {
        Base { present: rtt.unwrap_or(f64::INFINITY), before: f64::INFINITY }
    }

    pub(super) fn handle_rtt(&mut self, rtt: f64) {
        self.present = self.present.min(rtt);
    }

    /// Infinite before the first sample.
    pub(super) fn get(self) -> f64 {
        self.present.min(self.before)
    }

    /// Since the last drain began; infinite before the first sample.
    pub(super) fn latest(self) -> f64 {
        self.present
    }

    /// A drain begins. Without a sample since the last one, nothing is forgotten.
    pub(super) fn expire(&mut self) {
        if self.present.is_finite() {
            *self = Base { present: f64::INFINITY, before: self.present };
        }
    }
}

/// A drain of one subflow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// Packets in flight; may be less than one, for pacing.
    pub(super) packets: f64,
    /// Over this time, in seconds.
    pub(super) base: f64,
    pub(super) until: Time,
}

impl Drain {
    /// Of a flow with a window of `packets`. It lasts until its own queue is empty, and a round
    /// trip or 200 ms more.
    pub(super) fn new(now: Time, packets: f64, [base, average]: [f64; 2]) -> Drain {
        let empty = Span::from_secs_f64(average);
        let rest = Span::from_secs_f64(base).max(LEAST);
        Drain { packets: SHARE * packets * base / average, base, until: now + empty + rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_counts_until_the_second_drain() {
        let mut base = Base::new(Some(0.1));
        base.handle_rtt(0.2);
        base.expire();
        base.handle_rtt(0.15);
        assert!((base.get() - 0.1).abs() < 1e-9);
        base.expire();
        assert!((base.get() - 0.15).abs() < 1e-9);
        base.handle_rtt(0.12);
        assert!((base.get() - 0.12).abs() < 1e-9);
        base.expire();
        base.expire();
        assert!((base.get() - 0.12).abs() < 1e-9, "idle: {base:?}");
    }

    #[test]
    fn a_drain_leaves_less_than_the_pipe() {
        let drain = Drain::new(Time::ZERO, 200.0, [0.1, 0.2]);
        assert!((drain.packets - 85.0).abs() < 1e-9);
        assert_eq!(drain.until, Time::ZERO + Span::from_millis(400));
    }
}
