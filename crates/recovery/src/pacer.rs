//! Pacing.

use units::{Bytes, Rate, Span, Time, TokenBucket};

/// The least size of a burst, in packets.
const LEAST_BURST: u64 = 2;
/// The length of a burst at the pacing rate. Timers are about as exact.
const BURST: Span = Span::from_millis(1);
/// The largest burst: what one UDP segmentation offload holds.
const MOST_BURST: Bytes = Bytes::kib(64);
/// So much lateness is made up for, at most.
const MOST_LATE: Span = Span::from_millis(10);
/// For so long a late sender may take to send what makes up for it.
const MAKING_UP: Span = Span::from_millis(1);

/// Packets leave at a rate, with bursts of a limited size.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Rate,
    burst: Bytes,
    bucket: TokenBucket,
    /// Until then packets make up for lateness.
    late_until: Time,
}

impl Pacer {
    /// A full bucket.
    #[must_use]
    pub fn new() -> Pacer {
        let (rate, burst, bucket) = (Rate::ZERO, Bytes::ZERO, TokenBucket::default());
        Pacer { rate, burst, bucket, late_until: Time::ZERO }
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

    /// The sender wakes at `now` to send what pacing has held until `held_until`. What it would
    /// have sent since, had it been woken in time, follows at once: the bottleneck's queue has
    /// emptied meanwhile. At most an eighth of the round trip is made up for, since a queue may be
    /// short, and at most 10 ms. A burst covers a millisecond of lateness; without this a host
    /// whose timers are later than that often never reaches its pacing rate.
    pub fn handle_late(&mut self, now: Time, held_until: Time, smoothed_rtt: Span) {
        let late = (now - held_until).min(MOST_LATE).min(smoothed_rtt / 8);
        if late == Span::ZERO {
            return;
        }
        self.bucket = TokenBucket::owing_until(self.bucket.paid_at().max(now - late));
        self.late_until = now + MAKING_UP;
    }

    /// A packet of `bytes` left. Without a rate nothing is counted.
    pub fn handle_sent(&mut self, now: Time, bytes: Bytes) {
        if self.rate > Rate::ZERO {
            let saved = if now <= self.late_until { MOST_LATE + MAKING_UP } else { Span::ZERO };
            self.bucket.take(now, saved, bytes / self.rate);
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

    /// What a sender of 12 Mbit/s sends in a second after `start`, if each hold ends so late.
    fn sent_by(pacer: &mut Pacer, start: Time, late: Span, rtt: Span) -> (u32, u32) {
        let (mut now, mut sent, mut at_once, mut most) = (start, 0u32, 0u32, 0u32);
        while now < start + Span::from_secs(1) {
            let at = pacer.ready_at(now);
            if at > now {
                now = at + late;
                pacer.handle_late(now, at, rtt);
                at_once = 0;
            }
            pacer.handle_sent(now, Bytes(1_500));
            sent += 1;
            at_once += 1;
            most = most.max(at_once);
        }
        (sent, most)
    }

    /// Found on a line of 200 Mbit/s: paced at 203, it sent 157, as timers were more than a
    /// millisecond late a quarter of the time.
    #[test]
    fn a_late_sender_keeps_its_rate() {
        let rtt = Span::from_millis(100);
        for late in [0, 1, 3, 9] {
            let mut pacer = Pacer::new();
            pacer.set(Rate::mbit(12), Bytes(3_000));
            let (sent, most) = sent_by(&mut pacer, Time::ZERO, Span::from_millis(late), rtt);
            // What is held at the end is still to come.
            assert!((1_000 - late..=1_013).contains(&u64::from(sent)), "{sent} at {late} ms");
            assert!(u64::from(most) <= late + 4, "{most} at {late} ms");
        }
        // No more than an eighth of the round trip is made up for, and no more than 10 ms.
        for (late, rtt, kept) in [(8, 32, 4 + 3), (20, 400, 10 + 3)] {
            let mut pacer = Pacer::new();
            pacer.set(Rate::mbit(12), Bytes(3_000));
            let (late, rtt) = (Span::from_millis(late), Span::from_millis(rtt));
            let (sent, most) = sent_by(&mut pacer, Time::ZERO, late, rtt);
            assert!(most <= kept && sent < 900, "{most} of {kept}, {sent}");
        }
    }

    #[test]
    fn nothing_is_saved_while_nobody_is_late() {
        let mut pacer = Pacer::new();
        pacer.set(Rate::mbit(12), Bytes(3_000));
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        pacer.handle_late(at(100), at(95), Span::from_millis(100));
        // Nothing is sent at once, and then a second passes.
        let mut sent = 0;
        while pacer.ready_at(at(1_100)) == at(1_100) {
            pacer.handle_sent(at(1_100), Bytes(1_500));
            sent += 1;
        }
        assert_eq!(sent, 3, "a burst");
    }
}
