//! The token bucket of a driver of sources.

use units::{Bytes, Rate, Span, Time};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Passes packets of one size at a rate. Unused tokens expire when the next rate is set, except for
/// the fraction of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    /// In bits times nanoseconds per second, so that there is no rounding; below zero after more
    /// was spent than there was.
    tokens: i64,
    /// The tokens of a packet.
    packet: i64,
    filled_at: Time,
}

impl Bucket {
    /// An empty bucket for packets of this size.
    #[must_use]
    pub fn new(packet: Bytes) -> Bucket {
        Bucket { rate: Rate::ZERO, tokens: 0, packet: tokens(packet), filled_at: Time::ZERO }
    }

    /// Sets the rate from now on.
    pub fn set(&mut self, now: Time, rate: Rate) {
        self.fill(now);
        if self.tokens > 0 {
            self.tokens %= self.packet;
        }
        self.rate = rate;
    }

    /// Adds the tokens up to now.
    #[inline]
    pub fn fill(&mut self, now: Time) {
        let more = self.rate.as_bits().saturating_mul((now - self.filled_at).as_nanos());
        self.tokens = self.tokens.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        self.filled_at = now;
    }

    /// Whether the tokens of a packet are there.
    #[inline]
    #[must_use]
    pub fn has_packet(&self) -> bool {
        self.tokens >= self.packet
    }

    /// Removes the tokens of a packet, which must be there.
    #[inline]
    pub fn take(&mut self) {
        self.tokens -= self.packet;
    }

    /// Removes the tokens of so much, which may be more than there are: later packets wait for
    /// them.
    pub fn spend(&mut self, bytes: Bytes) {
        self.tokens = self.tokens.saturating_sub(tokens(bytes));
    }

    /// What the tokens are enough for.
    #[must_use]
    pub fn room(&self) -> Bytes {
        Bytes(u64::try_from(self.tokens).unwrap_or(0) / (8 * SECOND))
    }

    /// The time at which the tokens of a packet are there; `None` at rate zero.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        let missing = u64::try_from(self.packet.saturating_sub(self.tokens)).unwrap_or(0);
        let rate = self.rate.as_bits();
        (rate > 0).then(|| self.filled_at + Span::from_nanos(missing.div_ceil(rate)))
    }
}

/// The tokens of so much data.
fn tokens(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0.saturating_mul(8 * SECOND)).unwrap_or(i64::MAX)
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
    fn what_was_spent_in_advance_is_waited_for() {
        // 50 octets a millisecond.
        let mut bucket = Bucket::new(Bytes(500));
        bucket.set(at(0), Rate::kbit(400));
        bucket.fill(at(20));
        assert_eq!(bucket.room(), Bytes(1_000));
        bucket.spend(Bytes(4_000));
        assert_eq!((bucket.room(), bucket.due()), (Bytes(0), Some(at(90))));
        // A further rate forgives nothing.
        bucket.set(at(30), Rate::kbit(800));
        assert_eq!(bucket.due(), Some(at(60)));
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
