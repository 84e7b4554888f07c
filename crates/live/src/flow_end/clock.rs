//! Sleeping until a time of the run.

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use sys::clock::Clock;
use units::{Span, Time};

/// Sleeps until the clock shows so many nanoseconds.
pub(crate) fn sleep_until(clock: Clock, at: u64) {
    loop {
        let left = Time::from_nanos(at) - clock.now();
        if left == Span::ZERO {
            return;
        }
        thread::sleep(Duration::from(left));
    }
}

/// Lets the calling thread sleep to the nanosecond, in place of the usual 50 µs of slack.
pub(crate) fn sleep_precisely() {
    // A failure leaves the slack.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
