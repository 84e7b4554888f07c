//! When all senders at a bottleneck let its queue drain: at the same instants of the clock, so that
//! each sees the path without the queue of the others.

use units::{Span, Time};

/// The least number of round trips from one drain to the next.
const TRIPS: f64 = 40.0;
/// The drains of which paths with long round trips take part in one.
const NUMBERS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// The first drain after `now`; `None` with an interval of zero.
pub(super) fn next(now: Time, interval: Span) -> Option<Time> {
    let nanos = interval.as_nanos();
    let passed = now.since(Time::ZERO).as_nanos().checked_rem(nanos)?;
    Some(now + Span::from_nanos(nanos - passed))
}

/// The number of the drain at `now`, since the clock began.
pub(super) fn number(now: Time, interval: Span) -> u64 {
    now.since(Time::ZERO).as_nanos().checked_div(interval.as_nanos()).unwrap_or(0)
}

/// Of a path with this round-trip time, in seconds, one drain in so many takes place: 40 round
/// trips are to pass in between, because a drain takes two or three. A power of two, so that its
/// drains are also drains of all paths with shorter round trips.
pub(super) fn fewer(interval: Span, average: f64) -> u64 {
    let intervals = TRIPS * average / interval.as_secs_f64();
    let [.., most] = NUMBERS;
    u64::from(NUMBERS.into_iter().find(|n| f64::from(*n) >= intervals).unwrap_or(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_are_at_multiples_of_the_interval() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let ten = Span::from_secs(10);
        assert_eq!(next(at(0), ten), Some(at(10_000)));
        assert_eq!(next(at(9_999), ten), Some(at(10_000)));
        assert_eq!(next(at(10_000), ten), Some(at(20_000)));
        assert_eq!(next(at(10_000), Span::ZERO), None);
    }

    #[test]
    fn long_round_trips_take_part_in_fewer_drains() {
        let ten = Span::from_secs(10);
        assert_eq!(
            [0.1, 0.25, 0.3, 0.6, 1.0, 60.0].map(|rtt| fewer(ten, rtt)),
            [1, 1, 2, 4, 4, 32]
        );
        assert_eq!(number(Time::ZERO + Span::from_secs(30), ten), 3);
    }
}
