//! What each relay was seen to carry: the capacities that the receiver tells.

use std::collections::VecDeque;

use units::{Bytes, Rate, Span, Time};

/// The time over which a rate is taken.
const WINDOW: Span = Span::from_secs(1);

/// The largest rate of each relay in the last minutes, of all sources together.
#[derive(Clone, Debug)]
pub(super) struct Peaks {
    memory: Span,
    relays: Vec<Peak>,
}

#[derive(Clone, Debug, Default)]
struct Peak {
    from: Time,
    sum: Bytes,
    /// Ends and rates of windows, the rates falling: a later window that is as fast replaces those
    /// before.
    rates: VecDeque<(Time, Rate)>,
}

impl Peaks {
    pub(super) fn new(relays: usize, memory: Span) -> Peaks {
        Peaks { memory, relays: vec![Peak::default(); relays] }
    }

    pub(super) fn handle_received(&mut self, now: Time, relay: usize, bytes: Bytes) {
        let peak = &mut self.relays[relay];
        let elapsed = now - peak.from;
        if elapsed >= WINDOW {
            let rate = peak.sum / elapsed;
            while peak.rates.back().is_some_and(|(_, before)| *before <= rate) {
                peak.rates.pop_back();
            }
            peak.rates.push_back((now, rate));
            (peak.from, peak.sum) = (now, Bytes::ZERO);
        }
        peak.sum += bytes;
        while peak.rates.front().is_some_and(|(at, _)| now - *at > self.memory) {
            peak.rates.pop_front();
        }
    }

    /// Zero if nothing is known.
    pub(super) fn highest(&self, now: Time, relay: usize) -> Rate {
        let is_fresh = |(at, _): &&(Time, Rate)| now - *at <= self.memory;
        self.relays[relay].rates.iter().find(is_fresh).map_or(Rate::ZERO, |(_, rate)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_known_until_it_ages() {
        let mut peaks = Peaks::new(2, Span::from_secs(10));
        let at = |secs: u64| Time::ZERO + Span::from_secs(secs);
        for (second, bytes) in [(1, 1_000), (2, 5_000), (3, 2_000), (4, 3_000), (5, 0)] {
            peaks.handle_received(at(second), 0, Bytes(bytes));
        }
        assert_eq!(peaks.highest(at(5), 0), Rate::kbit(40));
        assert_eq!(peaks.highest(at(13), 0), Rate::kbit(40));
        assert_eq!(peaks.highest(at(14), 0), Rate::kbit(24));
        assert_eq!(peaks.highest(at(16), 0), Rate::ZERO);
        assert_eq!(peaks.highest(at(5), 1), Rate::ZERO);
    }
}
