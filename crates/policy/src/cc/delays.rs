//! Delays of a path: the smallest of the last minutes, and the present one without its peaks.

use units::{Span, Time};

use super::DelayRange;

/// The minutes over which a base delay is remembered, `BASE_HISTORY` of RFC 6817.
const MINUTES: usize = 10;
/// The present delay is the smallest of so many samples, `CURRENT_FILTER` of RFC 6817.
const SAMPLES: usize = 4;
const MINUTE: Span = Span::from_secs(60);

/// The queueing delay by RFC 6817, section 2.4.2: base delays by minutes, so that a change of the
/// route is forgotten, and a minimum over the last samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Delays {
    /// The smallest delay of each minute, the present one first.
    base: [Option<Span>; MINUTES],
    minute_began: Option<Time>,
    /// The last samples; the next one takes the place of `oldest`.
    current: [Option<Span>; SAMPLES],
    oldest: usize,
}

impl Delays {
    /// Takes a sample.
    pub(super) fn handle_sample(&mut self, now: Time, delay: Span) {
        let began = *self.minute_began.get_or_insert(now);
        if now.since(began) >= MINUTE {
            self.minute_began = Some(now);
            self.base.rotate_right(1);
            self.base[0] = None;
        }
        self.base[0] = Some(self.base[0].map_or(delay, |base| base.min(delay)));
        self.current[self.oldest] = Some(delay);
        self.oldest = (self.oldest + 1) % SAMPLES;
    }

    /// The smallest delay of the last minutes; `None` before the first sample.
    pub(super) fn base(&self) -> Option<Span> {
        self.base.iter().flatten().min().copied()
    }

    /// The present delay beyond the base, seconds; `None` before the first sample.
    pub(super) fn queueing(&self) -> Option<f64> {
        let current = self.current.iter().flatten().min().copied()?;
        Some((current - self.base()?).as_secs_f64())
    }
}

impl DelayRange for Delays {
    fn range(&self) -> Option<(Span, Span)> {
        let most = self.current.iter().flatten().max().copied();
        self.base().zip(most)
    }

    fn set_range(&mut self, least: Span, _most: Span) {
        *self = Delays { minute_began: self.minute_began, ..Delays::default() };
        self.base[0] = Some(least);
    }

    fn forget(&mut self) {
        *self = Delays::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queueing(delays: &Delays) -> u64 {
        Span::from_secs_f64(delays.queueing().expect("there are samples")).as_millis()
    }

    #[test]
    fn the_smallest_of_four_samples_counts() {
        let mut delays = Delays::default();
        assert_eq!((delays.base(), delays.queueing()), (None, None));
        for (millis, expected) in [(50, 0), (90, 0), (80, 0), (95, 0), (99, 30), (70, 20)] {
            delays.handle_sample(Time::ZERO, Span::from_millis(millis));
            assert_eq!(queueing(&delays), expected, "after {millis} ms");
        }
        assert_eq!(delays.base(), Some(Span::from_millis(50)));
    }

    #[test]
    fn a_base_is_forgotten_after_ten_minutes() {
        let mut delays = Delays::default();
        delays.handle_sample(Time::ZERO, Span::from_millis(50));
        for second in 1..600 {
            delays.handle_sample(Time::ZERO + Span::from_secs(second), Span::from_millis(80));
            assert_eq!(delays.base(), Some(Span::from_millis(50)), "after {second} s");
        }
        delays.handle_sample(Time::ZERO + Span::from_secs(600), Span::from_millis(80));
        assert_eq!(delays.base(), Some(Span::from_millis(80)));
        assert_eq!(queueing(&delays), 0);
    }
}
