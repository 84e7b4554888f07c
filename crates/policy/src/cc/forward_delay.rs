//! The delay of a path's data on one clock.
//!
//! A transport without clocks of both sides has round-trip times, which count the other way's queue
//! too. One with clocks has one-way delays, from an arbitrary origin: the two must not meet in one
//! range. Packets without payload carry no time, so that on one path some acknowledgements have a
//! one-way delay and others have none.

use units::{Bytes, Span, Time};

use super::{Acked, ClockWatch, DelayRange};

/// Round-trip times count again if so many acknowledgements of payload have no one-way delay, over
/// so long.
const MISSING: u32 = 32;
const PATIENCE: Span = Span::from_secs(5);

/// Chooses the clock of a path's delays, and watches it.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardDelay {
    clock: Option<Clock>,
}

#[derive(Clone, Debug)]
enum Clock {
    RoundTrips,
    OneWay { latest: Time, missing: u32, watch: ClockWatch },
}

impl ForwardDelay {
    /// The delay that an acknowledgement brings, if it brings one of the clock in use. `known`,
    /// which remembers delays, forgets those of another clock, and is corrected where a clock runs
    /// away.
    pub(super) fn sample(
        &mut self,
        now: Time,
        acked: &Acked,
        known: &mut impl DelayRange,
    ) -> Option<Span> {
        match (&mut self.clock, acked.one_way_delay) {
            (Some(Clock::OneWay { latest, missing, watch }), Some(delay)) => {
                (*latest, *missing) = (now, 0);
                watch.handle_delay(now, delay, acked.rtt.unwrap_or_default(), known);
                Some(explained(delay, acked, known))
            }
            (_, Some(delay)) => {
                let watch = ClockWatch::default();
                self.begin(Clock::OneWay { latest: now, missing: 0, watch }, known);
                Some(delay)
            }
            (Some(Clock::OneWay { latest, missing, .. }), None) => {
                *missing = missing.saturating_add(u32::from(acked.bytes > Bytes::ZERO));
                if *missing < MISSING || now < *latest + PATIENCE {
                    return None;
                }
                self.begin(Clock::RoundTrips, known);
                acked.rtt
            }
            (Some(Clock::RoundTrips), None) => acked.rtt,
            (None, None) => {
                let rtt = acked.rtt?;
                self.begin(Clock::RoundTrips, known);
                Some(rtt)
            }
        }
    }

    fn begin(&mut self, clock: Clock, known: &mut impl DelayRange) {
        self.clock = Some(clock);
        known.forget();
    }
}

/// No more of a delay than the round trip shows of it: the rest is the clocks', which drift apart.
fn explained(delay: Span, acked: &Acked, known: &impl DelayRange) -> Span {
    match (known.range(), acked.rtt) {
        (Some((least, _)), Some(rtt)) if rtt >= acked.min_rtt => {
            delay.min(least + (rtt - acked.min_rtt))
        }
        _ => delay,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    /// All delays that are remembered.
    #[derive(Default)]
    struct Known(Vec<Span>);

    impl DelayRange for Known {
        fn range(&self) -> Option<(Span, Span)> {
            Some((*self.0.iter().min()?, *self.0.iter().max()?))
        }

        fn set_range(&mut self, least: Span, most: Span) {
            self.0 = vec![least, most];
        }

        fn forget(&mut self) {
            self.0.clear();
        }
    }

    struct Path {
        now: Time,
        delay: ForwardDelay,
        known: Known,
        queue: Span,
    }

    impl Path {
        fn new() -> Path {
            let now = Time::ZERO + Span::from_secs(1);
            Path { now, delay: ForwardDelay::default(), known: Known::default(), queue: Span::ZERO }
        }

        /// An acknowledgement 10 ms after the one before.
        fn ack(&mut self, bytes: u64, one_way: Option<u64>) -> Option<u64> {
            self.now += Span::from_millis(10);
            let acked = Acked {
                bytes: Bytes(bytes),
                rtt: Some(MIN_RTT + self.queue),
                one_way_delay: one_way.map(Span::from_millis),
                ..acked()
            };
            let sample = self.delay.sample(self.now, &acked, &mut self.known)?;
            self.known.0.push(sample);
            Some(sample.as_millis())
        }
    }

    const MIN_RTT: Span = Span::from_millis(40);

    fn acked() -> Acked {
        Acked {
            bytes: Bytes(1_000),
            in_flight: Bytes::ZERO,
            sent_at: Time::ZERO,
            window_at_sending: None,
            rtt: None,
            smoothed_rtt: MIN_RTT,
            min_rtt: MIN_RTT,
            one_way_delay: None,
            ack_delay: None,
            delivery_rate: None,
            round: 0,
            ce_packets: 0,
            ce_bytes: Bytes::ZERO,
            is_app_limited: false,
            in_recovery: false,
            slow_start_divisor: 1,
        }
    }

    #[test]
    fn a_packet_without_a_stamp_is_no_sample_among_those_with_one() {
        let mut path = Path::new();
        assert_eq!(path.ack(0, None), Some(40), "nothing better is known");
        assert_eq!(path.ack(1_000, Some(4_000_020)), Some(4_000_020));
        assert_eq!(path.known.0, [Span::from_millis(4_000_020)], "the round trip is forgotten");
        for _ in 0..1_000 {
            assert_eq!(path.ack(0, None), None, "pings carry no time");
        }
        path.queue = Span::from_millis(5);
        assert_eq!(path.ack(1_000, Some(4_000_025)), Some(4_000_025));
        assert_eq!(path.known.0.len(), 2, "nothing was forgotten");
    }

    #[test]
    fn round_trips_count_again_where_stamps_have_ended() {
        let mut path = Path::new();
        path.ack(1_000, Some(4_000_020));
        let without = (0..1_000).take_while(|_| path.ack(1_000, None).is_none()).count();
        assert_eq!(without, 499, "five seconds");
        assert_eq!(path.known.0, [Span::from_millis(40)]);
        assert_eq!(path.ack(1_000, None), Some(40));
        assert_eq!(path.ack(1_000, Some(4_000_020)), Some(4_000_020));
        assert_eq!(path.known.0.len(), 1);
    }

    #[test]
    fn a_clock_that_runs_away_is_no_queue() {
        let mut path = Path::new();
        // 500 parts in a million, for ten minutes: 300 ms.
        for packet in 0..60_000 {
            path.ack(1_000, Some(4_000_020 + packet / 200));
            let (least, most) = path.known.range().unwrap();
            assert!(most - least <= Span::from_millis(2), "packet {packet}: {least} to {most}");
        }
    }
}
