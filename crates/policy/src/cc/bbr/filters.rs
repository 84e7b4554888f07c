//! The filters of the path model: the largest bandwidth, the smallest round-trip time, the largest
//! excess of acknowledgements.

use units::{Rate, Span, Time};

/// `BBR.MinRTTFilterLen`.
const MIN_RTT_LENGTH: Span = Span::from_secs(10);
/// `BBR.ProbeRTTInterval`.
const PROBE_RTT_INTERVAL: Span = Span::from_secs(5);
/// The interval and the filter are at least as long as so many of the shortest round trips (and
/// twice as many): a period of `ProbeRTT` takes two.
const LEAST_ROUNDS: u64 = 10;
/// `BBR.ExtraAckedFilterLen`, round trips.
const EXTRA_ROUNDS: usize = 10;

/// The largest delivery rate of the present `ProbeBW` cycle and the one before (sections 5.5.3 to
/// 5.5.6).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxBandwidth {
    before: Rate,
    present: Rate,
}

impl MaxBandwidth {
    pub(super) fn get(&self) -> Rate {
        self.before.max(self.present)
    }

    pub(super) fn add(&mut self, rate: Rate) {
        self.present = self.present.max(rate);
    }

    /// A cycle ends. A cycle without a sample does not count.
    pub(super) fn advance(&mut self) {
        if self.present > Rate::ZERO {
            *self = MaxBandwidth { before: self.present, present: Rate::ZERO };
        }
    }
}

/// The smallest round-trip time, and when `ProbeRTT` is due (sections 5.3.4.3 and 5.5.7).
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    /// `BBR.min_rtt` with its time; `None` before the first sample.
    long: Option<(Span, Time)>,
    /// `BBR.probe_rtt_min_delay` with its time.
    short: Option<(Span, Time)>,
    /// A sample that exceeds the smallest one by at most one part in so many renews that one.
    renewal: Option<u64>,
}

impl MinRtt {
    pub(super) fn new(renewal: Option<u64>) -> MinRtt {
        MinRtt { long: None, short: None, renewal }
    }

    pub(super) fn get(&self) -> Option<Span> {
        self.long.map(|(rtt, _)| rtt)
    }

    /// Adds a sample. Returns whether the short filter had expired before: `BBR.probe_rtt_expired`.
    pub(super) fn update(&mut self, now: Time, rtt: Option<Span>) -> bool {
        let rounds = self.get().unwrap_or(Span::ZERO) * LEAST_ROUNDS;
        let (interval, length) =
            (PROBE_RTT_INTERVAL.max(rounds), MIN_RTT_LENGTH.max(rounds + rounds));
        let is_expired = self.short.is_some_and(|(_, at)| now > at + interval);
        if let Some(rtt) = rtt
            && (is_expired || self.short.is_none_or(|(least, _)| rtt < least))
        {
            self.short = Some((rtt, now));
        }
        if let (Some(rtt), Some(parts), Some((least, at))) = (rtt, self.renewal, &mut self.short)
            && rtt <= *least + *least / parts
        {
            *at = now;
        }
        if let Some((rtt, at)) = self.short
            && self.long.is_none_or(|(least, since)| rtt < least || now > since + length)
        {
            self.long = Some((rtt, at));
        }
        is_expired
    }

    /// `ProbeRTT` is over: the next one is an interval away.
    pub(super) fn postpone(&mut self, now: Time) {
        if let Some((_, at)) = &mut self.short {
            *at = now;
        }
    }
}

/// The bytes acknowledged beyond the bandwidth estimate, as with acknowledgements in clusters
/// (section 5.5.9).
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtraAcked {
    since: Time,
    delivered: u64,
    /// The largest excess of each of the last round trips.
    largest: [u64; EXTRA_ROUNDS],
    round: u64,
}

impl ExtraAcked {
    pub(super) fn new(now: Time) -> ExtraAcked {
        ExtraAcked { since: now, delivered: 0, largest: [0; EXTRA_ROUNDS], round: 0 }
    }

    /// Sending restarts after idle time: the interval begins anew.
    pub(super) fn restart(&mut self, now: Time) {
        self.since = now;
    }

    /// `bytes` were acknowledged; at most `window` count as excess.
    pub(super) fn add(&mut self, now: Time, round: u64, bytes: u64, bandwidth: Rate, window: u64) {
        let mut expected = (bandwidth * (now - self.since)).0;
        if self.delivered <= expected {
            (self.since, self.delivered, expected) = (now, 0, 0);
        }
        self.delivered = self.delivered.saturating_add(bytes);
        let passed = usize::try_from(round.saturating_sub(self.round))
            .unwrap_or(usize::MAX)
            .min(EXTRA_ROUNDS);
        self.largest.rotate_right(passed);
        self.largest[..passed].fill(0);
        self.round = round;
        self.largest[0] = self.largest[0].max(self.delivered.saturating_sub(expected).min(window));
    }

    /// The largest of ten round trips, or of the present one alone.
    pub(super) fn get(&self, is_present_only: bool) -> u64 {
        if is_present_only {
            self.largest[0]
        } else {
            self.largest.iter().copied().max().unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn bandwidth_lasts_two_cycles() {
        let mut max = MaxBandwidth::default();
        max.add(Rate::mbit(10));
        max.advance();
        max.add(Rate::mbit(4));
        assert_eq!(max.get(), Rate::mbit(10));
        max.advance();
        assert_eq!(max.get(), Rate::mbit(4));
        max.advance();
        assert_eq!(max.get(), Rate::mbit(4), "a cycle without samples");
    }

    #[test]
    fn round_trips_expire() {
        let mut min = MinRtt::new(None);
        assert!(!min.update(at(0), Some(Span::from_millis(50))));
        assert!(!min.update(at(3_000), Some(Span::from_millis(40))));
        assert!(!min.update(at(8_000), Some(Span::from_millis(60))));
        assert!(
            min.update(at(8_001), Some(Span::from_millis(60))),
            "five seconds without a smaller one"
        );
        assert_eq!(min.get(), Some(Span::from_millis(40)), "kept for ten");
        min.postpone(at(8_201));
        assert!(!min.update(at(13_001), Some(Span::from_millis(70))));
        assert_eq!(min.get(), Some(Span::from_millis(60)));
    }

    #[test]
    fn long_round_trips_are_probed_for_after_ten_of_them() {
        let mut min = MinRtt::new(None);
        let rtt = Some(Span::from_secs(20));
        assert!(!min.update(at(40_000), rtt), "the first sample, long after the beginning");
        assert!(!min.update(at(240_000), rtt));
        assert!(min.update(at(240_001), Some(Span::from_secs(30))));
        assert_eq!(min.get(), Some(Span::from_secs(20)), "kept for twenty");
        assert!(!min.update(at(440_000), Some(Span::from_secs(30))));
        assert!(min.update(at(440_002), Some(Span::from_secs(30))));
        assert_eq!(min.get(), Some(Span::from_secs(30)));
    }

    #[test]
    fn a_round_trip_near_the_smallest_renews_it() {
        let mut min = MinRtt::new(Some(16));
        min.update(at(0), Some(Span::from_millis(32)));
        assert!(!min.update(at(4_000), Some(Span::from_millis(34))), "two parts in 32");
        assert!(!min.update(at(8_999), Some(Span::from_millis(35))), "five seconds after it");
        assert_eq!(min.get(), Some(Span::from_millis(32)), "it does not move the smallest one");
        assert!(min.update(at(9_001), Some(Span::from_millis(35))));
    }

    #[test]
    fn clusters_show_as_excess() {
        let mut extra = ExtraAcked::new(at(0));
        // 1000 bytes a millisecond; after ten of them a cluster of eight thousand, none of which
        // was expected at once.
        let rate = Rate::mbit(8);
        extra.add(at(10), 1, 8_000, rate, 100_000);
        assert_eq!(extra.get(true), 8_000);
        extra.add(at(13), 2, 1_000, rate, 100_000);
        assert_eq!((extra.get(true), extra.get(false)), (6_000, 8_000));
        extra.add(at(100), 11, 1_000, rate, 500);
        assert_eq!((extra.get(true), extra.get(false)), (500, 6_000));
    }
}
