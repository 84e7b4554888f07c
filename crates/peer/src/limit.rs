//! An upper bound of a rate that several paths share.

use std::sync::Mutex;

use units::{Bytes, Rate, Span, Time, TokenBucket};

use crate::PathClass;

/// Sends are free until the bucket is overdrawn; then all paths wait until it is level again.
///
/// Overflow paths get the rate that the others leave: they wait until the bound was not used up for
/// a while, and the others never wait for bytes of overflow paths.
#[derive(Debug)]
pub struct Limit {
    state: Mutex<LimitState>,
}

#[derive(Clone, Copy, Debug)]
struct LimitState {
    /// `None`: no bound.
    rate: Option<Rate>,
    /// The bytes of all but overflow paths.
    first: TokenBucket,
    /// All bytes.
    all: TokenBucket,
}

/// Lead that sends may have: the time that the runtime's timers oversleep.
const BURST: Span = Span::from_millis(5);
/// Lag of all sends together before overflow paths may send: more than the lag of the other paths
/// from waking up late.
const LEFT_OVER: Span = Span::from_millis(20);
/// The largest lag: unused rate is not saved for longer.
const MOST_LEFT_OVER: Span = Span::from_millis(100);

impl Limit {
    /// A bound of `rate`; `None` is no bound.
    #[must_use]
    pub fn new(rate: Option<Rate>) -> Limit {
        let (first, all) = (TokenBucket::default(), TokenBucket::default());
        Limit { state: Mutex::new(LimitState { rate, first, all }) }
    }

    /// Changes the bound; overdrawn bytes remain so. Returns whether it differs from the last one.
    pub fn set(&self, now: Time, rate: Option<Rate>) -> bool {
        let mut state = self.state.lock().expect("no panic while held");
        if state.rate == rate {
            return false;
        }
        let convert = |bucket: TokenBucket| bucket.at_rate(now, state.rate, rate);
        *state = LimitState { rate, first: convert(state.first), all: convert(state.all) };
        true
    }

    /// The bound; `None` if there is none.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.state.lock().expect("no panic while held").rate
    }

    /// The time at which a path of that class may send next; `None` if it may at once.
    pub fn until(&self, now: Time, class: PathClass) -> Option<Time> {
        let LimitState { rate, first, all } = *self.state.lock().expect("no panic while held");
        rate?;
        let ready_at = match class {
            PathClass::Overflow => all.paid_at() + LEFT_OVER,
            PathClass::Primary | PathClass::Backup | PathClass::Background => {
                first.ready_at(now, BURST)
            }
        };
        Some(ready_at).filter(|at| *at > now)
    }

    /// Charges `bytes` that a path of that class sends.
    pub fn spend(&self, now: Time, class: PathClass, bytes: Bytes) {
        let mut state = self.state.lock().expect("no panic while held");
        let Some(rate) = state.rate else { return };
        let span = bytes / rate;
        if class != PathClass::Overflow {
            state.first.take(now, Span::ZERO, span);
        }
        state.all.take(now, MOST_LEFT_OVER, span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathClass::{Overflow, Primary};

    const CHUNK: Bytes = Bytes(16_384);

    /// The bytes that a primary of rate `line` and an unbounded overflow path send in the ten
    /// seconds from `from` on.
    fn ten_seconds(limit: &Limit, from: Time, line: Rate) -> (Bytes, Bytes) {
        let (mut primary, mut overflow) = (Bytes::ZERO, Bytes::ZERO);
        let mut line_free = from;
        for millis in 0..10_000 {
            let now = from + Span::from_millis(millis);
            while line_free <= now && limit.until(now, Primary).is_none() {
                limit.spend(now, Primary, CHUNK);
                primary += CHUNK;
                line_free = line_free.max(now - Span::from_millis(1)) + CHUNK / line;
            }
            while limit.until(now, Overflow).is_none() {
                limit.spend(now, Overflow, CHUNK);
                overflow += CHUNK;
            }
        }
        (primary, overflow)
    }

    fn later(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn over_time_the_rate_holds() {
        let limit = Limit::new(Some(Rate::mbit(8)));
        let (sent, _) = ten_seconds(&limit, later(1), Rate::mbit(1_000));
        assert!((10_000_000..10_200_000).contains(&sent.0), "{sent} in ten seconds at 1 MB/s");
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let limit = Limit::new(Some(Rate::mbit(8)));
        limit.spend(later(100), Primary, Bytes(100_000));
        assert_eq!(limit.until(later(100), Primary), Some(later(100) + Span::from_millis(95)));
    }

    #[test]
    fn overflow_gets_nothing_while_others_use_all() {
        let limit = Limit::new(Some(Rate::mbit(8)));
        let (primary, overflow) = ten_seconds(&limit, later(1), Rate::mbit(20));
        assert!(primary.0 >= 10_000_000, "{primary}");
        assert!(
            overflow.0 <= 120_000,
            "{overflow}: no more than what was left over before the first send"
        );
    }

    #[test]
    fn overflow_gets_what_is_left() {
        let limit = Limit::new(Some(Rate::mbit(8)));
        let (primary, overflow) = ten_seconds(&limit, later(1), Rate::mbit(6));
        assert!(
            (7_400_000..7_600_000).contains(&primary.0),
            "all that its line carries: {primary}"
        );
        let both = (primary + overflow).0;
        assert!((9_900_000..10_200_000).contains(&both), "{overflow}");
    }

    #[test]
    fn a_new_rate_holds_at_once() {
        let limit = Limit::new(Some(Rate::mbit(1)));
        limit.spend(later(1), Primary, Bytes(125_000));
        assert!(limit.set(later(1), Some(Rate::mbit(8))));
        assert_eq!(
            limit.until(later(1), Primary),
            Some(later(1) + Span::from_millis(120)),
            "a second became an eighth"
        );
        assert!(limit.set(later(1), None));
        assert!(!limit.set(later(1), None));
        assert_eq!(limit.until(later(1), Primary), None);
        assert!(limit.set(later(2), Some(Rate::mbit(8))));
        assert_eq!(
            limit.until(later(2), Primary),
            None,
            "nothing is owed from the time without a bound"
        );
    }
}
