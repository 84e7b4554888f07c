//! The one place where real time becomes the cores' time.

use std::time::{Duration, Instant};

use units::Time;

/// A clock that counts from its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The instant to sleep until for `time`; half a millisecond early, because the runtime's
    /// timers round up to whole ones.
    #[must_use]
    pub fn instant(self, time: Time) -> tokio::time::Instant {
        (self.start + Duration::from_nanos(time.as_nanos().saturating_sub(500_000))).into()
    }
}
