//! A token bucket.

use crate::{Rate, Span, Time};

/// A token bucket, as one instant: when all that was taken is paid off. What is taken is given as
/// the time that it costs at the rate, so that there is no rounding besides that of `Bytes / Rate`.
///
/// The two sizes of the bucket are arguments. A *lead* is the debt that a taker may have: a burst.
/// *Saved* is the unused time before the present that counts for the next takers.
///
/// ```
/// use units::{Bytes, Rate, Span, Time, TokenBucket};
///
/// let (start, burst) = (Time::ZERO, Span::from_millis(5));
/// let mut bucket = TokenBucket::default();
/// // A second's worth at once: the next one may follow when all but the burst is paid off.
/// bucket.take(start, Span::ZERO, Bytes(125_000) / Rate::mbit(1));
/// assert_eq!(bucket.ready_at(start, burst), start + Span::from_millis(995));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    paid_at: Time,
}

impl TokenBucket {
    /// One whose debt is paid off at `paid_at`.
    #[must_use]
    pub const fn owing_until(paid_at: Time) -> TokenBucket {
        TokenBucket { paid_at }
    }

    /// When all that was taken is, or was, paid off.
    #[must_use]
    pub const fn paid_at(self) -> Time {
        self.paid_at
    }

    /// When a taker that may have this lead may take: `now`, or later.
    #[must_use]
    #[inline]
    pub fn ready_at(self, now: Time, lead: Span) -> Time {
        (self.paid_at - lead).max(now)
    }

    /// Takes what costs `cost`, ready or not; of unused time, `saved` counts. Returns when all is
    /// paid off.
    #[inline]
    pub fn take(&mut self, now: Time, saved: Span, cost: Span) -> Time {
        self.paid_at = self.paid_at.max(now - saved) + cost;
        self.paid_at
    }

    /// The same debt in bytes after the rate has changed; without a rate there is none.
    #[must_use]
    pub fn at_rate(self, now: Time, before: Option<Rate>, after: Option<Rate>) -> TokenBucket {
        TokenBucket::owing_until(match (before, after) {
            (Some(before), Some(after)) if self.paid_at > now => {
                now + (before * (self.paid_at - now)) / after
            }
            _ => self.paid_at.min(now),
        })
    }

    /// Puts back what had cost `cost` and was not used.
    pub fn put_back(&mut self, cost: Span) {
        self.paid_at = self.paid_at - cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A bucket as a level: filled by a nanosecond of tokens a nanosecond, up to `saved`.
    struct Level {
        tokens: i128,
        filled_at: Time,
    }

    impl Level {
        fn fill(&mut self, now: Time, saved: Span) {
            let more = i128::from(now.since(self.filled_at).as_nanos());
            let most = i128::from(saved.as_nanos());
            (self.tokens, self.filled_at) = ((self.tokens + more).min(most), now);
        }
    }

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    proptest! {
        /// Times of readiness are those of a level that is filled as time passes.
        #[test]
        fn an_instant_says_what_a_level_would(
            saved in 0..1_000_u64,
            lead in 0..1_000_u64,
            steps in prop::collection::vec((0..2_000_u64, 0..1_500_u64, any::<bool>()), 0..100),
        ) {
            let (saved, lead) = (Span::from_nanos(saved), Span::from_nanos(lead));
            let mut now = at(10_000);
            let mut bucket = TokenBucket::owing_until(now);
            let mut level = Level { tokens: 0, filled_at: now };
            for (pause, cost, waits) in steps {
                now += Span::from_nanos(pause);
                let ready = bucket.ready_at(now, lead);
                level.fill(now, saved);
                let missing = u64::try_from(-level.tokens - i128::from(lead.as_nanos()));
                prop_assert_eq!(ready, now + Span::from_nanos(missing.unwrap_or(0)));
                if waits {
                    now = ready;
                    level.fill(now, saved);
                }
                bucket.take(now, saved, Span::from_nanos(cost));
                level.tokens -= i128::from(cost);
            }
        }

        /// Whoever waits for its turn has at most the rate, the burst and one piece.
        #[test]
        fn the_rate_and_a_burst_bound_what_is_taken(
            lead in 0..1_000_u64,
            takes in prop::collection::vec((0..500_u64, 1..1_500_u64), 1..100),
        ) {
            let lead = Span::from_nanos(lead);
            let (start, mut now, mut bucket) = (at(10_000), at(10_000), TokenBucket::default());
            let mut taken = Span::ZERO;
            for (pause, cost) in takes {
                now = bucket.ready_at(now + Span::from_nanos(pause), lead);
                prop_assert!(taken <= (now - start) + lead, "{} before {}", taken, now);
                bucket.take(now, Span::ZERO, Span::from_nanos(cost));
                taken += Span::from_nanos(cost);
            }
        }
    }

    #[test]
    fn what_is_put_back_was_never_taken() {
        let mut bucket = TokenBucket::owing_until(at(100));
        bucket.take(at(50), Span::ZERO, Span::from_nanos(30));
        bucket.put_back(Span::from_nanos(30));
        assert_eq!(bucket, TokenBucket::owing_until(at(100)));
        bucket.put_back(Span::from_nanos(1_000));
        assert_eq!(bucket.paid_at(), Time::ZERO, "no time is before the beginning");
    }
}
