//! The time of a run, on the monotonic clock that all processes of a machine share.

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The system's monotonic clock, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// The time since the begin of the run, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begin: u64,
}

impl Clock {
    /// A clock that begins at this time of [`monotonic`].
    pub(crate) fn new(begin: u64) -> Clock {
        Clock { begin }
    }

    /// Zero before the begin.
    pub(crate) fn now(self) -> u64 {
        monotonic().saturating_sub(self.begin)
    }

    pub(crate) fn sleep_until(self, at: u64) {
        let at = self.begin + at;
        while let left @ 1.. = at.saturating_sub(monotonic()) {
            thread::sleep(Duration::from_nanos(left));
        }
    }
}

/// Lets the calling thread sleep to the nanosecond, in place of the usual 50 µs of slack.
pub(crate) fn sleep_precisely() {
    // A failure leaves the slack.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
