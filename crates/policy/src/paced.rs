//! Harp over the kernel's TCP: its rule on the round trips that the kernel reports, carried out by
//! a pace.
//!
//! It is weaker than the [controller](crate::cc::Harp) of a striped connection. It sees a smoothed
//! round trip some forty times a second in place of each packet's one-way delay, so that a queue on
//! the way of acknowledgements counts too, and the kernel's own controller answers losses.

use units::{Bytes, Rate, Span, SubflowId, Time};

use crate::cc::{Delivered, Harp, HarpOptions, HarpStanding, Lateness};

/// The one path.
const PATH: SubflowId = SubflowId(0);
/// How long receivers keep an acknowledgement back for a second segment, as a rule.
const DELAYED_ACK: Span = Span::from_millis(40);
/// The slowest pace: a packet a second.
const SLOWEST: Rate = Rate::from_bits(12_000);

/// The pace of one connection of the kernel's TCP in the background.
///
/// ```
/// use policy::paced::{PacedHarp, Reading};
/// use units::{Bytes, Span, Time};
///
/// let mut paced = PacedHarp::default();
/// let reading = Reading {
///     rtt: Span::from_millis(40),
///     mss: Bytes(1_448),
///     acked: Bytes(100_000),
///     ..Reading::default()
/// };
/// let pace = paced.handle_reading(Time::ZERO, &reading);
/// assert!(pace.is_some(), "the first pace is known with the first round trip");
/// ```
#[derive(Clone, Debug)]
pub struct PacedHarp {
    harp: Harp,
    lateness: Lateness,
    last: Option<Reading>,
}

/// What the kernel counts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The smoothed round-trip time; zero before the first sample.
    pub rtt: Span,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// Payload that the peer acknowledged since the connection began.
    pub acked: Bytes,
    /// Segments in flight.
    pub in_flight: u32,
    /// Segments sent again since the connection began.
    pub retransmits: u64,
    /// The rate of the latest round trip, if the application did not bound it.
    pub delivery_rate: Option<Rate>,
}

impl Default for PacedHarp {
    fn default() -> PacedHarp {
        let mut options = HarpOptions::modern();
        // The kernel's round trips are smoothed, and come forty times a second.
        options.lateness.filter = None;
        let (harp, lateness) = (Harp::new(options), Lateness::new(options.lateness));
        PacedHarp { harp, lateness, last: None }
    }
}

impl PacedHarp {
    /// Takes what the kernel counts at present, several times a round trip. Returns the pace from
    /// now on; `None` before the first round trip.
    pub fn handle_reading(&mut self, now: Time, reading: &Reading) -> Option<Rate> {
        if reading.rtt == Span::ZERO || reading.mss == Bytes::ZERO {
            return None;
        }
        let before = self.last.replace(*reading);
        if before.is_none() {
            self.harp.add(PATH, reading.mss);
        }
        let last = before.unwrap_or(*reading);
        let bytes = Bytes(reading.acked.0.saturating_sub(last.acked.0));
        if bytes > Bytes::ZERO {
            self.handle_delivered(now, reading, bytes);
        }
        if reading.retransmits > last.retransmits {
            self.harp.handle_missing(now, PATH);
        }
        Some(self.pace(reading))
    }

    fn handle_delivered(&mut self, now: Time, reading: &Reading, bytes: Bytes) {
        let trip = self.trip(reading);
        let late = self.lateness.handle_delay(now, trip);
        let least = self.lateness.least().unwrap_or(trip);
        self.harp.note_queue(PATH, trip - least);
        if self.lateness.shows_queue(trip) {
            self.harp.handle_queue(now, PATH);
        }
        let in_flight = f64::from(reading.in_flight) * reading.mss.as_f64();
        let delivered = Delivered {
            bytes,
            smoothed_rtt: reading.rtt,
            min_rtt: least,
            rate: reading.delivery_rate,
            may_grow: in_flight + reading.mss.as_f64() >= self.harp.window(PATH) / 2.0,
        };
        self.harp.handle_delivered(now, PATH, &delivered);
        // The round trip is that of all packets since the last reading.
        let packets = (bytes.as_f64() / reading.mss.as_f64()).max(1.0);
        self.harp.handle_late(now, PATH, late * packets, Some(trip - least));
    }

    /// The round trip without the time for which the acknowledgement was kept back. One covers two
    /// segments, and the kernel's sample is that of the older one: at a slow pace each would seem
    /// late by the time between two, and the pace would stay slow.
    fn trip(&self, reading: &Reading) -> Span {
        let least = self.lateness.least().unwrap_or(reading.rtt).min(reading.rtt);
        let between = reading.mss.as_f64() / self.harp.window(PATH).max(1.0);
        let waited = Span::from_secs_f64(reading.rtt.as_secs_f64() * between).min(DELAYED_ACK);
        if reading.rtt > least + waited { reading.rtt - waited } else { least }
    }

    /// The window in a round trip.
    fn pace(&self, reading: &Reading) -> Rate {
        let bits = self.harp.window(PATH) * 8.0 / reading.rtt.as_secs_f64();
        Rate::from_bits_f64(bits).max(SLOWEST)
    }

    /// What the path is like; `None` before the first round trip.
    #[must_use]
    pub fn standing(&self) -> Option<HarpStanding> {
        let standing = self.harp.standing(PATH)?;
        // Its round trips are here.
        let delays = self.lateness.least().zip(self.lateness.most());
        Some(HarpStanding { delays, ..standing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_448;
    const BASE: Span = Span::from_millis(40);
    const EVERY: Span = Span::from_millis(25);

    /// A line as a fluid: a queue that grows with what is sent beyond the rate, and a kernel that
    /// sends at the pace and smooths its round trips.
    struct Line {
        now: Time,
        paced: PacedHarp,
        /// Mbit/s.
        rate: f64,
        /// Mbit/s of others, who do not yield.
        others: f64,
        /// Bytes that wait, and how many fit.
        queue: f64,
        room: f64,
        reading: Reading,
        pace: f64,
        base: f64,
        /// Whether acknowledgements wait for a second segment.
        waits: bool,
        smoothed: f64,
    }

    impl Line {
        fn new(rate: f64, room: Span) -> Line {
            let reading = Reading { rtt: BASE, mss: Bytes(MSS), ..Reading::default() };
            Line {
                now: Time::ZERO,
                paced: PacedHarp::default(),
                rate,
                others: 0.0,
                queue: 0.0,
                room: rate * 125e3 * room.as_secs_f64(),
                reading,
                pace: 0.1,
                base: BASE.as_secs_f64(),
                waits: false,
                smoothed: BASE.as_secs_f64(),
            }
        }

        /// Runs for so long; returns the mean of the rate in Mbit/s, and of the queue in ms.
        fn run(&mut self, time: Span) -> (f64, f64) {
            let steps = time.as_millis() / EVERY.as_millis();
            let (mut sent, mut waited) = (0.0, 0.0);
            for _ in 0..steps {
                self.now += EVERY;
                let step = EVERY.as_secs_f64();
                let all = self.pace + self.others;
                let share = (self.rate / all).min(1.0);
                // What waits goes on at the line's rate, whoever sends.
                let own =
                    if self.queue > 0.0 { self.rate * self.pace / all } else { self.pace * share };
                self.queue = (self.queue + (all - self.rate) * 125e3 * step).clamp(0.0, self.room);
                let delay = self.queue / (self.rate * 125e3);
                let between = if self.waits { 1_448.0 / (self.pace * 125e3) } else { 0.0 };
                let trip = self.base + delay + between.min(DELAYED_ACK.as_secs_f64());
                self.smoothed += 0.5 * (trip - self.smoothed);
                let bytes = own * 125e3 * step;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let reading = Reading {
                    rtt: Span::from_secs_f64(self.smoothed),
                    acked: self.reading.acked + Bytes(bytes as u64),
                    in_flight: (self.pace * 125e3 * self.smoothed / 1_448.0) as u32,
                    delivery_rate: Some(Rate::from_bits_f64(own * 1e6)),
                    ..self.reading
                };
                self.reading = reading;
                let pace = self.paced.handle_reading(self.now, &reading).expect("a round trip");
                self.pace = pace.as_f64() / 1e6;
                sent += bytes;
                waited += delay;
            }
            #[allow(clippy::cast_precision_loss)]
            let steps = steps as f64;
            (sent * 8e-6 / time.as_secs_f64(), waited / steps * 1e3)
        }
    }

    #[test]
    fn alone_it_fills_the_line_without_a_long_queue() {
        for rate in [5.0, 20.0, 100.0] {
            let mut line = Line::new(rate, Span::from_millis(160));
            line.run(Span::from_secs(20));
            let (sent, queue) = line.run(Span::from_secs(60));
            assert!(sent > 0.9 * rate && queue < 12.0, "{rate}: {sent} Mbit/s, {queue} ms");
        }
    }

    #[test]
    fn it_leaves_a_line_whose_queue_others_fill_and_comes_back() {
        let mut line = Line::new(20.0, Span::from_millis(160));
        line.run(Span::from_secs(30));
        line.others = 20.0;
        line.run(Span::from_secs(5));
        let (sent, _) = line.run(Span::from_secs(30));
        assert!(sent < 0.5, "{sent} Mbit/s beside others");
        let standing = line.paced.standing().expect("it has sent");
        assert!(standing.is_backed_off && standing.backed_off > Span::from_secs(25));
        let (least, most) = standing.delays.expect("it has sent");
        assert!(most - least > Span::from_millis(50), "{least} {most}");
        line.others = 0.0;
        line.run(Span::from_secs(30));
        let (sent, _) = line.run(Span::from_secs(30));
        assert!(sent > 18.0, "{sent} Mbit/s alone again");
    }

    /// Found on a line of 20 Mbit/s and 100 ms: it stayed at 1.2 Mbit/s, with nobody else there.
    #[test]
    fn acknowledgements_that_wait_for_a_second_segment_are_no_queue() {
        for millis in [20.0, 100.0, 250.0] {
            let mut line = Line::new(20.0, Span::from_millis(160));
            (line.base, line.smoothed, line.waits) = (millis / 1e3, millis / 1e3, true);
            line.run(Span::from_secs(1));
            line.others = 20.0;
            line.run(Span::from_secs(10));
            let (sent, _) = line.run(Span::from_secs(20));
            assert!(sent < 1.0, "{millis} ms: {sent} Mbit/s beside others");
            line.others = 0.0;
            line.run(Span::from_secs(60));
            let (sent, queue) = line.run(Span::from_secs(60));
            assert!(sent > 17.0 && queue < 12.0, "{millis} ms: {sent} Mbit/s, {queue} ms");
        }
    }

    #[test]
    fn nothing_is_known_before_a_round_trip() {
        let mut paced = PacedHarp::default();
        assert_eq!(paced.handle_reading(Time::ZERO, &Reading::default()), None);
        assert_eq!(paced.standing(), None);
    }

    #[test]
    fn segments_sent_again_halve_the_pace_once_a_round_trip() {
        let mut line = Line::new(20.0, Span::from_millis(160));
        line.run(Span::from_secs(20));
        let before = line.pace;
        let mut lossy = line.reading;
        for (millis, share) in [(1, 0.5), (2, 0.5), (80, 0.25)] {
            lossy.retransmits += 1;
            let now = line.now + Span::from_millis(millis);
            let pace = line.paced.handle_reading(now, &lossy).expect("a round trip");
            let found = pace.as_f64() / 1e6 / before;
            assert!((found - share).abs() < 0.02, "after {millis} ms: {found}");
        }
    }
}
