//! The delay that packets have for a while: a packet that is late alone is no queue of others.

use units::{Span, Time};

/// The time of which the least delay counts, at least; it is twice this at most.
const WHILE: Span = Span::from_millis(5);

/// The least delay of the last 5 to 10 ms. A host that pauses for some milliseconds makes what it
/// forwards or stamps meanwhile late, the first packets most and the last ones hardly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StandingDelay {
    began: Option<Time>,
    /// Of the present period, and of the one before.
    least: [Option<Span>; 2],
}

impl StandingDelay {
    /// Takes the delay of a packet that was acknowledged. Returns the least one.
    pub(super) fn handle_delay(&mut self, now: Time, delay: Span) -> Span {
        let since = self.began.map_or(WHILE, |began| now.since(began));
        if since >= WHILE {
            let recent = if since < WHILE + WHILE { self.least[0] } else { None };
            *self = StandingDelay { began: Some(now), least: [None, recent] };
        }
        let least = self.least.iter().flatten().fold(delay, |least, one| least.min(*one));
        self.least[0] = Some(self.least[0].map_or(delay, |one| one.min(delay)));
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_no_queue_and_a_queue_is_one_within_ten_milliseconds() {
        let at = |micros| Time::ZERO + Span::from_micros(micros);
        let millis = Span::from_millis;
        let mut standing = StandingDelay::default();
        assert_eq!(standing.handle_delay(at(0), millis(20)), millis(20), "there is no other");
        assert_eq!(standing.handle_delay(at(600), millis(30)), millis(20));
        for packet in 2..9 {
            assert_eq!(standing.handle_delay(at(600 * packet), millis(30)), millis(20), "{packet}");
        }
        // All that came in the last milliseconds came through it.
        assert_eq!(standing.handle_delay(at(10_200), millis(30)), millis(30));
        assert_eq!(standing.handle_delay(at(10_800), millis(21)), millis(21));
        // Of packets that are far apart each counts.
        assert_eq!(standing.handle_delay(at(40_000), millis(30)), millis(30));
    }
}
