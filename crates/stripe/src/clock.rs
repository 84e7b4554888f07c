//! The driver's clock, and the kernel's arrival times on it.

#[cfg(test)]
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sys::clock::Clock;
use units::{Span, Time};

/// How long the distance of the two clocks is believed: the wall clock may be stepped.
const RECHECK: Span = Span::from_millis(100);
/// The most by which an arrival time may lie in the past; older ones are the wall clock's doing.
const MOST_LATE: Span = Span::from_millis(200);

/// Nanoseconds since the endpoint began.
#[derive(Debug)]
pub(crate) struct StampedClock {
    source: Source,
    /// What the wall clock shows less what this one does, and when that was found.
    wall: Option<(Duration, Time)>,
}

#[derive(Debug)]
enum Source {
    System(Clock),
    /// Virtual time, in nanoseconds.
    #[cfg(test)]
    Set(Arc<AtomicU64>),
}

impl StampedClock {
    pub(crate) fn new() -> StampedClock {
        StampedClock { source: Source::System(Clock::start()), wall: None }
    }

    /// A clock that shows what a test sets.
    #[cfg(test)]
    pub(crate) fn set_by(nanos: Arc<AtomicU64>) -> StampedClock {
        StampedClock { source: Source::Set(nanos), wall: None }
    }

    pub(crate) fn now(&self) -> Time {
        match &self.source {
            Source::System(clock) => clock.now(),
            #[cfg(test)]
            Source::Set(nanos) => Time::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// What the clock that all endpoints share shows when this one shows `time`.
    pub(crate) fn shared(&self, time: Time) -> Time {
        match &self.source {
            Source::System(clock) => Clock::SYSTEM.of(*clock, time),
            #[cfg(test)]
            Source::Set(_) => time,
        }
    }

    /// What this clock shows when the shared one shows `time`.
    pub(crate) fn own(&self, time: Time) -> Time {
        match &self.source {
            Source::System(clock) => clock.of(Clock::SYSTEM, time),
            #[cfg(test)]
            Source::Set(_) => time,
        }
    }

    /// When a datagram arrived that the kernel stamped with the wall clock: `now` or some time
    /// before.
    pub(crate) fn arrival(&mut self, now: Time, stamp: Option<Duration>) -> Time {
        #[cfg(test)]
        if let Source::Set(_) = self.source {
            return now;
        }
        let Some(stamp) = stamp else { return now };
        let distance = match self.wall {
            Some((distance, at)) if now.since(at) < RECHECK => distance,
            _ => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let distance = wall.saturating_sub(Duration::from_nanos(self.now().as_nanos()));
                self.wall = Some((distance, now));
                distance
            }
        };
        let Some(arrived) = stamp.checked_sub(distance) else { return now };
        let arrived = Time::from_nanos(u64::try_from(arrived.as_nanos()).unwrap_or(u64::MAX));
        if arrived > now || now.since(arrived) > MOST_LATE { now } else { arrived }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall() -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
    }

    #[test]
    fn stamps_of_the_wall_clock_become_times_of_this_one() {
        let mut clock = StampedClock::new();
        std::thread::sleep(Duration::from_millis(20));
        let stamp = wall();
        let sent = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        let now = clock.now();
        let arrived = clock.arrival(now, Some(stamp));
        let apart = if arrived > sent { arrived.since(sent) } else { sent.since(arrived) };
        assert!(apart < Span::from_millis(2), "{apart}");
        assert!(now.since(arrived) >= Span::from_millis(4));
    }

    #[test]
    fn stamps_of_a_clock_that_was_stepped_do_not_count() {
        let mut clock = StampedClock::new();
        std::thread::sleep(Duration::from_millis(1));
        let now = clock.now();
        for stamp in
            [wall() + Duration::from_secs(60), wall().saturating_sub(Duration::from_secs(60))]
        {
            assert_eq!(clock.arrival(now, Some(stamp)), now);
        }
        assert_eq!(clock.arrival(now, None), now);
    }
}
