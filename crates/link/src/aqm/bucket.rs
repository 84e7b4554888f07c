//! Token buckets: a policer drops what exceeds one, a shaper holds it back (RFC 2475, sections
//! 2.3.3.3 and 2.3.3.4).
//!
//! The bucket is full at first and holds `burst`. Tokens come at `rate`, and a packet takes as many
//! as it has bytes. It is the meter of RFC 2697 with one bucket, and `tbf` and `police` of Linux,
//! without their rounding: tokens are counted to the nanosecond with what is left of it, as on a
//! wire, since a packet may cost few.

use units::{Bytes, Rate, Span, Time, TokenBucket};

use crate::wire::{WORK_PER_BYTE, Wire};

/// A rate, and what may exceed it after quiet. Both are of packets with their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The rate at which tokens come, above zero.
    pub rate: Rate,
    /// The size of the bucket, below 2 GiB. A packet that is larger never passes.
    pub burst: Bytes,
}

/// The tokens of a policer or a shaper.
#[derive(Clone, Debug)]
pub(crate) struct BucketState {
    /// What was taken, as the time that its tokens need.
    bucket: TokenBucket,
    /// Computes that time.
    wire: Wire,
    /// The time in which a full bucket comes.
    full: Span,
    burst: Bytes,
}

impl BucketState {
    pub(crate) fn new(Bucket { rate, burst }: Bucket) -> BucketState {
        let work = u128::from(burst.0) * u128::from(WORK_PER_BYTE);
        let full = work.div_ceil(u128::from(rate.as_bits().max(1)));
        BucketState {
            bucket: TokenBucket::default(),
            wire: Wire::new(rate.as_bits().max(1)),
            full: Span::from_nanos(u64::try_from(full).unwrap_or(u64::MAX)),
            burst,
        }
    }

    /// Whether a packet can ever pass.
    pub(crate) fn fits(&self, bytes: Bytes) -> bool {
        bytes <= self.burst
    }

    /// A packet arrives at a policer. Returns whether there are tokens for it, which it takes.
    pub(crate) fn conforms(&mut self, now: Time, bytes: Bytes) -> bool {
        let Some((mut bucket, wire, cost)) = self.price(now, bytes) else { return false };
        let conforms = bucket.take(now, Span::ZERO, cost) <= now + self.full;
        if conforms {
            (self.bucket, self.wire) = (bucket, wire);
        }
        conforms
    }

    /// A packet is next at a shaper. Returns when there are tokens for it, which it takes. One that
    /// does not [fit](BucketState::fits) waits for as many as it needs.
    pub(crate) fn admit(&mut self, now: Time, bytes: Bytes) -> Time {
        let Some((mut bucket, wire, cost)) = self.price(now, bytes) else { return now };
        let at = bucket.ready_at(now, self.full - cost);
        bucket.take(at, Span::ZERO, cost);
        (self.bucket, self.wire) = (bucket, wire);
        at
    }

    /// The time in which the tokens of a packet come, and the state if it takes them.
    fn price(&self, now: Time, bytes: Bytes) -> Option<(TokenBucket, Wire, Span)> {
        let size = u32::try_from(bytes.0).ok().filter(|_| self.fits(bytes))?;
        let mut wire = self.wire.clone();
        let cost = wire.time(size, self.bucket.paid_at() <= now);
        Some((self.bucket, wire, cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// Tokens in bits times nanoseconds a second, as in the definition of a bucket.
    struct Level {
        rate: u128,
        full: u128,
        tokens: u128,
        filled_at: u64,
    }

    impl Level {
        fn new(bucket: Bucket) -> Level {
            let full = u128::from(bucket.burst.0) * u128::from(WORK_PER_BYTE);
            Level { rate: bucket.rate.as_bits().into(), full, tokens: full, filled_at: 0 }
        }

        fn fill(&mut self, now: u64) {
            let more = self.rate * u128::from(now - self.filled_at);
            (self.tokens, self.filled_at) = ((self.tokens + more).min(self.full), now);
        }

        fn takes(&mut self, now: u64, bytes: u64) -> bool {
            self.fill(now);
            let cost = u128::from(bytes) * u128::from(WORK_PER_BYTE);
            let has = self.tokens >= cost;
            if has {
                self.tokens -= cost;
            }
            has
        }
    }

    fn bucket() -> impl Strategy<Value = Bucket> {
        // 8 ns for each bit and so on: tokens of a byte come in whole nanoseconds.
        let rate =
            prop::sample::select(&[1_000_000, 8_000_000, 100_000_000, 8_000_000_000_u64][..]);
        (rate, 1_u64..20_000)
            .prop_map(|(rate, burst)| Bucket { rate: Rate::from_bits(rate), burst: Bytes(burst) })
    }

    proptest! {
        /// The same decisions as those of a level that is filled as time passes.
        #[test]
        fn a_policer_passes_what_a_level_has_tokens_for(
            bucket in bucket(),
            packets in prop::collection::vec((0..2_000_000_u64, 1..3_000_u64), 1..200),
        ) {
            let (mut state, mut level) = (BucketState::new(bucket), Level::new(bucket));
            let mut now = 0;
            for (gap, bytes) in packets {
                now += gap;
                prop_assert_eq!(state.conforms(at(now), Bytes(bytes)), level.takes(now, bytes));
            }
        }

        /// A packet leaves as soon as the level has tokens for it, and not before.
        #[test]
        fn a_shaper_waits_for_the_tokens(
            bucket in bucket(),
            packets in prop::collection::vec((0..2_000_000_u64, 1..3_000_u64), 1..100),
        ) {
            let (mut state, mut level) = (BucketState::new(bucket), Level::new(bucket));
            let (mut now, mut free) = (0, 0);
            for (gap, bytes) in packets {
                now += gap;
                if !state.fits(Bytes(bytes)) {
                    continue;
                }
                let turn = now.max(free);
                let left = (state.admit(at(turn), Bytes(bytes)) - at(0)).as_nanos();
                if left > turn {
                    prop_assert!(!level.takes(left - 1, bytes), "{} is late", left);
                }
                prop_assert!(level.takes(left, bytes), "{} is early", left);
                free = left;
            }
        }
    }

    /// RFC 2697: over any time no more than the burst and the rate, also where tokens of a packet
    /// come in no whole nanoseconds.
    #[test]
    fn odd_rates_lose_nothing_to_rounding() {
        let bucket = Bucket { rate: Rate::from_bits(9_999_999_937), burst: Bytes(3_000) };
        let mut state = BucketState::new(bucket);
        let passed: Vec<u64> =
            (0..1_000_000).filter(|now| state.conforms(at(*now), Bytes(64))).collect();
        // 64 bytes take 51.2 ns: 3000 bytes at once, and the rate for a millisecond.
        let wanted = (3_000 + 1_250_000) / 64;
        assert!(passed.len().abs_diff(wanted) <= 1, "{} of {wanted}", passed.len());
    }
}
