//! Whether the losses of a connection are the line's own, and not those of a full queue.
//!
//! A drop-tail queue drops a packet when it is full, so that the packets before the lost one have
//! waited in it: the round trips just before the loss are longer than the shortest by the time that
//! the queue holds. Where they are not, the line lost the packet. CUBIC (RFC 9438) reduces its
//! window for both, and for the latter leaves the line idle until the window is regained. On a long
//! path this takes seconds, so that one loss in ten thousand packets costs most of the rate.
//!
//! [`LineLoss`] looks at counters that an operating system keeps for every connection. A loss is a
//! **clear** sign if
//! - some round trip within the last two before it shows no queue of an eighth of the shortest
//!   round trip: there was no standing queue;
//! - few packets are lost, because slow start that overruns a shallow queue loses many;
//! - except in slow start, whose bursts fill queues for a moment, no round trip just before or
//!   after it shows a queue of a quarter.
//!
//! One clear sign is enough, since no full queue explains it. If samples are more than a round trip
//! apart, they may miss the queue: three losses that meet the other conditions are then enough, if
//! losses with a queue are not more frequent.
//!
//! In both cases the losses must matter: what CUBIC needs to regain its window after each of them
//! must exceed 2 % of the time.

use units::{Span, Time};

/// The counters of a connection at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The smoothed round-trip time, which follows the last few acknowledgements.
    pub rtt: Span,
    /// The shortest round trip so far.
    pub min_rtt: Span,
    /// The congestion window in packets.
    pub window: u32,
    /// The slow start threshold in packets; `None` while slow start has no bound.
    pub threshold: Option<u32>,
    /// Packets in flight.
    pub in_flight: u32,
    /// Packets sent again since the beginning.
    pub retransmits: u64,
    /// Of those, the ones that the receiver had already.
    pub spurious: u64,
    /// Packets sent since the beginning.
    pub sent: u64,
    /// Whether the retransmission timer has run out since the last acknowledgement.
    pub has_timed_out: bool,
}

impl Counters {
    /// Whether the window grows as in slow start.
    fn is_in_slow_start(&self) -> bool {
        self.threshold.is_none_or(|threshold| self.window < threshold)
    }

    /// Whether the window limits what is sent.
    fn is_held_by_window(&self) -> bool {
        self.in_flight >= self.window / 4 * 3
    }
}

/// The losses are the line's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossyLine {
    /// The share of the sent packets that were lost so far.
    pub lost: f64,
}

/// The share of time from which on the losses matter: what BBR is slower than CUBIC on lines
/// without loss.
const WORTH_IT: f64 = 0.02;
/// Signs fade with this time constant.
const MEMORY_SECONDS: f64 = 30.0;
/// A loss is judged this long after it, or after 5/4 of a round trip if that is longer: by then the
/// reduced window shows, and needless retransmissions are known as such.
const SETTLING: Span = Span::from_millis(50);
/// Shorter delays are noise.
const MIN_QUEUE: Span = Span::from_millis(3);
/// Unclear signs that are enough: three, not quite fresh.
const ENOUGH: f64 = 2.5;

/// Watches one connection under CUBIC.
#[derive(Clone, Debug, Default)]
pub struct LineLoss {
    last: Option<(Time, Counters)>,
    began: Time,
    rounds: RoundTrips,
    event: Option<LossEvent>,
    signs: Signs,
}

/// A loss that is not judged yet.
#[derive(Clone, Copy, Debug)]
struct LossEvent {
    until: Time,
    /// The last sample before it.
    before: Counters,
    /// The least and the greatest round-trip time around it.
    low: Span,
    high: Span,
    /// Whether the samples are close enough to show each round trip.
    is_well_sampled: bool,
    has_timed_out: bool,
}

impl LineLoss {
    /// Takes the counters, in intervals of a few tens of milliseconds. Returns a verdict once the
    /// line turns out to lose packets; the caller then stops.
    pub fn look(&mut self, now: Time, sample: &Counters) -> Option<LossyLine> {
        let Some((at, before)) = self.last.replace((now, *sample)) else {
            self.began = now;
            self.rounds = RoundTrips::new(now, sample.rtt);
            return None;
        };
        if self.event.is_none() && sample.retransmits > before.retransmits {
            let (low, high) = self.rounds.range();
            self.event = Some(LossEvent {
                until: now + SETTLING.max(sample.rtt / 4 * 5),
                before,
                low,
                high,
                is_well_sampled: now.since(at) <= sample.min_rtt,
                has_timed_out: false,
            });
        }
        self.rounds.add(now, sample.rtt);
        let event = self.event.as_mut()?;
        event.high = event.high.max(sample.rtt);
        event.has_timed_out |= sample.has_timed_out;
        if now < event.until {
            return None;
        }
        let event = self.event.take()?;
        self.judge(now, &event, sample)
    }

    fn judge(&mut self, now: Time, event: &LossEvent, sample: &Counters) -> Option<LossyLine> {
        let before = &event.before;
        let again = sample.retransmits - before.retransmits;
        let lost = again.saturating_sub(sample.spurious.saturating_sub(before.spurious));
        if lost == 0 || !before.is_held_by_window() {
            return None;
        }
        // By now the queue may have drained and shown a shorter round trip than any before.
        let shortest = sample.min_rtt;
        let queued = event.high - shortest > MIN_QUEUE.max(shortest / 4);
        let is_standing = event.low - shortest > shortest / 8;
        let is_few = lost <= 2 + u64::from(before.window / 32);
        // During a timeout nothing is acknowledged, so that the round-trip time is an old one.
        let is_clear = event.is_well_sampled
            && !event.has_timed_out
            && !is_standing
            && is_few
            && (before.is_in_slow_start() || !queued);
        self.signs.fade(now);
        if !is_clear && (queued || event.has_timed_out) {
            self.signs.with_queue += 1.0;
            return None;
        }
        if !is_few {
            return None;
        }
        self.signs.without_queue += 1.0;
        self.signs.clear |= is_clear;
        self.signs.idle += idle_after_loss(before.window, sample.min_rtt);
        let is_worth_it = self.signs.idle_share(now.since(self.began)) > WORTH_IT;
        #[expect(clippy::cast_precision_loss, reason = "a share for display")]
        let verdict = LossyLine { lost: sample.retransmits as f64 / sample.sent.max(1) as f64 };
        (self.signs.suffice() && is_worth_it).then_some(verdict)
    }
}

/// The time at full rate, in seconds, that CUBIC loses by one reduction of a window of `packets`:
/// the integral of what is missing until it is regained, by the cubic function (RFC 9438, section
/// 4.2) or by its Reno-friendly region (section 4.3), whichever is faster; C = .4 and β = .7.
fn idle_after_loss(packets: u32, rtt: Span) -> f64 {
    let packets = f64::from(packets);
    let cubic = 0.3 / 4.0 * libm::cbrt(0.3 * packets / 0.4);
    let reno = 0.3 / 2.0 * (0.3 * packets / 0.53) * rtt.as_secs_f64();
    cubic.min(reno)
}

/// The losses so far, the older ones faded.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    at: Time,
    with_queue: f64,
    without_queue: f64,
    clear: bool,
    /// Seconds that CUBIC loses by the latter.
    idle: f64,
}

impl Signs {
    fn fade(&mut self, now: Time) {
        let kept = libm::exp(-now.since(self.at).as_secs_f64() / MEMORY_SECONDS);
        self.at = now;
        for value in [&mut self.with_queue, &mut self.without_queue, &mut self.idle] {
            *value *= kept;
        }
    }

    fn suffice(&self) -> bool {
        self.clear || self.without_queue >= ENOUGH && self.without_queue >= self.with_queue
    }

    /// The share of the time that is lost, if the connection is as old as `age`.
    fn idle_share(&self, age: Span) -> f64 {
        let remembered = MEMORY_SECONDS * (1.0 - libm::exp(-age.as_secs_f64() / MEMORY_SECONDS));
        self.idle / remembered.max(f64::EPSILON)
    }
}

/// The least and the greatest of the round-trip times of the last one to two round trips.
#[derive(Clone, Copy, Debug, Default)]
struct RoundTrips {
    began: Time,
    present: (Span, Span),
    previous: (Span, Span),
}

impl RoundTrips {
    fn new(now: Time, rtt: Span) -> RoundTrips {
        RoundTrips { began: now, present: (rtt, rtt), previous: (rtt, rtt) }
    }

    fn add(&mut self, now: Time, rtt: Span) {
        if now.since(self.began) >= rtt {
            *self = RoundTrips { began: now, present: (rtt, rtt), previous: self.present };
        } else {
            self.present = (self.present.0.min(rtt), self.present.1.max(rtt));
        }
    }

    fn range(&self) -> (Span, Span) {
        (self.present.0.min(self.previous.0), self.present.1.max(self.previous.1))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// By hand: of 100 packets at 20 ms Reno's region is faster, of 10,000 at 100 ms the curve.
    #[test]
    fn a_loss_costs_what_the_faster_of_both_growths_leaves() {
        for (packets, rtt, wanted) in [(100, 20, 0.169_811), (10_000, 100, 1.468_075)] {
            let found = idle_after_loss(packets, Span::from_millis(rtt));
            assert!((found - wanted).abs() < 1e-5, "{packets} packets: {found}");
        }
    }

    const SHORTEST: Span = Span::from_millis(100);
    const EVERY: Span = Span::from_millis(25);

    /// A connection whose counters a test changes, sampled every 25 ms.
    struct Connection {
        now: Time,
        sample: Counters,
        watch: LineLoss,
        verdicts: Vec<Time>,
    }

    impl Connection {
        /// In congestion avoidance, with a window that fills the line and no more.
        fn new() -> Connection {
            let sample = Counters {
                rtt: SHORTEST,
                min_rtt: SHORTEST,
                window: 500,
                threshold: Some(400),
                in_flight: 500,
                sent: 5_000,
                ..Counters::default()
            };
            Connection { now: Time::ZERO, sample, watch: LineLoss::default(), verdicts: Vec::new() }
        }

        fn run(&mut self, ms: u64) {
            let end = self.now + Span::from_millis(ms);
            while self.now < end {
                self.now += EVERY;
                self.verdicts.extend(self.watch.look(self.now, &self.sample).map(|_| self.now));
            }
        }

        fn lose(&mut self, packets: u64) {
            self.sample.retransmits += packets;
        }

        fn set_rtt(&mut self, ms: u64) {
            self.sample.rtt = Span::from_millis(ms);
        }

        /// The round-trip time goes up by a millisecond in each sample, from one to the other.
        fn fill(&mut self, from: u64, to: u64) {
            for ms in from..=to {
                self.set_rtt(ms);
                self.run(25);
            }
        }
    }

    #[test]
    fn one_loss_without_a_queue_is_the_lines() {
        let mut connection = Connection::new();
        connection.run(1_000);
        connection.lose(1);
        connection.run(500);
        let at = connection.verdicts[0] - Time::ZERO;
        assert!((1_125..1_200).contains(&at.as_millis()), "{at}");
    }

    #[test]
    fn losses_of_a_full_queue_are_not_however_shallow() {
        for full in [130, 160, 400] {
            let mut connection = Connection::new();
            for _ in 0..50 {
                connection.fill(100, full);
                connection.lose(2);
                connection.run(75);
            }
            assert!(connection.verdicts.is_empty(), "{full}");
        }
    }

    #[test]
    fn a_loss_in_slow_start_may_find_the_burst_in_the_queue() {
        let mut connection = Connection::new();
        connection.sample.threshold = None;
        connection.run(1_000);
        for _ in 0..3 {
            connection.set_rtt(105);
            connection.run(50);
            connection.set_rtt(140);
            connection.run(50);
        }
        connection.lose(1);
        connection.run(500);
        assert_eq!(connection.verdicts.len(), 1);
    }

    #[test]
    fn slow_start_that_overruns_a_queue_is_not_the_line() {
        let mut connection = Connection::new();
        connection.sample.threshold = None;
        connection.run(1_000);
        connection.set_rtt(140);
        connection.run(50);
        for _ in 0..5 {
            connection.lose(40);
            connection.run(25);
        }
        connection.run(1_000);
        assert!(connection.verdicts.is_empty());
    }

    #[test]
    fn a_queue_that_was_full_from_the_start_shows_as_it_drains() {
        let mut connection = Connection::new();
        connection.run(1_000);
        connection.lose(1);
        connection.run(100);
        connection.sample.min_rtt = Span::from_millis(70);
        connection.set_rtt(70);
        connection.run(1_000);
        assert!(connection.verdicts.is_empty());
    }

    #[test]
    fn packets_that_only_overtook_each_other_are_not_lost() {
        let mut connection = Connection::new();
        for _ in 0..50 {
            connection.lose(3);
            connection.run(100);
            connection.sample.spurious += 3;
            connection.run(200);
        }
        assert!(connection.verdicts.is_empty());
    }

    #[test]
    fn the_window_must_be_what_limits() {
        let mut connection = Connection::new();
        connection.sample.in_flight = 100;
        for _ in 0..50 {
            connection.lose(1);
            connection.run(300);
        }
        assert!(connection.verdicts.is_empty());
    }

    #[test]
    fn losses_too_rare_to_matter_do_not_count() {
        let mut connection = Connection::new();
        for _ in 0..20 {
            connection.run(120_000);
            connection.lose(1);
        }
        assert!(connection.verdicts.is_empty());
        connection.run(5_000);
        connection.lose(1);
        connection.run(1_000);
        assert_eq!(connection.verdicts.len(), 1, "two in a few seconds matter");
    }

    #[test]
    fn short_round_trips_need_three_losses() {
        let mut connection = Connection::new();
        connection.sample.min_rtt = Span::from_millis(20);
        connection.set_rtt(21);
        connection.run(1_000);
        for lost in 1..=3 {
            assert!(connection.verdicts.is_empty(), "after {} losses", lost - 1);
            connection.lose(1);
            connection.run(100);
        }
        assert_eq!(connection.verdicts.len(), 1);
    }

    #[test]
    fn a_few_odd_losses_among_those_of_a_queue_do_not_decide() {
        let mut connection = Connection::new();
        connection.sample.min_rtt = Span::from_millis(20);
        for n in 0..100 {
            connection.set_rtt(if n % 3 == 0 { 21 } else { 45 });
            connection.run(100);
            connection.lose(1);
            connection.run(100);
        }
        assert!(connection.verdicts.is_empty());
    }

    #[test]
    fn a_timeout_says_nothing_about_the_queue() {
        let mut connection = Connection::new();
        for _ in 0..20 {
            connection.run(1_000);
            connection.lose(1);
            connection.sample.has_timed_out = true;
            connection.run(200);
            connection.sample.has_timed_out = false;
        }
        assert!(connection.verdicts.is_empty());
    }
}
