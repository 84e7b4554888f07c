//! What a relay was seen to carry.

use alloc::collections::VecDeque;

use units::{Bytes, Rate, Span, Time};

/// The time over which a rate is taken.
const WINDOW: Span = Span::from_secs(1);

/// The largest rate over one relay in the last minutes, of all sources together, as the collector
/// sees it: the relay's capacity, as far as it was ever used up.
#[derive(Clone, Debug)]
pub struct Peak {
    memory: Span,
    from: Time,
    sum: Bytes,
    /// Ends and rates of windows, the rates falling: a later window that is as fast replaces those
    /// before.
    rates: VecDeque<(Time, Rate)>,
}

impl Peak {
    /// Nothing was seen yet; rates are forgotten at the age of `memory`.
    #[must_use]
    pub fn new(memory: Span) -> Peak {
        Peak { memory, from: Time::ZERO, sum: Bytes::ZERO, rates: VecDeque::new() }
    }

    /// So much has arrived over the relay.
    pub fn handle_received(&mut self, now: Time, bytes: Bytes) {
        let elapsed = now - self.from;
        if elapsed >= WINDOW {
            let rate = self.sum / elapsed;
            while self.rates.back().is_some_and(|(_, before)| *before <= rate) {
                self.rates.pop_back();
            }
            self.rates.push_back((now, rate));
            (self.from, self.sum) = (now, Bytes::ZERO);
        }
        self.sum += bytes;
        while self.rates.front().is_some_and(|(at, _)| now - *at > self.memory) {
            self.rates.pop_front();
        }
    }

    /// The largest rate that is remembered; zero if nothing is known.
    #[must_use]
    pub fn highest(&self, now: Time) -> Rate {
        let is_fresh = |(at, _): &&(Time, Rate)| now - *at <= self.memory;
        self.rates.iter().find(is_fresh).map_or(Rate::ZERO, |(_, rate)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_known_until_it_ages() {
        let mut peak = Peak::new(Span::from_secs(10));
        let at = |secs: u64| Time::ZERO + Span::from_secs(secs);
        for (second, bytes) in [(1, 1_000), (2, 5_000), (3, 2_000), (4, 3_000), (5, 0)] {
            peak.handle_received(at(second), Bytes(bytes));
        }
        assert_eq!(peak.highest(at(5)), Rate::kbit(40));
        assert_eq!(peak.highest(at(13)), Rate::kbit(40));
        assert_eq!(peak.highest(at(14)), Rate::kbit(24));
        assert_eq!(peak.highest(at(16)), Rate::ZERO);
        assert_eq!(Peak::new(Span::from_secs(10)).highest(at(5)), Rate::ZERO);
    }
}
