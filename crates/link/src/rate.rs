//! Rates over time: piecewise constant, listed in advance or redrawn from a seed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Rate, Seed, Span, Time};

use crate::opportunities::Opportunities;

/// A rate over time, determined by the seed.
#[derive(Clone, Debug, PartialEq)]
pub struct RatePlan {
    /// The rate until the first change, and before the schedule starts.
    pub base: Rate,
    /// Later rates, in order of time.
    pub changes: Vec<Change>,
    /// Scales the rate by a random factor that is redrawn periodically.
    pub redraw: Option<Redraw>,
    /// The link sends at these times only; `base` is their mean rate, and `changes` and `redraw`
    /// are ignored. [`RatePlan::opportunities`] makes such a plan.
    pub opportunities: Option<Arc<Opportunities>>,
}

/// From `at` after the schedule's start on, the rate is `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The time after the schedule's start.
    pub at: Span,
    /// The rate from then on.
    pub rate: Rate,
}

/// A factor drawn uniformly from `from..to` at the start and every `every` after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redraw {
    /// Time between draws.
    pub every: Span,
    /// The smallest factor.
    pub from: f64,
    /// The largest factor.
    pub to: f64,
    /// The seed of the draws; both directions of a link may share it.
    pub seed: Seed,
}

impl RatePlan {
    /// A constant rate.
    #[must_use]
    pub fn constant(rate: Rate) -> RatePlan {
        RatePlan { base: rate, changes: Vec::new(), redraw: None, opportunities: None }
    }

    /// A link that sends at these times only.
    #[must_use]
    pub fn opportunities(trace: Opportunities) -> RatePlan {
        let mean = trace.mean();
        RatePlan { opportunities: Some(Arc::new(trace)), ..RatePlan::constant(mean) }
    }

    /// Whether the rate never changes.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.changes.is_empty() && self.redraw.is_none() && self.opportunities.is_none()
    }

    /// A cursor over the pieces. Until [`RateCursor::start`], the first piece has no end.
    #[must_use]
    pub fn cursor(&self) -> RateCursor {
        RateCursor::new(self.clone())
    }
}

/// Walks a [`RatePlan`] piece by piece. The bytes of a delivery opportunity are spread over the
/// time before it.
#[derive(Clone, Debug)]
pub struct RateCursor {
    plan: RatePlan,
    rng: Option<Xoshiro256PlusPlus>,
    factor: f64,
    base: Rate,
    next_change: usize,
    next_redraw: Span,
    /// The number of the next time of the trace.
    next_moment: u64,
    epoch: Option<Time>,
    rate: Rate,
    until: Option<Time>,
}

impl RateCursor {
    fn new(plan: RatePlan) -> RateCursor {
        let mut cursor = RateCursor {
            rng: plan.redraw.map(|redraw| Xoshiro256PlusPlus::seed_from_u64(redraw.seed.0)),
            factor: 1.0,
            base: plan.base,
            next_change: 0,
            next_redraw: plan.redraw.map_or(Span::ZERO, |redraw| redraw.every),
            next_moment: 0,
            epoch: None,
            rate: plan.base,
            until: None,
            plan,
        };
        cursor.draw();
        cursor.settle();
        cursor
    }

    /// Sets time zero of the plan.
    pub fn start(&mut self, at: Time) {
        self.epoch = Some(at);
        self.settle();
    }

    /// Time zero of the plan; `None` before the start.
    #[must_use]
    pub fn epoch(&self) -> Option<Time> {
        self.epoch
    }

    /// The current piece's rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The end (exclusive) of the current piece; `None` if it has none.
    #[must_use]
    pub fn until(&self) -> Option<Time> {
        self.until
    }

    /// Advances to the piece that contains `now`; never back.
    pub fn seek(&mut self, now: Time) {
        while self.until.is_some_and(|until| until <= now) {
            self.advance();
        }
    }

    /// Advances to the next piece.
    pub fn advance(&mut self) {
        let (Some(epoch), Some(until)) = (self.epoch, self.until) else { return };
        let at = until - epoch;
        self.next_moment += 1;
        while let Some(change) =
            self.plan.changes.get(self.next_change).filter(|change| change.at <= at)
        {
            self.base = change.rate;
            self.next_change += 1;
        }
        if let Some(redraw) = self.plan.redraw
            && self.next_redraw <= at
        {
            self.draw();
            self.next_redraw += redraw.every;
        }
        self.settle();
    }

    fn draw(&mut self) {
        let (Some(redraw), Some(rng)) = (self.plan.redraw, &mut self.rng) else { return };
        self.factor = redraw.from + (redraw.to - redraw.from) * unit(rng);
    }

    fn settle(&mut self) {
        if let (Some(trace), Some(epoch)) = (&self.plan.opportunities, self.epoch) {
            if trace.moment(self.next_moment).0 == Span::ZERO {
                self.next_moment += 1;
            }
            self.rate = trace.rate_before(self.next_moment);
            self.until = comes(epoch + trace.moment(self.next_moment).0);
            return;
        }
        self.rate = match self.plan.redraw {
            Some(_) => Rate::from_bits_f64(self.base.as_f64() * self.factor),
            None => self.base,
        };
        let change = self.plan.changes.get(self.next_change).map(|change| change.at);
        let redraw = self.plan.redraw.map(|_| self.next_redraw);
        let next = match (change, redraw) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.until = self.epoch.zip(next).and_then(|(epoch, next)| comes(epoch + next));
    }
}

/// Sums of times saturate at the largest time. An event there never happens; otherwise it would
/// repeat without end.
fn comes(at: Time) -> Option<Time> {
    Some(at).filter(|at| *at < Time::from_nanos(u64::MAX))
}

/// A number from 0 (inclusive) to 1 (exclusive), from the upper 53 bits.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
pub(crate) fn unit(rng: &mut Xoshiro256PlusPlus) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn pieces_follow_the_list() {
        let plan = RatePlan {
            changes: vec![
                Change { at: Span::from_secs(2), rate: Rate::ZERO },
                Change { at: Span::from_secs(3), rate: Rate::mbit(4) },
            ],
            ..RatePlan::constant(Rate::mbit(8))
        };
        let mut cursor = plan.cursor();
        assert_eq!((cursor.rate(), cursor.until()), (Rate::mbit(8), None), "it has not started");
        let start = Time::from_nanos(500);
        cursor.start(start);
        assert_eq!(cursor.until(), Some(start + Span::from_secs(2)));
        cursor.advance();
        assert_eq!((cursor.rate(), cursor.until()), (Rate::ZERO, Some(start + Span::from_secs(3))));
        cursor.seek(start + Span::from_secs(9));
        assert_eq!((cursor.rate(), cursor.until()), (Rate::mbit(4), None));
    }

    #[test]
    fn redraws_beyond_the_end_of_time_do_not_hang() {
        let redraw =
            Redraw { every: Span::from_secs(18_446_744_073), from: 0.2, to: 1.0, seed: Seed(3) };
        let plan = RatePlan { redraw: Some(redraw), ..RatePlan::constant(Rate::mbit(10)) };
        let mut cursor = plan.cursor();
        cursor.start(Time::ZERO);
        cursor.seek(Time::from_nanos(u64::MAX));
        assert_eq!(cursor.until(), None, "the second redraw never comes");
    }

    #[test]
    fn redraws_stay_within_bounds_and_repeat() {
        let redraw = Redraw { every: Span::from_secs(1), from: 0.2, to: 1.0, seed: Seed(3) };
        let plan = RatePlan { redraw: Some(redraw), ..RatePlan::constant(Rate::mbit(10)) };
        let draw = || -> Vec<u64> {
            let mut cursor = plan.cursor();
            cursor.start(Time::ZERO);
            (0..100)
                .map(|n| {
                    cursor.seek(Time::ZERO + Span::from_secs(n));
                    cursor.rate().as_bits()
                })
                .collect()
        };
        let rates = draw();
        assert!(rates.iter().all(|rate| (2_000_000..10_000_000).contains(rate)));
        assert!(rates.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(rates, draw());
    }
}
