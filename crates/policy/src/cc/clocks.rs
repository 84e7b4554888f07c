//! The far side's clock is stepped, or runs faster or slower than the near one's. One-way delays
//! then change without a queue.
//!
//! A queue on the way makes the round trip longer too, and the round trip needs one clock only. So
//! over some round trips: if every packet took longer than the least delay by more than any round
//! trip took longer than the least one, the rest of it is the clock's. If delays fall and round
//! trips don't, the fall is.

use units::{Span, Time};

/// Differences below this are not the clock's: stamps are exact to a scheduler's delay.
const SLACK: Span = Span::from_millis(1);
/// Smoothed round-trip times have followed a queue after so many packets, and so many of them.
const PACKETS: u32 = 32;
const ROUND_TRIPS: u64 = 8;
/// A least round trip that was not seen again for this long is forgotten: a route may change.
const MEMORY: Span = Span::from_secs(600);

/// What remembers the delays of a path, from an arbitrary origin.
pub trait DelayRange {
    /// The smallest and the largest delay that are remembered.
    fn range(&self) -> Option<(Span, Span)>;

    /// Replaces what is remembered: a clock was stepped, or drifted away.
    fn set_range(&mut self, least: Span, most: Span);

    /// Forgets everything: the delays to come are those of other clocks.
    fn forget(&mut self);
}

/// No clock runs faster by more than one part of these, but for a step.
const FASTEST_DRIFT: u64 = 1_000;

/// Watches the delays of one path for changes of the clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockWatch {
    period: Option<Period>,
    /// The least round trip, and when it was seen last.
    least: Option<(Span, Time)>,
    /// The least delay and round trip when falling delays were last judged.
    anchor: Option<(Span, Span)>,
}

/// The extremes of a period.
#[derive(Clone, Copy, Debug)]
struct Period {
    began: Time,
    packets: u32,
    least_delay: Span,
    least_rtt: Span,
    most_rtt: Span,
}

impl ClockWatch {
    /// A packet took this delay; `rtt` is its round-trip time, or the smoothed one that it brings,
    /// zero if neither is known. `known`, which remembers the delays, is corrected.
    pub fn handle_delay(&mut self, now: Time, delay: Span, rtt: Span, known: &mut impl DelayRange) {
        if rtt == Span::ZERO {
            return;
        }
        let period = self.period.get_or_insert(Period {
            began: now,
            packets: 0,
            least_delay: delay,
            least_rtt: rtt,
            most_rtt: rtt,
        });
        period.packets += 1;
        period.least_delay = period.least_delay.min(delay);
        period.least_rtt = period.least_rtt.min(rtt);
        period.most_rtt = period.most_rtt.max(rtt);
        let length = Span::from_nanos(period.most_rtt.as_nanos().saturating_mul(ROUND_TRIPS));
        if period.packets >= PACKETS && now >= period.began + length {
            let period = *period;
            self.period = None;
            self.judge(now, &period, known);
        }
    }

    fn judge(&mut self, now: Time, period: &Period, known: &mut impl DelayRange) {
        let Some((least_delay, most_delay)) = known.range() else { return };
        let least_rtt = match self.least {
            Some((least, at)) if least <= period.least_rtt && now < at + MEMORY => {
                let at = if period.least_rtt <= least + SLACK { now } else { at };
                self.least = Some((least, at));
                least
            }
            _ => {
                self.least = Some((period.least_rtt, now));
                period.least_rtt
            }
        };
        let queue = period.most_rtt - least_rtt;
        if period.least_delay > least_delay + queue + SLACK {
            let base = period.least_delay - queue;
            let rise = base - least_delay;
            // The largest delay is one of the clock before it drifted, and one after a step.
            let is_drift = rise <= SLACK * 2 + now.since(period.began) / FASTEST_DRIFT;
            let most = if is_drift { most_delay + rise } else { most_delay };
            known.set_range(base, most.max(base));
            self.anchor = Some((base, least_rtt));
            return;
        }
        let (anchor_delay, anchor_rtt) = *self.anchor.get_or_insert((least_delay, least_rtt));
        if least_delay >= anchor_delay {
            // What was forgotten by age is no change of a clock.
            self.anchor = Some((least_delay, least_rtt));
            return;
        }
        let fall = anchor_delay - least_delay;
        let explained = if least_rtt < anchor_rtt { anchor_rtt - least_rtt } else { Span::ZERO };
        if fall > explained + SLACK {
            let most = least_delay + ((most_delay - least_delay) - (fall - explained));
            known.set_range(least_delay, most);
            self.anchor = Some((least_delay, least_rtt));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{Lateness, LatenessOptions};

    const OPTIONS: LatenessOptions = LatenessOptions {
        share: 0.15,
        least: Span::from_micros(2_500),
        most: None,
        queue: None,
        filter: None,
        memory: Span::from_secs(600),
    };

    /// A path of 25 ms one way with a packet each 10 ms, whose clocks differ.
    struct Path {
        now: Time,
        watch: ClockWatch,
        lateness: Lateness,
        srtt: f64,
    }

    impl Path {
        fn new() -> Path {
            let now = Time::ZERO + Span::from_secs(100);
            let lateness = Lateness::new(OPTIONS);
            Path { now, watch: ClockWatch::default(), lateness, srtt: 0.05 }
        }

        /// Seconds with this queue, and a clock that is ahead by so many milliseconds; which part
        /// of the packets was late in the last half.
        fn run(
            &mut self,
            seconds: u64,
            mut queue: impl FnMut(u64) -> f64,
            mut ahead: impl FnMut(u64) -> f64,
        ) -> f64 {
            let mut late = 0.0;
            let packets = seconds * 100;
            for packet in 0..packets {
                self.now += Span::from_millis(10);
                let wait = queue(packet) / 1_000.0;
                self.srtt += (0.05 + wait - self.srtt) / 8.0;
                let delay = Span::from_secs_f64(10.0 + 0.025 + wait + ahead(packet) / 1_000.0);
                let weight = self.lateness.handle_delay(self.now, delay);
                let srtt = Span::from_secs_f64(self.srtt);
                self.watch.handle_delay(self.now, delay, srtt, &mut self.lateness);
                if packet >= packets / 2 && weight > 0.0 {
                    late += 2.0;
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "it is small")]
            let packets = packets as f64;
            late / packets
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "it is small")]
    fn real(packet: u64) -> f64 {
        packet as f64
    }

    #[test]
    fn a_step_is_no_queue_after_some_round_trips() {
        let mut path = Path::new();
        assert!(path.run(10, |_| 0.0, |_| 0.0) < 1e-9);
        assert!(path.run(4, |_| 0.0, |_| 200.0) < 1e-9);
        // Back again: the least delay falls by itself; what counts as late is as far from it.
        assert!(path.run(4, |_| 0.0, |_| 0.0) < 1e-9);
        let distance = path.lateness.distance();
        assert_eq!(distance, Some(Span::from_micros(2_500)), "the step is no range of delays");
        assert!(path.run(4, |_| 6.0, |_| 0.0) > 0.99, "a queue is late then");
    }

    #[test]
    fn a_step_while_there_is_a_queue_leaves_the_queue() {
        let mut path = Path::new();
        path.run(10, |_| 0.0, |_| 0.0);
        assert!(path.run(10, |_| 30.0, |_| 200.0) > 0.99);
        assert!(path.run(10, |_| 0.0, |_| 200.0) < 1e-9);
    }

    #[test]
    fn clocks_that_drift_apart_make_no_queue_in_an_hour() {
        for ppm in [200.0, -200.0] {
            let mut path = Path::new();
            let drift = |packet| ppm * 1e-3 * 0.01 * real(packet);
            let late = path.run(3_600, |_| 0.0, drift);
            assert!(late < 1e-9, "{ppm} ppm: {late}");
            let end = drift(360_000);
            assert!(path.run(4, |_| 8.0, |_| end) > 0.99, "{ppm} ppm: a queue is late then");
        }
    }

    #[test]
    fn queues_stay_late_however_long_they_stand() {
        let mut path = Path::new();
        path.run(10, |_| 0.0, |_| 0.0);
        // One that stands, and one that moves.
        assert!(path.run(300, |_| 40.0, |_| 0.0) > 0.99);
        let moving = |packet| 20.0 + 0.2 * real(packet % 200);
        assert!(path.run(200, moving, |_| 0.0) > 0.99);
    }
}
