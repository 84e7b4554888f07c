//! How long the oldest record of a stream has waited.

use std::collections::VecDeque;

use tokio::time::Instant;

/// Looks are so much of the longest wait apart, at least: there are a few hundred of them after a
/// week.
const RESOLUTION: u32 = 64;

/// How far a stream went at some times.
#[derive(Debug, Default)]
pub(super) struct Lag {
    /// When a stream had so many octets; both grow.
    looks: VecDeque<(Instant, u64)>,
    /// The time of the last look of which all is safe.
    passed: Option<Instant>,
}

impl Lag {
    /// The stream has `end` octets, of which those before `safe` are at the collector. Since when
    /// the first of the others has been there, as far as the looks tell; `None` if there is none.
    pub(super) fn look(&mut self, now: Instant, safe: u64, end: u64) -> Option<Instant> {
        while let Some(&(at, known)) = self.looks.front()
            && known <= safe
        {
            self.passed = Some(at);
            self.looks.pop_front();
        }
        if end <= safe {
            self.passed = None;
            return None;
        }
        let is_due = match (self.looks.front(), self.looks.back()) {
            (Some((first, _)), Some((last, known))) => {
                *known < end && now - *last >= (now - *first) / RESOLUTION
            }
            _ => true,
        };
        if is_due {
            // What came between looks came behind the last one.
            let since = if self.looks.is_empty() { self.passed.unwrap_or(now) } else { now };
            self.looks.push_back((since, end));
        }
        self.looks.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_oldest_record_is_the_first_one_that_is_not_safe() {
        let (mut lag, start) = (Lag::default(), Instant::now());
        assert_eq!(lag.look(start, 0, 0), None);
        assert_eq!(lag.look(start + SECOND, 0, 100), Some(start + SECOND));
        assert_eq!(lag.look(start + 2 * SECOND, 0, 100), Some(start + SECOND));
        assert_eq!(lag.look(start + 3 * SECOND, 50, 200), Some(start + SECOND));
        assert_eq!(lag.look(start + 4 * SECOND, 100, 200), Some(start + 3 * SECOND));
        assert_eq!(lag.look(start + 5 * SECOND, 200, 200), None);
    }

    #[test]
    fn a_long_outage_is_known_to_a_sixty_fourth() {
        let (mut lag, start) = (Lag::default(), Instant::now());
        for second in 1..=100_000_u32 {
            let at = start + second * SECOND;
            assert_eq!(lag.look(at, 0, u64::from(second)), Some(start + SECOND));
            assert!(lag.looks.len() < 600);
        }
        // It catches up.
        let now = start + 100_001 * SECOND;
        for safe in (0..100_000_u32).step_by(777) {
            let since = lag.look(now, u64::from(safe), 100_000).expect("there is more");
            let (age, known) = (now - since, now - (start + (safe + 1) * SECOND));
            assert!(age.abs_diff(known) <= 1_600 * SECOND, "{age:?} {known:?}");
        }
        assert_eq!(lag.look(now, 100_000, 100_000), None);
    }

    /// A stream that begins anew at the collector waits since it was looked at again.
    #[test]
    fn what_is_sent_again_waits_anew() {
        let (mut lag, start) = (Lag::default(), Instant::now());
        assert_eq!(lag.look(start, 0, 100), Some(start));
        assert_eq!(lag.look(start + SECOND, 100, 100), None);
        assert_eq!(lag.look(start + 2 * SECOND, 0, 100), Some(start + 2 * SECOND));
    }
}
