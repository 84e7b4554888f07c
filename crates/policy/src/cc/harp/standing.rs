//! What a path of a background sender is like: for people, and for whoever measures lines.

use units::{Bytes, Span, SubflowId, Time};

use super::{Harp, HarpPath};
use crate::cc::DelayRange;

/// A window below this share of what the path carried at best leaves the rest to others. Alone it
/// is above it: a decrease takes an eighth of a window that has grown beyond the path.
const BACKED_OFF: f64 = 0.75;
/// The longest time from one acknowledgement to the next that counts: beyond it nothing was sent.
const LONGEST: Span = Span::from_secs(2);

/// A path of a background sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HarpStanding {
    /// What may be in flight.
    pub window: Bytes,
    /// What was in flight at best, in the last minutes; the window over it is the share of the line
    /// that the sender has.
    pub extent: Bytes,
    /// The range of delays, from an arbitrary origin: the difference is the longest queue that was
    /// seen. `None` before the first one.
    pub delays: Option<(Span, Span)>,
    /// Whether others have the line: the window is below three quarters of its extent.
    pub is_backed_off: bool,
    /// For how long that was so, in all.
    pub backed_off: Span,
}

/// For how long a path has left the line to others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BackOff {
    is_on: bool,
    noted: Option<Time>,
    sum: Span,
}

impl BackOff {
    /// Bytes arrived with a window of so many times its extent.
    fn handle_share(&mut self, now: Time, share: f64) {
        let since = self.noted.replace(now).map_or(Span::ZERO, |noted| now.since(noted));
        if self.is_on && since <= LONGEST {
            self.sum += since;
        }
        self.is_on = share < BACKED_OFF;
    }

    /// Nothing is sent for a time, which does not count.
    pub(super) fn handle_pause(&mut self) {
        self.noted = None;
    }
}

impl Harp {
    /// What a path is like at present; `None` for one that is unknown.
    #[must_use]
    pub fn standing(&self, id: SubflowId) -> Option<HarpStanding> {
        let path = self.path(id)?;
        Some(HarpStanding {
            window: bytes(path.allowed()),
            extent: bytes(path.extent.known()),
            delays: path.lateness.range(),
            is_backed_off: path.back_off.is_on,
            backed_off: path.back_off.sum,
        })
    }
}

impl HarpPath {
    /// Notes whether the path leaves the line to others. In slow start it does not know.
    pub(super) fn note_back_off(&mut self, now: Time) {
        let share = if self.in_slow_start { 1.0 } else { self.window / self.extent.known() };
        self.back_off.handle_share(now, share);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive")]
fn bytes(window: f64) -> Bytes {
    Bytes(window as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_with_less_than_three_quarters_is_counted() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut back_off = BackOff::default();
        back_off.handle_share(at(0), 1.0);
        back_off.handle_share(at(1_000), 0.5);
        assert_eq!((back_off.is_on, back_off.sum), (true, Span::ZERO));
        back_off.handle_share(at(1_500), 0.5);
        back_off.handle_share(at(2_000), 0.8);
        assert_eq!((back_off.is_on, back_off.sum), (false, Span::from_secs(1)));
        back_off.handle_share(at(2_100), 0.1);
        // Nothing was sent meanwhile.
        back_off.handle_share(at(9_000), 0.1);
        back_off.handle_pause();
        back_off.handle_share(at(9_500), 0.1);
        assert_eq!(back_off.sum, Span::from_secs(1));
    }
}
