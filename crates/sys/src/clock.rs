//! Real time as the cores' time, and whether the system's clock is synchronised.

use std::io;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use units::{Span, Time};

/// Counts from a beginning, on the system's monotonic clock, which all processes of a machine
/// share and which `Instant` reads as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// On the system's clock.
    began: Time,
}

impl Clock {
    /// The system's clock itself, for times that processes tell each other.
    pub const SYSTEM: Clock = Clock { began: Time::ZERO };

    /// Begins now.
    #[must_use]
    pub fn start() -> Clock {
        Clock::beginning_at(Clock::SYSTEM.now())
    }

    /// Begins at this time of [`Clock::SYSTEM`]. Before, it shows zero.
    #[must_use]
    pub const fn beginning_at(began: Time) -> Clock {
        Clock { began }
    }

    /// The time since the beginning.
    #[must_use]
    pub fn now(self) -> Time {
        let read = clock_gettime(ClockId::Monotonic);
        let part = |n: i64| u64::try_from(n).unwrap_or(0);
        let since = Span::from_secs(part(read.tv_sec)) + Span::from_nanos(part(read.tv_nsec));
        self.of(Clock::SYSTEM, Time::ZERO + since)
    }

    /// What this clock shows when `other` shows `time`.
    #[must_use]
    pub fn of(self, other: Clock, time: Time) -> Time {
        Time::ZERO + (time + (other.began - Time::ZERO)).since(self.began)
    }

    /// What this clock shows at an instant.
    #[must_use]
    pub fn time(self, instant: Instant) -> Time {
        let (now, of_now) = (Instant::now(), self.now());
        match instant.checked_duration_since(now) {
            Some(ahead) => of_now + Span::from(ahead),
            None => of_now - Span::from(now - instant),
        }
    }

    /// The instant at which this clock shows `time`; for one in the past, the present.
    #[must_use]
    pub fn instant(self, time: Time) -> Instant {
        Instant::now() + Duration::from(time - self.now())
    }
}

/// Whether an NTP client or the hypervisor keeps the clock synchronised (adjtimex(2)).
///
/// # Errors
/// The error of adjtimex, which a sandbox may forbid.
pub fn is_synchronised() -> io::Result<bool> {
    // SAFETY: zeroes are a valid `timex`, and with no mode set the kernel changes nothing but what
    // it writes into it.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    if state < 0 { Err(io::Error::last_os_error()) } else { Ok(state != libc::TIME_ERROR) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_with_different_beginnings_agree() {
        let second = Span::from_secs(1);
        let early = Clock::beginning_at(Time::ZERO + second * 10);
        let late = Clock::beginning_at(Time::ZERO + second * 12);
        assert_eq!(late.of(early, Time::ZERO + second * 5), Time::ZERO + second * 3);
        assert_eq!(early.of(late, Time::ZERO + second * 3), Time::ZERO + second * 5);
        assert_eq!(late.of(early, Time::ZERO + second), Time::ZERO, "before it began");
    }

    #[test]
    fn an_instant_and_its_time_are_the_same() {
        let clock = Clock::start();
        let before = Instant::now();
        let time = clock.now();
        let after = Instant::now();
        // Each conversion compares two readings, between which the thread may be suspended.
        let reading = || {
            let began = Instant::now();
            let times = (clock.time(before), clock.time(after));
            (began.elapsed() < Duration::from_millis(1)).then_some(times)
        };
        let (earliest, latest) = std::iter::repeat_with(reading).flatten().next().unwrap();
        let slack = Span::from_millis(1);
        assert!(earliest <= time + slack && time <= latest + slack, "{earliest} {time} {latest}");
        let ahead = clock.instant(time + Span::from_secs(60));
        assert!(ahead > before && ahead < Instant::now() + Duration::from_secs(61));
    }
}
