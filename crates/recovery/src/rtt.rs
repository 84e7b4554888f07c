//! Round-trip times and the retransmission timeout (RFC 6298), with a sample for each
//! acknowledgement (RFC 7323, appendix G).

use units::Span;

/// No timeout is longer (RFC 6298, section 2.5, allows 60 s and more).
const MAX_RTO: Span = Span::from_secs(60);
/// Before the first sample (RFC 6298, section 2.1).
const INITIAL_RTO: Span = Span::from_secs(1);

/// Smoothed round-trip time, its variation, and the timeout that follows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RoundTrip {
    /// `SRTT`; it and `variation` are valid with `has_sample`.
    smoothed: Span,
    variation: Span,
    min: Span,
    has_sample: bool,
    /// Doublings of the timeout since the last sample (section 5.5).
    backoff: u32,
    floor: Span,
    latest: Span,
}

impl RoundTrip {
    /// An estimator without samples. No timeout is shorter than `floor`: RFC 6298 says 1 s, most
    /// systems use 200 ms.
    #[must_use]
    pub fn new(floor: Span) -> RoundTrip {
        let none = Span::ZERO;
        RoundTrip {
            floor,
            smoothed: none,
            variation: none,
            min: none,
            latest: none,
            has_sample: false,
            backoff: 0,
        }
    }

    /// Adds a sample (section 2, equations 2.2 and 2.3) and ends the backoff. `expected` is the
    /// number of samples a round trip: the gains are divided by it, so that the memory is as long
    /// as with one sample a round trip (RFC 7323, appendix G). Otherwise the variation would be
    /// that between neighbouring packets, nearly zero, and a queue that grows within a round trip
    /// would run into the timeout.
    #[inline]
    pub fn handle_sample(&mut self, sample: Span, expected: u64) {
        self.latest = sample;
        self.backoff = 0;
        if !self.has_sample {
            self.has_sample = true;
            self.smoothed = sample;
            self.variation = Span::from_nanos(sample.as_nanos() / 2);
            self.min = sample;
            return;
        }
        let expected = expected.clamp(1, 1 << 32);
        let deviation = Span::from_nanos(self.smoothed.as_nanos().abs_diff(sample.as_nanos()));
        self.variation = towards(self.variation, deviation, 4 * expected);
        self.smoothed = towards(self.smoothed, sample, 8 * expected);
        self.min = self.min.min(self.latest);
    }

    /// The timer ran out: the timeout doubles until the next sample (section 5.5).
    pub fn handle_timeout(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The timeout was spurious: the backoff ends.
    pub fn handle_undo(&mut self) {
        self.backoff = 0;
    }

    /// The smoothed round-trip time; `None` before the first sample.
    #[must_use]
    #[inline]
    pub fn smoothed(&self) -> Option<Span> {
        self.has_sample.then_some(self.smoothed)
    }

    /// The smallest sample; zero before the first.
    #[must_use]
    #[inline]
    pub fn min(&self) -> Span {
        self.min
    }

    /// The latest sample; zero before the first.
    #[must_use]
    pub fn latest(&self) -> Span {
        self.latest
    }

    /// The variation (`RTTVAR`); zero before the first sample.
    #[must_use]
    pub fn variation(&self) -> Span {
        self.variation
    }

    /// The retransmission timeout: `SRTT + 4 RTTVAR`, at least the floor, doubled for each timeout
    /// since the last sample, at most 60 s.
    #[must_use]
    #[inline]
    pub fn timeout(&self) -> Span {
        let base = match self.smoothed() {
            None => INITIAL_RTO.max(self.floor),
            Some(smoothed) => Span::from_nanos(smoothed.as_nanos() + 4 * self.variation.as_nanos())
                .max(self.floor),
        };
        Span::from_nanos(base.as_nanos().saturating_mul(1 << self.backoff)).min(MAX_RTO)
    }
}

/// One `parts`-th of the way from `old` to `new`.
#[inline]
fn towards(old: Span, new: Span, parts: u64) -> Span {
    let (old, new) = (old.as_nanos(), new.as_nanos());
    Span::from_nanos(if new >= old { old + (new - old) / parts } else { old - (old - new) / parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_rfc_6298() {
        let ms = Span::from_millis;
        let mut rtt = RoundTrip::new(ms(200));
        assert_eq!(rtt.timeout(), ms(1_000));
        rtt.handle_sample(ms(100), 1);
        // SRTT = R, RTTVAR = R/2.
        assert_eq!(
            (rtt.smoothed(), rtt.variation(), rtt.timeout()),
            (Some(ms(100)), ms(50), ms(300))
        );
        rtt.handle_sample(ms(180), 1);
        // RTTVAR = 3/4 * 50 + 1/4 * 80, SRTT = 7/8 * 100 + 1/8 * 180.
        assert_eq!((rtt.variation(), rtt.smoothed()), (Span::from_micros(57_500), Some(ms(110))));
        assert_eq!(rtt.timeout(), ms(340));
        rtt.handle_timeout();
        rtt.handle_timeout();
        assert_eq!(rtt.timeout(), ms(1_360));
        for _ in 0..100 {
            rtt.handle_timeout();
        }
        assert_eq!(rtt.timeout(), Span::from_secs(60));
        rtt.handle_sample(ms(110), 1);
        assert!(rtt.timeout() < ms(340) && rtt.min() == ms(100));
    }

    #[test]
    fn the_floor_holds() {
        let mut rtt = RoundTrip::new(Span::from_millis(200));
        for _ in 0..50 {
            rtt.handle_sample(Span::from_millis(1), 1);
        }
        assert_eq!(rtt.timeout(), Span::from_millis(200));
    }

    /// The sawtooth of a queue, 100 packets a round trip: from 150 to 210 ms and back within 20
    /// round trips.
    #[test]
    fn many_samples_a_round_trip_do_not_shrink_the_variation() {
        let mut rtt = RoundTrip::new(Span::from_millis(200));
        let mut closest = Span::from_secs(60);
        for packet in 0..20_000_u64 {
            let phase = packet % 2_000;
            let queue = if phase < 1_000 { phase } else { 2_000 - phase };
            let sample = Span::from_micros(150_000 + 60 * queue);
            if packet > 2_000 {
                closest = closest.min(Span::from_nanos(
                    rtt.timeout().as_nanos().saturating_sub(sample.as_nanos()),
                ));
            }
            rtt.handle_sample(sample, 50);
        }
        assert!(closest > Span::from_millis(15), "{closest:?}");
    }
}
