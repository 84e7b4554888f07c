//! Which packets of a path are late, from their one-way delays (section III-D of the Harp paper).
//!
//! A packet is late if its delay exceeds the threshold `Δ = dmin + δ (dmax − dmin)`. It weighs more
//! the later it is: `min(40, r²)` with `r = (d − dmin) / (Δ − dmin)`, so that a long queue is left
//! within a round trip while a short one takes many late packets. The distance of Δ from `dmin` has
//! bounds: before `dmax` is learnt, δ of the range would be less than a packet's time; behind a
//! buffer of a second it would be a long wait for everybody.
//!
//! A queue that stands delays every packet. A radio link, or a host that pauses, delays some, by
//! more than any threshold: with a [filter](LatenessOptions::filter) a packet is as late as the
//! least late one of a short time.

use units::{Span, Time};

use crate::cc::DelayRange;

/// The most that one packet weighs.
const MOST_WEIGHT: f64 = 40.0;
/// A filter's period has at least so many packets, as RFC 6817's: fewer say little of a link that
/// holds most.
const FILTERED: u32 = 4;
/// It is over after this time, however few there were.
const LONGEST_PERIOD: Span = Span::from_millis(800);
/// The delays of so many periods are remembered.
const PERIODS: usize = 10;
/// The first packets of a path, whose windows are too small for a queue: what their delays differ
/// by is the line's own doing.
const FIRST: u32 = 16;

/// When a packet is late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatenessOptions {
    /// δ: the share of the range of delays above the smallest one, 0 to 1.
    pub share: f64,
    /// The least distance of the threshold from the smallest delay.
    pub least: Span,
    /// The largest one; `None` for no bound.
    pub most: Option<Span>,
    /// The distance from the smallest delay beyond which a packet shows that there is a queue, and
    /// ends slow start; `None` for that of the threshold. Windows that double would fill the queue
    /// before the first late packet is known.
    pub queue: Option<Span>,
    /// A packet is judged by the least delay of a period of this time and four packets, and of the
    /// period before; `None`: by its own.
    pub filter: Option<Span>,
    /// How long delays are remembered; a route may change.
    pub memory: Span,
}

/// The least delay of a short time.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    from: Time,
    /// Packets since then.
    count: u32,
    /// Of the period that began then, and of the one before.
    least: [Option<Span>; 2],
}

impl Recent {
    /// A packet has come with this delay. Returns the least one of this period and the last one,
    /// which take `time` at least.
    fn handle_delay(&mut self, now: Time, time: Span, delay: Span) -> Span {
        let elapsed = now.since(self.from);
        if elapsed >= LONGEST_PERIOD {
            *self = Recent { from: now, ..Recent::default() };
        } else if elapsed >= time && self.count >= FILTERED {
            *self = Recent { from: now, count: 0, least: [None, self.least[0]] };
        }
        self.count = self.count.saturating_add(1);
        let least = self.least[0].map_or(delay, |least| least.min(delay));
        self.least[0] = Some(least);
        self.least[1].map_or(least, |before| least.min(before))
    }
}

/// The delays of one path.
#[derive(Clone, Debug)]
pub struct Lateness {
    options: LatenessOptions,
    /// The smallest and the largest delay of each period, the present one first.
    periods: [Option<(Span, Span)>; PERIODS],
    began: Option<Time>,
    /// Over all periods.
    range: Option<(Span, Span)>,
    recent: Recent,
    /// Packets so far, at most [`FIRST`].
    count: u32,
    /// The largest delay of the first ones.
    first_most: Span,
}

impl Lateness {
    /// A path without delays.
    #[must_use]
    pub fn new(options: LatenessOptions) -> Lateness {
        let share = options.share.clamp(0.0, 1.0);
        let options = LatenessOptions { share, ..options };
        Lateness {
            options,
            periods: [None; PERIODS],
            began: None,
            range: None,
            recent: Recent::default(),
            count: 0,
            first_most: Span::ZERO,
        }
    }

    /// The weight of a packet with this delay; zero if it is in time. Delays may have any origin.
    pub fn handle_delay(&mut self, now: Time, delay: Span) -> f64 {
        self.expire(now);
        let wider = |range: Option<(Span, Span)>| match range {
            None => Some((delay, delay)),
            Some((least, most)) => Some((least.min(delay), most.max(delay))),
        };
        self.periods[0] = wider(self.periods[0]);
        self.range = wider(self.range);
        if self.count < FIRST {
            self.count += 1;
            self.first_most = self.first_most.max(delay);
        }
        let judged =
            self.options.filter.map_or(delay, |time| self.recent.handle_delay(now, time, delay));
        self.weight(judged)
    }

    /// Whether a packet with this delay is in time. It is not remembered: probes are small.
    #[must_use]
    pub fn is_in_time(&self, delay: Span) -> bool {
        self.weight(delay) <= 0.0
    }

    /// Whether a packet with this delay came through a queue, late or not. Where delays of the
    /// first packets differ, it has to be longer, but not beyond that of a late packet.
    #[must_use]
    pub fn shows_queue(&self, delay: Span) -> bool {
        let (Some(least), Some(distance)) = (self.least(), self.distance()) else { return false };
        let beyond = self
            .options
            .queue
            .map_or(distance, |queue| (queue + (self.first_most - least)).min(distance).max(queue));
        delay > least + beyond
    }

    /// The smallest delay that is remembered.
    #[must_use]
    pub fn least(&self) -> Option<Span> {
        self.range.map(|(least, _)| least)
    }

    /// The largest delay that is remembered.
    #[must_use]
    pub fn most(&self) -> Option<Span> {
        self.range.map(|(_, most)| most)
    }

    /// The distance of the threshold from the smallest delay.
    #[must_use]
    pub fn distance(&self) -> Option<Span> {
        let (least, most) = self.range?;
        let share = Span::from_secs_f64(self.options.share * (most - least).as_secs_f64());
        let distance = share.max(self.options.least);
        Some(self.options.most.map_or(distance, |most| distance.min(most)))
    }

    fn weight(&self, delay: Span) -> f64 {
        let (Some(least), Some(distance)) = (self.least(), self.distance()) else { return 0.0 };
        if delay <= least + distance || distance == Span::ZERO {
            return 0.0;
        }
        let ratio = (delay - least).as_secs_f64() / distance.as_secs_f64();
        (ratio * ratio).min(MOST_WEIGHT)
    }

    /// Forgets periods that are over.
    fn expire(&mut self, now: Time) {
        let began = *self.began.get_or_insert(now);
        let period = Span::from_nanos(self.options.memory.as_nanos() / PERIODS as u64);
        if now.since(began) < period {
            return;
        }
        self.began = Some(now);
        self.periods.rotate_right(1);
        self.periods[0] = None;
        let kept = self.periods.iter().flatten();
        self.range = kept.copied().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }
}

impl DelayRange for Lateness {
    fn range(&self) -> Option<(Span, Span)> {
        self.range
    }

    fn set_range(&mut self, least: Span, most: Span) {
        self.periods = [None; PERIODS];
        self.periods[0] = Some((least, most.max(least)));
        self.range = self.periods[0];
        self.recent = Recent::default();
    }

    fn forget(&mut self) {
        *self = Lateness::new(self.options);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: LatenessOptions = LatenessOptions {
        share: 0.15,
        least: Span::from_micros(2_500),
        most: None,
        queue: None,
        filter: None,
        memory: Span::from_secs(600),
    };

    fn millis(n: u64) -> Span {
        Span::from_millis(n)
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} {right}");
    }

    #[test]
    fn weights_are_squares_of_the_ratio() {
        let mut path = Lateness::new(PAPER);
        near(path.handle_delay(Time::ZERO, millis(25)), 0.0);
        // The range is 100 ms, the threshold 15 ms above the least.
        near(path.handle_delay(Time::ZERO, millis(125)), 40.0);
        near(path.handle_delay(Time::ZERO, millis(40)), 0.0);
        near(path.handle_delay(Time::ZERO, millis(55)), 4.0);
        near(path.handle_delay(Time::ZERO, millis(85)), 16.0);
        assert!(path.is_in_time(millis(40)));
        assert!(!path.is_in_time(millis(41)));
    }

    #[test]
    fn the_distance_has_bounds() {
        let mut path = Lateness::new(PAPER);
        assert_eq!(path.distance(), None);
        path.handle_delay(Time::ZERO, millis(25));
        // One packet's time above is not late while the range is not learnt.
        near(path.handle_delay(Time::ZERO, millis(27)), 0.0);
        assert_eq!(path.distance(), Some(Span::from_micros(2_500)));
        let mut path = Lateness::new(LatenessOptions { most: Some(millis(5)), ..PAPER });
        path.handle_delay(Time::ZERO, millis(25));
        path.handle_delay(Time::ZERO, millis(425));
        assert_eq!(path.distance(), Some(millis(5)));
    }

    #[test]
    fn a_packet_that_is_not_late_shows_a_queue() {
        let queue = Some(millis(5));
        let mut path = Lateness::new(LatenessOptions { least: millis(10), queue, ..PAPER });
        assert!(!path.shows_queue(millis(90)), "nothing is known");
        path.handle_delay(Time::ZERO, millis(25));
        assert!(!path.shows_queue(millis(30)));
        assert!(path.shows_queue(millis(31)) && path.is_in_time(millis(31)));
        near(path.handle_delay(Time::ZERO, millis(31)), 0.0);
        // Without a distance of its own it is that of late packets.
        let mut path = Lateness::new(LatenessOptions { least: millis(10), ..PAPER });
        path.handle_delay(Time::ZERO, millis(25));
        assert!(!path.shows_queue(millis(35)) && path.shows_queue(millis(36)));
    }

    #[test]
    fn a_line_with_jitter_shows_a_queue_later() {
        let queue = Some(Span::from_micros(2_500));
        let options = LatenessOptions { least: millis(5), queue, ..PAPER };
        for (jitter, beyond) in [(0, 2_500), (1_000, 3_500), (4_000, 5_000), (90_000, 5_000)] {
            let most = LatenessOptions { most: Some(millis(5)), ..options };
            let mut path = Lateness::new(most);
            for number in 0..u64::from(FIRST) {
                path.handle_delay(
                    Time::ZERO,
                    millis(25) + Span::from_micros(jitter) * (number % 2),
                );
            }
            // Later ones may have come through a queue.
            path.handle_delay(Time::ZERO, millis(200));
            let at = millis(25) + Span::from_micros(beyond);
            assert!(!path.shows_queue(at), "{jitter}");
            assert!(path.shows_queue(at + Span::from_micros(1)), "{jitter}");
        }
    }

    #[test]
    fn a_queue_that_stands_is_late_and_a_packet_that_waits_alone_is_not() {
        let filter = Some(millis(50));
        let mut path = Lateness::new(LatenessOptions { filter, ..PAPER });
        let mut weight = |at: u64, delay: u64| {
            path.handle_delay(Time::ZERO + Span::from_secs(20) + millis(at), millis(delay))
        };
        // A radio link holds most of them for a while.
        for at in (0..=130).step_by(5) {
            near(weight(at, if at % 40 == 10 { 25 } else { 65 }), 0.0);
        }
        // Then all wait. The last that did not counts in its period, and in the next one.
        for at in (135..200).step_by(5) {
            near(weight(at, 65), 0.0);
        }
        // The range is 40 ms and the threshold 6, 40 are beyond it by more than weights go.
        near(weight(200, 65), 40.0);
        // The least of two periods is twice the threshold beyond the least delay.
        for at in (205..300).step_by(5) {
            near(weight(at, if at == 205 { 37 } else { 65 }), 4.0);
        }
        near(weight(300, 65), 40.0);
        // Where few come a period has four packets: from 310 to 610 ms, and as many more.
        near(weight(310, 25), 0.0);
        for at in (410..1_010).step_by(100) {
            near(weight(at, 65), 0.0);
        }
        near(weight(1_110, 65), 40.0);
        // After a pause a packet is judged by itself.
        near(weight(1_120, 25), 0.0);
        near(weight(11_130, 65), 40.0);
        // The clock of the other end was set: nothing before it counts.
        near(weight(11_140, 25), 0.0);
        path.set_range(millis(200), millis(300));
        near(path.handle_delay(Time::ZERO + millis(31_150), millis(300)), 40.0);
    }

    #[test]
    fn delays_are_forgotten_after_the_memory() {
        let mut path = Lateness::new(PAPER);
        path.handle_delay(Time::ZERO, millis(25));
        for second in 1..=599 {
            let weight = path.handle_delay(Time::ZERO + Span::from_secs(second), millis(35));
            assert!(weight > 0.0, "after {second} s");
        }
        for second in 600..=660 {
            path.handle_delay(Time::ZERO + Span::from_secs(second), millis(35));
        }
        assert_eq!(path.least(), Some(millis(35)));
        path.set_range(millis(90), millis(190));
        assert_eq!(path.distance(), Some(millis(15)));
        let later = Time::ZERO + Span::from_secs(661);
        assert!(path.handle_delay(later, millis(106)) > 0.0);
    }
}
