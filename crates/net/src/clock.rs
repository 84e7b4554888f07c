//! Timers of the runtime for times of the cores.

use sys::clock::Clock;
use units::{Span, Time};

/// The instant to sleep until for `time` of a clock; half a millisecond early, because the
/// runtime's timers round up to whole ones.
#[must_use]
pub fn timer(clock: Clock, time: Time) -> tokio::time::Instant {
    clock.instant(time - Span::from_micros(500)).into()
}
