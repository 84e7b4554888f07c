//! How often strangers may try a nameplate: a core, whose caller has the clock.
//!
//! Whoever sweeps nameplates costs the hosts behind them their codes' tries. So few attempts are
//! let through that a sweep takes weeks, and those of one address are fewer still.

use std::collections::VecDeque;

use units::{Span, Time};

use crate::bounds::{KNOCKS_EACH, KNOCKS_IN_ALL};

/// The time over which attempts are counted.
const WINDOW: Span = Span::from_secs(60);

/// The attempts of the last minute.
#[derive(Debug, Default)]
pub struct Knocks {
    /// Each with the block of addresses that it came from, oldest first.
    recent: VecDeque<(Time, u64)>,
}

impl Knocks {
    /// Whether a further attempt from a block of addresses is let through, which counts then. One
    /// that is not costs nobody else anything.
    pub fn admit(&mut self, now: Time, block: u64) -> bool {
        while self.recent.front().is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.recent.pop_front();
        }
        let own = self.recent.iter().filter(|(_, other)| *other == block).count();
        let is_admitted = own < KNOCKS_EACH && self.recent.len() < KNOCKS_IN_ALL;
        if is_admitted {
            self.recent.push_back((now, block));
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn an_address_has_three_attempts_a_minute_and_takes_nobody_elses() {
        let mut knocks = Knocks::default();
        let admitted = (0..1_000).filter(|_| knocks.admit(at(1), 7)).count();
        assert_eq!(admitted, KNOCKS_EACH);
        assert!(knocks.admit(at(1), 8), "another address");
        assert!(!knocks.admit(at(60), 7));
        assert!(knocks.admit(at(61), 7), "a minute later");
    }

    #[test]
    fn all_addresses_together_have_thirty() {
        let mut knocks = Knocks::default();
        let mut admitted = 0;
        for minute in 0..10 {
            for block in 0..1_000 {
                admitted += usize::from(knocks.admit(at(60 * minute), block));
            }
        }
        assert_eq!(admitted, 10 * KNOCKS_IN_ALL);
        assert!(knocks.recent.len() <= KNOCKS_IN_ALL, "no more is remembered");
    }
}
