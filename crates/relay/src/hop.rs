//! How much of a path may wait at a relay: a core.
//!
//! Unbounded buffers would hide from both ends how much their path carries: at 10 Mbit/s the
//! kernel's own bounds hold seconds. A bound below what the hop carries in a round trip would slow
//! the path down. It is twice the rate, as it was measured, times the round trip of the hop; it
//! follows a growing rate at once, and a falling one after a while.

use units::{Bytes, Span, Time};

use crate::bounds::{LEAST_HELD, LEAST_ROUND_TRIP, MOST_HELD};

/// The shortest time over which a rate is measured.
const LEAST_SAMPLE: Span = Span::from_millis(10);
/// A bound that was too large in so many measurements, one after the other, becomes smaller.
const SMALLER_AFTER: u32 = 8;

/// The bound of one direction of a path.
#[derive(Clone, Debug)]
pub struct HopBound {
    bound: Bytes,
    since: Time,
    moved: Bytes,
    /// The largest bound that a measurement since the last change asked for, ...
    largest: Bytes,
    /// ... of so many that asked for less than half of the bound.
    lower: u32,
}

impl HopBound {
    /// That of a path that has moved nothing yet.
    #[must_use]
    pub fn new(now: Time) -> HopBound {
        let moved = Bytes::ZERO;
        HopBound { bound: LEAST_HELD, since: now, moved, largest: Bytes::ZERO, lower: 0 }
    }

    /// The bound.
    #[must_use]
    pub fn bound(&self) -> Bytes {
        self.bound
    }

    /// Bytes were moved on. Returns whether a measurement is complete, and
    /// [`HopBound::handle_sample`] is due.
    #[must_use]
    pub fn handle_moved(&mut self, now: Time, bytes: Bytes) -> bool {
        self.moved += bytes;
        now.since(self.since) >= LEAST_SAMPLE
    }

    /// A measurement is complete, with the round trip of the hop that the bytes come from. Returns
    /// the bound, if it is another one now.
    pub fn handle_sample(&mut self, now: Time, round_trip: Span) -> Option<Bytes> {
        let (span, round_trip) = (now.since(self.since), round_trip.max(LEAST_ROUND_TRIP));
        if span < round_trip.max(LEAST_SAMPLE) {
            // Less than a round trip says nothing: windows arrive in one piece.
            return None;
        }
        let rate = self.moved / span;
        (self.since, self.moved) = (now, Bytes::ZERO);
        let wanted = Bytes((rate * round_trip).0.saturating_mul(2)).clamp(LEAST_HELD, MOST_HELD);
        self.largest = self.largest.max(wanted);
        self.lower = if wanted.0 < self.bound.0 / 2 { self.lower + 1 } else { 0 };
        // Less than a quarter more is not worth a call of the kernel.
        let next = if wanted.0 > self.bound.0 + self.bound.0 / 4 {
            wanted
        } else if self.lower >= SMALLER_AFTER {
            self.largest.min(self.bound)
        } else {
            if self.lower == 0 {
                self.largest = Bytes::ZERO;
            }
            return None;
        };
        (self.lower, self.largest) = (0, Bytes::ZERO);
        let is_other = next != self.bound;
        self.bound = next;
        is_other.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;

    const ROUND_TRIP: Span = Span::from_millis(50);

    /// Moves data for so long: at `line`, but no more than the bound in each round trip.
    fn carry(hop: &mut HopBound, from: Time, line: Rate, secs: u64) -> Time {
        let mut now = from;
        while now < from + Span::from_secs(secs) {
            now += ROUND_TRIP;
            let bytes = (line * ROUND_TRIP).min(hop.bound());
            if hop.handle_moved(now, bytes) {
                hop.handle_sample(now, ROUND_TRIP);
            }
        }
        now
    }

    #[test]
    fn the_bound_grows_to_twice_what_the_hop_carries_in_a_round_trip() {
        for (mbit, expected) in [(1, LEAST_HELD), (200, Bytes(2_500_000)), (4_000, MOST_HELD)] {
            let mut hop = HopBound::new(Time::ZERO);
            // A bound that doubles in each round trip.
            let now = carry(&mut hop, Time::ZERO, Rate::mbit(mbit), 1);
            let bound = hop.bound().0;
            assert!(bound <= expected.0 && 4 * bound >= 3 * expected.0, "{mbit}: {bound}");
            carry(&mut hop, now, Rate::mbit(mbit), 10);
            assert_eq!(hop.bound().0, bound, "it stays");
        }
    }

    #[test]
    fn the_bound_follows_a_falling_rate_after_a_while() {
        let mut hop = HopBound::new(Time::ZERO);
        let now = carry(&mut hop, Time::ZERO, Rate::mbit(200), 1);
        let large = hop.bound();
        let mut later = now + ROUND_TRIP;
        assert!(hop.handle_moved(later, Bytes(1_000)));
        assert_eq!(hop.handle_sample(later, ROUND_TRIP), None);
        assert_eq!(hop.bound(), large, "a pause changes nothing");
        later = carry(&mut hop, later, Rate::mbit(20), 1);
        assert_eq!(hop.bound(), Bytes(250_000));
        carry(&mut hop, later, Rate::mbit(1), 1);
        assert_eq!(hop.bound(), LEAST_HELD);
    }

    #[test]
    fn a_part_of_a_round_trip_says_nothing() {
        let mut hop = HopBound::new(Time::ZERO);
        let now = Time::ZERO + Span::from_millis(20);
        assert!(hop.handle_moved(now, Bytes::kib(64)));
        assert_eq!(hop.handle_sample(now, Span::from_millis(100)), None);
        assert!(hop.handle_moved(now + Span::from_millis(80), Bytes::ZERO));
        let bound = hop.handle_sample(now + Span::from_millis(80), Span::from_millis(100));
        assert_eq!(bound, Some(Bytes::kib(128)));
    }
}
