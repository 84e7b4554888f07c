//! Whether overflow routes of a striped connection are used.
//!
//! They are tried when the primary ones would need long for the rest, and stay if that brings more:
//! over a line that both share they would add nothing, at the cost for which they are in reserve.

use std::time::{Duration, Instant};

use policy::overflow;
use units::{Bytes, Rate, Span};

/// All routes together have to be this much faster than the primary ones were, in percent.
const GAIN: u64 = 110;
/// The pause after a trial that brought nothing; it doubles.
const PAUSE: Duration = Duration::from_secs(30);

/// The least time until overflow routes over a relay are tried beside direct ones that are no
/// slower than they were: they mostly share its line, and cost the relay's owner.
const RELAYED_AFTER: Duration = Duration::from_secs(10);

/// Whether overflow routes are needed.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// What the primary and the overflow routes had moved at that time.
    since: Option<(Instant, (Bytes, Bytes))>,
    /// Whether the primary routes have had time to reach their rate: a direct route may come long
    /// after that over a relay, which carries alone until then.
    are_settled: bool,
    /// Since when the overflow routes have carried alone, and what they had moved then.
    alone: Option<(Instant, Bytes)>,
    /// Their rate until the primary routes began.
    alone_rate: Rate,
    is_needed: bool,
    trial: Option<Trial>,
    /// When the next trial may be, and the pause that led there.
    next: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The rate of the primary routes alone.
    alone: Rate,
    /// Whether the routes have had time to reach their rate.
    is_settled: bool,
}

impl Overflow {
    /// The primary routes and the overflow routes have moved `moved`, and `rest` is to come; the
    /// latter lead over relays beside direct ones, or not. Whether overflow routes are needed from
    /// now on.
    pub(super) fn update(
        &mut self,
        now: Instant,
        moved: (Bytes, Bytes),
        (rest, are_relayed): (Bytes, bool),
        bound: Option<Rate>,
    ) -> bool {
        let (since, before) = *self.since.get_or_insert((now, moved));
        if !self.are_settled && moved.0 == before.0 {
            // They have not begun.
            self.note_alone((since, before.1), now, moved.1);
            self.since = Some((now, moved));
            return self.is_needed;
        }
        let span = Span::from(now - since);
        // The rates are measured over this time.
        if span < overflow::SETTLED {
            return self.is_needed;
        }
        self.since = Some((now, moved));
        if !std::mem::replace(&mut self.are_settled, true) {
            return self.is_needed;
        }
        let rate = |moved: Bytes, before: Bytes| Bytes(moved.0.saturating_sub(before.0)) / span;
        let primary = rate(moved.0, before.0).max(Rate::kbit(1));
        let is_faster = self.alone_rate.as_bits() > primary.as_bits() / 100 * GAIN;
        if are_relayed && self.next.is_none() && !is_faster {
            self.next = Some((now + RELAYED_AFTER, PAUSE / 2));
        }
        let all = primary + rate(moved.1, before.1);
        let is_bound = bound.is_some_and(|bound| primary.as_bits() >= bound.as_bits() / 100 * 85);
        let helps = overflow::are_needed(rest, primary, overflow::AFTER, self.is_needed);
        let may_begin = self.is_needed || self.next.is_none_or(|(at, _)| at <= now);
        let was_needed = std::mem::replace(&mut self.is_needed, helps && !is_bound && may_begin);
        if !self.is_needed {
            self.trial = None;
        } else if !was_needed {
            self.trial = Some(Trial { alone: primary, is_settled: false });
        } else if let Some(trial) = self.trial {
            self.judge(now, trial, all);
        }
        self.is_needed
    }

    /// The overflow routes carry alone.
    fn note_alone(&mut self, before: (Instant, Bytes), now: Instant, moved: Bytes) {
        if moved > before.1 {
            let (since, first) = *self.alone.get_or_insert(before);
            // Routes may have gone, and what they had moved with them.
            let fresh = Bytes(moved.0.saturating_sub(first.0));
            self.alone_rate = fresh / Span::from(now - since).max(Span::from_millis(1));
        }
    }

    /// Ends a trial in which the routes have had their time.
    fn judge(&mut self, now: Instant, trial: Trial, all: Rate) {
        if !trial.is_settled {
            self.trial = Some(Trial { is_settled: true, ..trial });
            return;
        }
        self.trial = None;
        if all.as_bits() < trial.alone.as_bits() / 100 * GAIN {
            let pause = self.next.map_or(PAUSE, |(_, pause)| pause * 2);
            self.next = Some((now + pause, pause));
            self.is_needed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// Whether overflow routes are needed after so many seconds beside primary ones of that rate,
    /// where they add so much and take so much away; and in how many steps they were used.
    fn needed(
        rate: Rate,
        (adds, takes): (Rate, Rate),
        (rest, bound): (Bytes, Option<Rate>),
        seconds: u32,
    ) -> (bool, u32) {
        let (mut overflow, began) = (Overflow::default(), Instant::now());
        let (mut is_needed, mut used) = (false, 0);
        let mut moved = (Bytes::ZERO, Bytes::ZERO);
        for step in 0..seconds * 10 {
            is_needed = overflow.update(began + STEP * step, moved, (rest, false), bound);
            let kept = if is_needed { rate - takes } else { rate };
            moved.0 += kept * Span::from(STEP);
            if is_needed {
                moved.1 += adds * Span::from(STEP);
                used += 1;
            }
        }
        (is_needed, used)
    }

    #[test]
    fn overflow_is_used_where_the_primaries_need_long() {
        let (rate, other) = (Rate::mbit(20), (Rate::mbit(5), Rate::ZERO));
        let much = Bytes(100_000_000);
        assert!(needed(rate, other, (much, None), 10).0);
        assert!(!needed(rate, other, (Bytes(20_000_000), None), 10).0, "eight seconds more");
        assert_eq!(needed(rate, other, (much, None), 1).1, 0, "nobody knows yet");
        let bound = |rate| (much, Some(Rate::mbit(rate)));
        assert!(!needed(rate, other, bound(20), 10).0, "the bound is reached");
        assert!(needed(rate, other, bound(40), 10).0);
    }

    /// A direct route opens after a while, and takes its time.
    #[test]
    fn the_begin_of_a_primary_route_says_nothing() {
        let (mut overflow, began) = (Overflow::default(), Instant::now());
        let mut moved = (Bytes::ZERO, Bytes::ZERO);
        for step in 0..200_u32 {
            let left = (Bytes(20_000_000), false);
            let is_needed = overflow.update(began + STEP * step, moved, left, None);
            assert!(!is_needed, "after {step} steps");
            // Nine seconds of 20 Mbit/s, once it has them.
            let rate = match step {
                0..30 => 0,
                30..40 => 2,
                _ => 20,
            };
            moved.0 += Rate::mbit(rate) * Span::from(STEP);
            moved.1 += Rate::mbit(if step < 30 { 20 } else { 0 }) * Span::from(STEP);
        }
    }

    /// Of hosts that met: a direct route that is as fast as the relay's was is left alone for a
    /// while, and one that is slower is not.
    #[test]
    fn a_relay_is_tried_soon_where_it_was_faster() {
        for (direct, from, to) in [(20, 10.0, 20.0), (2, 3.0, 8.0)] {
            let (mut overflow, began) = (Overflow::default(), Instant::now());
            let mut moved = (Bytes::ZERO, Bytes::ZERO);
            let mut first = None;
            for step in 0..400_u32 {
                let left = (Bytes(1 << 40), true);
                let is_needed = overflow.update(began + STEP * step, moved, left, None);
                first = first.or(is_needed.then_some(step));
                // The relay's alone for two seconds.
                let primary = if step < 20 { 0 } else { direct };
                moved.0 += Rate::mbit(primary) * Span::from(STEP);
                let relayed = step < 20 || is_needed;
                moved.1 += Rate::mbit(if relayed { 20 } else { 0 }) * Span::from(STEP);
            }
            let first = f64::from(first.expect("it is tried")) / 10.0;
            assert!((from..to).contains(&first), "{direct} Mbit/s: after {first} s");
        }
    }

    /// What routes have moved is no longer counted once they are removed.
    #[test]
    fn routes_that_go_take_their_counts_along() {
        let (mut overflow, began) = (Overflow::default(), Instant::now());
        for (step, moved) in [0, 1_000, 2_000, 0, 500, 700].into_iter().enumerate() {
            let now = began + STEP * u32::try_from(step).unwrap();
            let moved = (Bytes::ZERO, Bytes(moved));
            assert!(!overflow.update(now, moved, (Bytes(1 << 40), true), None));
        }
    }

    /// As a relay has it whose path begins with the line of the direct one.
    #[test]
    fn overflow_that_adds_nothing_is_left_after_a_trial_and_seldom_tried_again() {
        let (rate, shared) = (Rate::mbit(20), (Rate::mbit(10), Rate::mbit(10)));
        let (is_needed, used) = needed(rate, shared, (Bytes(1 << 40), None), 20);
        assert!(!is_needed && (30..=40).contains(&used), "{used} steps in one trial");
        let (_, used) = needed(rate, shared, (Bytes(1 << 40), None), 600);
        assert!(used < 6 * 40, "{used} steps in ten minutes");
        // A little less would be worth it.
        assert!(needed(rate, (Rate::mbit(10), Rate::mbit(7)), (Bytes(1 << 40), None), 20).0);
    }
}
