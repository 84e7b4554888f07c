//! The end of slow start by delay (`HyStart++`, RFC 9406).

use units::Span;

const MIN_THRESHOLD: Span = Span::from_millis(4);
const MAX_THRESHOLD: Span = Span::from_millis(16);
/// `N_RTT_SAMPLE`: samples before a round's delay counts.
const SAMPLES: u32 = 8;
/// `CSS_ROUNDS`: rounds of conservative slow start before slow start ends.
const ROUNDS: u32 = 5;
/// `CSS_GROWTH_DIVISOR`: how much slower the window grows in conservative slow start.
const DIVISOR: u32 = 4;

/// The result of one round-trip sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The window grows by the acknowledged bytes over this divisor.
    Grow(u32),
    /// Slow start is over.
    Stop,
}

/// Detects a growing queue in slow start by round-trip samples.
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    round: u64,
    previous: Option<Span>,
    current: Option<Span>,
    samples: u32,
    divisor: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The smallest round-trip time of the round in which it began (`cssBaselineMinRtt`).
    baseline: Span,
    rounds: u32,
}

impl HyStart {
    /// The state before the first sample.
    #[must_use]
    pub fn new() -> HyStart {
        HyStart {
            round: 0,
            previous: None,
            current: None,
            samples: 0,
            divisor: 1,
            conservative: None,
        }
    }

    /// An acknowledgement gave the sample `rtt`; `round` counts round trips, `is_over` is whether
    /// the window has reached its threshold. Returns whether slow start ends now. With `is_over`
    /// the state is reset for the slow start after the next timeout.
    pub fn handle_acked(&mut self, rtt: Span, round: u64, is_over: bool) -> bool {
        if is_over {
            *self = HyStart::new();
            return false;
        }
        let verdict = self.handle_sample(rtt, round);
        self.divisor = match verdict {
            Verdict::Grow(divisor) => divisor,
            Verdict::Stop => 1,
        };
        verdict == Verdict::Stop
    }

    /// The window grows by the acknowledged bytes over this divisor.
    #[must_use]
    pub fn divisor(&self) -> u32 {
        self.divisor
    }

    /// A sample in slow start.
    fn handle_sample(&mut self, rtt: Span, round: u64) -> Verdict {
        if round != self.round {
            self.round = round;
            self.previous = self.current.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
            }
        }
        if self.conservative.is_some_and(|conservative| conservative.rounds >= ROUNDS) {
            return Verdict::Stop;
        }
        let current = self.current.map_or(rtt, |current| current.min(rtt));
        self.current = Some(current);
        self.samples += 1;
        if self.samples >= SAMPLES {
            match (self.conservative, self.previous) {
                (None, Some(previous)) => {
                    let eighth = Span::from_nanos(previous.as_nanos() / 8);
                    if current >= previous + eighth.clamp(MIN_THRESHOLD, MAX_THRESHOLD) {
                        self.conservative = Some(Conservative { baseline: current, rounds: 0 });
                    }
                }
                // The delay fell again: it was jitter, not a queue.
                (Some(Conservative { baseline, .. }), _) if current < baseline => {
                    self.conservative = None;
                }
                _ => {}
            }
        }
        Verdict::Grow(if self.conservative.is_some() { DIVISOR } else { 1 })
    }
}

impl Default for HyStart {
    fn default() -> HyStart {
        HyStart::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(hystart: &mut HyStart, round: u64, ms: u64) -> Verdict {
        (0..8)
            .map(|_| hystart.handle_sample(Span::from_millis(ms), round))
            .last()
            .expect("some samples")
    }

    #[test]
    fn a_queue_ends_slow_start_after_five_rounds() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 1, 40), Verdict::Grow(1));
        // An eighth of 40 ms is 5 ms.
        assert_eq!(round(&mut hystart, 2, 44), Verdict::Grow(1));
        assert_eq!(round(&mut hystart, 3, 50), Verdict::Grow(4));
        for n in 4..8 {
            assert_eq!(round(&mut hystart, n, 55), Verdict::Grow(4));
        }
        assert_eq!(round(&mut hystart, 8, 55), Verdict::Stop);
    }

    #[test]
    fn seven_samples_of_a_round_say_nothing() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 1, 40);
        let late = Span::from_millis(60);
        for _ in 0..7 {
            assert_eq!(hystart.handle_sample(late, 2), Verdict::Grow(1));
        }
        assert_eq!(hystart.handle_sample(late, 2), Verdict::Grow(4));
    }

    #[test]
    fn sixteen_milliseconds_are_a_queue_on_any_line() {
        for (later, expected) in [(415, Verdict::Grow(1)), (416, Verdict::Grow(4))] {
            let mut hystart = HyStart::new();
            round(&mut hystart, 1, 400);
            assert_eq!(round(&mut hystart, 2, later), expected);
        }
    }

    #[test]
    fn jitter_does_not_end_slow_start() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 1, 40);
        assert_eq!(round(&mut hystart, 2, 60), Verdict::Grow(4));
        assert_eq!(round(&mut hystart, 3, 41), Verdict::Grow(1));
    }
}
