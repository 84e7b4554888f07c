//! A bound of what several connections send together.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use units::{Bytes, Rate};

/// How far those with a bound may be behind it and catch up: real timers are late.
const CATCH_UP: Duration = Duration::from_millis(2);
/// The longest time that a packet takes.
const LONGEST_PACKET: Duration = Duration::from_secs(3_600);

/// A bound of what all connections with it in their
/// [`Options::max_rate`](crate::Options::max_rate) send together. Copies are the same bound.
///
/// It counts UDP payloads, with what is sent again. Acknowledgements and probes count and do not
/// wait. Connections that have something to send take turns, a packet each.
///
/// ```
/// use stripe::{Options, TotalRate};
/// use units::Rate;
///
/// let total = TotalRate::new(Some(Rate::mbit(20)));
/// // All connections with these options share the bound, of one endpoint or of several.
/// let options = Options { max_rate: Some(total.clone()), ..Options::default() };
/// // At night:
/// total.set(None);
/// assert_eq!(options.max_rate.expect("it has one").rate(), None);
/// ```
#[derive(Clone, Debug)]
pub struct TotalRate(Arc<Mutex<Bucket>>);

#[derive(Debug)]
struct Bucket {
    rate: Option<Rate>,
    /// When all that was sent would have left at the rate.
    free_at: Instant,
}

impl TotalRate {
    /// A bound; `None`: none yet.
    #[must_use]
    pub fn new(rate: Option<Rate>) -> TotalRate {
        TotalRate(Arc::new(Mutex::new(Bucket { rate, free_at: Instant::now() })))
    }

    /// The bound at present.
    ///
    /// # Panics
    /// If a call did before.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.0.lock().expect("no panic while held").rate
    }

    /// Changes the bound, from the next packet on.
    ///
    /// # Panics
    /// If a call did before.
    pub fn set(&self, rate: Option<Rate>) {
        self.0.lock().expect("no panic while held").rate = rate;
    }

    /// Something was sent. Returns when its sender may send again: the others come between.
    pub(crate) fn take(&self, now: Instant, bytes: Bytes) -> Instant {
        let mut shared = self.0.lock().expect("no panic while held");
        let Some(rate) = shared.rate.filter(|rate| *rate > Rate::ZERO) else { return now };
        let time = Duration::from_nanos((bytes / rate).as_nanos()).min(LONGEST_PACKET);
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        shared.free_at = shared.free_at.max(earliest) + time;
        shared.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_take_turns() {
        let start = Instant::now();
        let total = TotalRate::new(Some(Rate::from_bits(8_000_000)));
        total.0.lock().unwrap().free_at = start;
        // A thousand bytes take a millisecond.
        let turns: Vec<Instant> = (0..4).map(|_| total.take(start, Bytes(1_000))).collect();
        let waits: Vec<_> = turns.iter().map(|at| (*at - start).as_micros()).collect();
        assert_eq!(waits, [1_000, 2_000, 3_000, 4_000]);
        // Who comes late may catch up with some, and not with an hour.
        let hour = Duration::from_secs(3_600);
        let turn = total.take(start + hour + CATCH_UP, Bytes(1_000));
        assert_eq!(turn, start + hour + Duration::from_millis(1));
        total.set(None);
        assert_eq!(total.take(start, Bytes(1_000)), start);
    }
}
