//! Which refusals are reported: strangers may come in any number.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Refusals that are reported at once, ...
const BURST: u32 = 5;
/// ... and one more after each such time.
const EVERY: Duration = Duration::from_secs(10);

/// Chooses the refusals to report.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Reports that may follow at once, below [`BURST`] by this number.
    used: u32,
    /// The time from which `used` falls.
    since: Option<Instant>,
    /// Refusals that were not reported.
    silent: u64,
}

impl Refusals {
    /// Whether to report a refusal; the number of unreported ones before it.
    pub(super) fn note(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().expect("no panic while held");
        let since = *state.since.get_or_insert(now);
        let refilled = (now.saturating_duration_since(since).as_nanos() / EVERY.as_nanos())
            .min(u128::from(state.used));
        let refilled = u32::try_from(refilled).expect("at most `used`");
        state.used -= refilled;
        state.since = Some(if state.used == 0 { now } else { since + EVERY * refilled });
        if state.used == BURST {
            state.silent += 1;
            return None;
        }
        state.used += 1;
        Some(std::mem::take(&mut state.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_reported_at_once_and_then_one_every_ten_seconds() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let mut reported = Vec::new();
        // 100 a second for 25 seconds.
        for number in 0..2_500 {
            let millis = number * 10;
            if let Some(silent) = refusals.note(start + Duration::from_millis(millis)) {
                reported.push((millis, silent));
            }
        }
        let burst: Vec<(u64, u64)> = (0..5).map(|number| (number * 10, 0)).collect();
        assert_eq!(reported[..5], burst);
        assert_eq!(reported[5..], [(10_000, 995), (20_000, 999)]);
        // After a quiet minute, five again.
        let later = start + Duration::from_secs(90);
        assert_eq!(refusals.note(later), Some(499));
        assert_eq!((0..9).filter(|_| refusals.note(later).is_some()).count(), 4);
    }
}
