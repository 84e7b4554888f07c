//! Pacing.

use units::{Bytes, Rate, Span, Time, TokenBucket};

/// The least size of a burst, in packets.
const LEAST_BURST: u64 = 2;
/// The length of a burst at the pacing rate. Timers are about as exact.
const BURST: Span = Span::from_millis(1);
/// The largest burst: what one UDP segmentation offload holds.
const MOST_BURST: Bytes = Bytes::kib(64);

/// Packets leave at a rate, with bursts of a limited size.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Rate,
    burst: Bytes,
    bucket: TokenBucket,
}

impl Pacer {
    /// A full bucket.
    #[must_use]
    pub fn new() -> Pacer {
        Pacer { rate: Rate::ZERO, burst: Bytes::ZERO, bucket: TokenBucket::default() }
    }

    /// Sets the rate and the size of bursts, in bytes.
    pub fn set(&mut self, rate: Rate, burst: Bytes) {
        self.rate = rate;
        self.burst = burst;
    }

    /// When a packet may leave: `now`, or later. A bucket that is not empty allows a whole packet.
    #[must_use]
    pub fn ready_at(&self, now: Time) -> Time {
        self.bucket.ready_at(now, self.burst / self.rate)
    }

    /// A packet of `bytes` left. Without a rate nothing is counted.
    pub fn handle_sent(&mut self, now: Time, bytes: Bytes) {
        if self.rate > Rate::ZERO {
            self.bucket.take(now, Span::ZERO, bytes / self.rate);
        }
    }

    /// The pacing rate for a window where the controller gives none: 5/4 of the window a round trip
    /// (RFC 9002, section 7.7), twice the window in slow start, so that pacing does not slow its
    /// growth.
    #[must_use]
    pub fn rate_of_window(window: Bytes, smoothed_rtt: Span, is_slow_start: bool) -> Rate {
        let base = (window / smoothed_rtt.max(Span::from_micros(1))).as_bits();
        Rate::from_bits(if is_slow_start {
            base.saturating_mul(2)
        } else {
            base.saturating_add(base / 4)
        })
    }

    /// The size of the bucket at a pacing rate where the controller gives none, for bursts of a
    /// millisecond of the rate, at least two packets of the size `packet`, at most 64 KiB, rounded
    /// up to whole packets. A fixed number of packets is either a long burst at a low rate or many
    /// wake-ups at a high one.
    #[must_use]
    pub fn burst_of_rate(rate: Rate, packet: Bytes) -> Bytes {
        let burst = (rate * BURST).max(Bytes(LEAST_BURST * packet.0)).min(MOST_BURST);
        // A bucket that is just empty allows another packet.
        burst - Bytes(1)
    }
}

impl Default for Pacer {
    fn default() -> Pacer {
        Pacer::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_a_millisecond_within_bounds() {
        let packet = Bytes(1_500);
        assert_eq!(Pacer::burst_of_rate(Rate::mbit(1), packet), Bytes(2_999));
        assert_eq!(Pacer::burst_of_rate(Rate::mbit(80), packet), Bytes(9_999));
        assert_eq!(Pacer::burst_of_rate(Rate::mbit(10_000), packet), Bytes(65_535));
    }

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        let mut pacer = Pacer::new();
        pacer.set(Rate::mbit(12), Bytes(3_000));
        let start = Time::ZERO + Span::from_secs(1);
        let (mut now, mut sent) = (start, 0u32);
        while now < start + Span::from_millis(100) {
            now = pacer.ready_at(now);
            pacer.handle_sent(now, Bytes(1_500));
            sent += 1;
        }
        // One packet a ms for 100 ms, and the burst.
        assert!((102..=104).contains(&sent), "{sent}");
    }
}
