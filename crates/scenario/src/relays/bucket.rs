//! A token bucket whose tokens expire.

use units::{Bytes, Rate, Span, Time};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Passes packets of one size at a rate. Unused tokens expire when the next rate is set, except for
/// the fraction of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    /// In bits times nanoseconds per second, so that there is no rounding.
    tokens: u64,
    /// The tokens of a packet.
    packet: u64,
    filled_at: Time,
}

impl Bucket {
    /// An empty bucket for packets of this size.
    pub(super) fn new(packet: Bytes) -> Bucket {
        Bucket { rate: Rate::ZERO, tokens: 0, packet: packet.0 * 8 * SECOND, filled_at: Time::ZERO }
    }

    /// Sets the rate from now on.
    pub(super) fn set(&mut self, now: Time, rate: Rate) {
        self.fill(now);
        self.tokens %= self.packet;
        self.rate = rate;
    }

    /// Adds the tokens up to now.
    #[inline]
    pub(super) fn fill(&mut self, now: Time) {
        let more = self.rate.as_bits().saturating_mul((now - self.filled_at).as_nanos());
        self.tokens = self.tokens.saturating_add(more);
        self.filled_at = now;
    }

    #[inline]
    pub(super) fn has_packet(&self) -> bool {
        self.tokens >= self.packet
    }

    /// Removes the tokens of a packet, which must be there.
    #[inline]
    pub(super) fn take(&mut self) {
        self.tokens -= self.packet;
    }

    /// The time at which the tokens of a packet are there; `None` at rate zero.
    #[inline]
    pub(super) fn due(&self) -> Option<Time> {
        let missing = self.packet.saturating_sub(self.tokens);
        let rate = self.rate.as_bits();
        (rate > 0).then(|| self.filled_at + Span::from_nanos(missing.div_ceil(rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn packets_come_at_the_rate() {
        // A packet each 10 ms.
        let mut bucket = Bucket::new(Bytes(500));
        bucket.set(at(0), Rate::kbit(400));
        assert_eq!((bucket.has_packet(), bucket.due()), (false, Some(at(10))));
        bucket.fill(at(9));
        assert!(!bucket.has_packet());
        bucket.fill(at(10));
        assert!(bucket.has_packet());
        bucket.take();
        assert_eq!(bucket.due(), Some(at(20)));
        assert_eq!(Bucket::new(Bytes(500)).due(), None);
    }

    #[test]
    fn unused_tokens_expire() {
        let mut bucket = Bucket::new(Bytes(500));
        bucket.set(at(0), Rate::kbit(400));
        // Three and a half packets; only the half survives.
        bucket.set(at(35), Rate::kbit(800));
        assert!(!bucket.has_packet());
        assert_eq!(bucket.due(), Some(at(35) + Span::from_micros(2_500)));
    }

    #[test]
    fn deadlines_are_exact() {
        let mut bucket = Bucket::new(Bytes(500));
        bucket.set(at(0), Rate::from_bits(1_234_567));
        let mut now = at(0);
        for _ in 0..1_000 {
            now = bucket.due().unwrap();
            bucket.fill(now);
            assert!(bucket.has_packet());
            bucket.take();
        }
        // Rounding loses no nanosecond.
        let wanted = 1_000.0 * 4_000.0 / 1_234_567.0;
        assert!((now.as_secs_f64() - wanted).abs() < 2e-9, "{now}");
    }
}
