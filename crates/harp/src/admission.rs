//! Which paths carry data, by their round-trip times.
//!
//! Packets of a connection wait for each other where they leave, so that a path that is much longer
//! than the others holds them up, and much shorter ones cannot make up for it. The paper measures
//! relays by the direct path, 1.5 times whose round trip they may have (section III-B). Here the
//! measure is the longest of the paths that carry much: a short line that carries little does not
//! keep a long one out that carries more. Paths whose rate nobody knows yet are tried.

use units::{Rate, Span, Time};

/// A round-trip time that is longer by so little admits a path in any case: packets wait no longer
/// for each other than for a queue that nobody minds.
const AS_NEAR: Span = Span::from_millis(5);
/// A path carries much if it carries at least this part of what the best one does.
const MUCH: f64 = 0.5;
/// Paths whose round-trip times differ by more than this factor are not used together: hosts take
/// what comes over the long ones for lost.
const APART: f64 = 8.0;
/// A path that carries nothing is tried again after this, and each time after twice as long, at
/// most the other.
const TRIED_AFTER: Span = Span::from_secs(30);
const LONGEST_PAUSE: Span = Span::from_secs(960);

/// What is known of a path whose round-trip time was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its least round-trip time, seconds.
    pub(crate) rtt: f64,
    /// Its window in a round trip, bytes a second.
    pub(crate) rate: f64,
}

/// The round-trip times that admit a path, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Admitted {
    least: f64,
    most: f64,
}

impl Admitted {
    /// Times beside those of the paths that are known, of which the longer ones may be longer by
    /// this factor. `None`: all, because nothing is known.
    pub(crate) fn beside(known: impl Iterator<Item = Known> + Clone, factor: f64) -> Option<Self> {
        let best = known.clone().max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        let much = known.filter(|path| path.rate >= MUCH * best.rate);
        let longest = much.map(|path| path.rtt).fold(best.rtt, f64::max);
        let measure = if longest > APART * best.rtt { best.rtt } else { longest };
        let near = AS_NEAR.as_secs_f64();
        Some(Admitted { least: measure / APART - near, most: factor * measure + near })
    }

    /// Times beside the direct path's, which others may exceed by this factor.
    pub(crate) fn by_direct(direct: Span, factor: f64) -> Admitted {
        Admitted { least: 0.0, most: factor * direct.as_secs_f64() }
    }

    /// Whether they admit a path with this least round-trip time, over which a packet of so many
    /// bytes takes as long as its capacity says, if that is known.
    pub(crate) fn has(&self, rtt: Span, bytes: f64, capacity: Option<Rate>) -> bool {
        let packet = capacity.map_or(0.0, |rate| bytes * 8.0 / rate.as_f64());
        let trip = rtt.as_secs_f64();
        trip >= self.least && trip + packet <= self.most
    }
}

/// When a path that carries nothing is tried again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trials {
    since: Option<Time>,
    pause: Span,
}

impl Trials {
    pub(crate) fn new() -> Trials {
        Trials { since: None, pause: TRIED_AFTER }
    }

    /// The path carries data, by what is known of it.
    pub(crate) fn handle_admitted(&mut self) {
        *self = Trials::new();
    }

    /// The path carries data, to learn what it carries.
    pub(crate) fn handle_trial(&mut self) {
        self.since = None;
    }

    /// The path carries nothing. Whether it is time to try it.
    pub(crate) fn poll_trial(&mut self, now: Time) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_due = now >= since + self.pause;
        if is_due {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn beside(known: &[(f64, f64)]) -> Option<(f64, f64)> {
        let known = known.iter().map(|(millis, rate)| Known { rtt: millis / 1e3, rate: *rate });
        Admitted::beside(known, 1.5).map(|Admitted { least, most }| (least * 1e3, most * 1e3))
    }

    #[track_caller]
    fn are(known: &[(f64, f64)], least: f64, most: f64) {
        let found = beside(known).expect("something is known");
        assert!((found.0 - least).abs() < 1e-9 && (found.1 - most).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn the_longest_path_that_carries_much_is_the_measure() {
        assert_eq!(beside(&[]), None);
        are(&[(40.0, 1.0)], 0.0, 65.0);
        // The long one carries more, as much, half, less.
        for rate in [20.0, 10.0, 5.0] {
            are(&[(10.0, 10.0), (40.0, rate)], 0.0, 65.0);
        }
        are(&[(10.0, 10.0), (40.0, 4.9)], 10.0 / 8.0 - 5.0, 20.0);
        are(&[(40.0, 4.9), (10.0, 10.0), (16.0, 6.0)], -3.0, 29.0);
    }

    #[test]
    fn paths_that_are_far_apart_are_not_used_together() {
        are(&[(10.0, 10.0), (80.0, 9.0)], 5.0, 125.0);
        are(&[(10.0, 10.0), (81.0, 9.0)], 10.0 / 8.0 - 5.0, 20.0);
        // The long one is the best one: the short one is left out.
        are(&[(10.0, 10.0), (400.0, 90.0)], 45.0, 605.0);
    }

    #[test]
    fn what_a_packet_takes_on_a_slow_line_counts() {
        let admitted = Admitted { least: 0.005, most: 0.020 };
        let has = |millis, capacity| {
            admitted.has(Span::from_millis(millis), 1_500.0, Some(Rate::kbit(capacity)))
        };
        assert!(has(10, 1_200) && !has(10, 1_199) && has(19, 12_000) && !has(19, 11_999));
        let unknown = |millis| admitted.has(Span::from_millis(millis), 1_500.0, None);
        assert!(unknown(20) && !unknown(21) && unknown(5) && !unknown(4));
    }

    #[test]
    fn a_path_that_carries_nothing_is_tried_ever_less_often() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut trials = Trials::new();
        let mut tried = Vec::new();
        for second in 0..6_000 {
            if trials.poll_trial(at(second)) {
                trials.handle_trial();
                tried.push(second);
            }
        }
        assert_eq!(tried, [30, 91, 212, 453, 934, 1_895, 2_856, 3_817, 4_778, 5_739]);
        trials.handle_admitted();
        assert!(!trials.poll_trial(at(6_000)) && trials.poll_trial(at(6_030)));
    }
}
