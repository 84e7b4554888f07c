//! Which refusals are reported: strangers may come in any number.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::display_address;

/// Refusals that are reported at once, ...
const BURST: u32 = 5;
/// ... and one more after each such time.
const EVERY: Duration = Duration::from_secs(10);

/// Chooses the refusals to report: five at once, and one more every ten seconds.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Recent reports, at most [`BURST`]; each [`EVERY`] takes one off.
    recent: u32,
    /// The time since which none was taken off.
    since: Option<Instant>,
    /// Refusals that were not reported.
    silent: u64,
}

impl Refusals {
    /// Whether to report a refusal; the number of unreported ones before it.
    pub fn note(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().expect("no panic while held");
        let since = *state.since.get_or_insert(now);
        let faded = (now.saturating_duration_since(since).as_nanos() / EVERY.as_nanos())
            .min(u128::from(state.recent));
        let faded = u32::try_from(faded).expect("at most `recent`");
        state.recent -= faded;
        state.since = Some(if state.recent == 0 { now } else { since + EVERY * faded });
        if state.recent == BURST {
            state.silent += 1;
            return None;
        }
        state.recent += 1;
        Some(std::mem::take(&mut state.silent))
    }
}

/// What is said of a refusal: who was refused and why, and how many earlier ones were not reported.
#[must_use]
pub fn refusal_text(from: SocketAddr, reason: &str, unreported: u64) -> String {
    let before = match unreported {
        0 => String::new(),
        count => format!(" ({count} others before it)"),
    };
    format!("{} was refused: {reason}{before}", display_address(from))
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
