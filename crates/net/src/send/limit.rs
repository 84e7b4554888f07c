//! An upper bound of a rate, shared by whoever must keep it together: a token bucket.

use std::sync::Mutex;

use units::{Bytes, Rate, Span, Time};

/// Sends are free until the bucket is overdrawn; then everybody waits until it is level again.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: Rate,
    /// When what was spent so far is paid off.
    level: Mutex<Time>,
}

/// How far ahead of time sends may be: what the runtime's timers oversleep.
const BURST: Span = Span::from_millis(5);

impl Limit {
    pub(crate) fn new(rate: Rate) -> Limit {
        Limit { rate, level: Mutex::new(Time::ZERO) }
    }

    /// When the next send is allowed, if it is not yet.
    pub(crate) fn until(&self, now: Time) -> Option<Time> {
        let level = *self.level.lock().expect("no panic while held");
        (level > now + BURST).then(|| level - BURST)
    }

    /// `bytes` are sent.
    pub(crate) fn spend(&self, now: Time, bytes: Bytes) {
        let mut level = self.level.lock().expect("no panic while held");
        *level = (*level).max(now) + bytes / self.rate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_time_the_rate_holds() {
        let limit = Limit::new(Rate::mbit(8));
        let (mut now, mut sent) = (Time::ZERO, Bytes::ZERO);
        while now < Time::ZERO + Span::from_secs(10) {
            if let Some(until) = limit.until(now) {
                now = until;
            } else {
                limit.spend(now, Bytes(65_536));
                sent += Bytes(65_536);
            }
        }
        assert!((10_000_000..10_200_000).contains(&sent.0), "{sent} in ten seconds at 1 MB/s");
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let limit = Limit::new(Rate::mbit(8));
        let later = Time::ZERO + Span::from_secs(100);
        limit.spend(later, Bytes(100_000));
        assert_eq!(limit.until(later), Some(later + Span::from_millis(95)));
    }
}
