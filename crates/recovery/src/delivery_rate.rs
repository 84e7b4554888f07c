//! Delivery rate samples, and round trips counted by packets
//! (draft-cheng-iccrg-delivery-rate-estimation).

use units::{Bytes, Rate, Span, Time};

/// Counts delivered bytes. The sender keeps a [`SendSnapshot`] of this for each packet; with the
/// packet's delivery, it gives the rate at which the path delivered in between. The order of the
/// fields is fixed: an endpoint that sends nothing reads only the first two.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DeliveryRate {
    delivered: u64,
    /// Samples are application-limited until `delivered` reaches this (`C.app_limited`).
    app_limited_until: u64,
    /// When the latest packet was delivered.
    delivered_at: Time,
    /// When the most recently delivered packet was sent (`C.first_sent_time`): sampling intervals
    /// begin there.
    first_sent_at: Time,
    round: u64,
    /// When the latest round trip began.
    round_at: Time,
}

/// The delivery counters at the time a packet was sent (`P.delivered`, `P.delivered_time`,
/// `P.first_sent_time`). The sender keeps [`DeliveryRate::is_app_limited`] beside it, where a flag
/// takes no extra space.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSnapshot {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
}

impl DeliveryRate {
    /// The counters of a path that opens at `now`.
    #[must_use]
    pub fn new(now: Time) -> DeliveryRate {
        DeliveryRate { delivered_at: now, first_sent_at: now, ..DeliveryRate::default() }
    }

    /// A packet leaves while nothing is in flight: intervals begin anew, so that idle time does not
    /// count.
    #[inline]
    pub fn restart(&mut self, now: Time) {
        (self.first_sent_at, self.delivered_at) = (now, now);
    }

    /// The snapshot for a packet that leaves now.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> SendSnapshot {
        let DeliveryRate { delivered, delivered_at, first_sent_at, .. } = *self;
        SendSnapshot { delivered, delivered_at, first_sent_at }
    }

    /// Whether a packet that leaves now would give an application-limited sample.
    #[inline]
    #[must_use]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until > self.delivered
    }

    /// The window had room and there was nothing to send: samples are application-limited until
    /// what is in flight is delivered.
    #[inline]
    pub fn note_idle(&mut self, in_flight: Bytes) {
        self.app_limited_until = self.idle_mark(in_flight);
    }

    /// Whether [`DeliveryRate::note_idle`] was called and nothing has been sent or delivered since.
    #[inline]
    #[must_use]
    pub fn is_idle_noted(&self, in_flight: Bytes) -> bool {
        self.app_limited_until == self.idle_mark(in_flight)
    }

    /// The value of `delivered` at which the application limit ends if the application has nothing
    /// to send now.
    #[inline]
    fn idle_mark(&self, in_flight: Bytes) -> u64 {
        (self.delivered + in_flight.0).max(1)
    }

    /// An acknowledgement delivers `bytes`; the latest sent of its packets left at `sent_at`.
    #[inline]
    pub fn handle_delivered(&mut self, now: Time, bytes: Bytes, sent_at: Time) {
        self.delivered += bytes.0;
        self.delivered_at = now;
        self.first_sent_at = sent_at;
        if sent_at >= self.round_at {
            self.round += 1;
            self.round_at = now;
        }
    }

    /// The rate at which the path delivered since the packet with the snapshot `newest` left; call
    /// it after [`DeliveryRate::handle_delivered`]. `None` if the interval is shorter than
    /// `min_rtt`: such a sample measures how acknowledgements cluster, not the path.
    #[inline]
    #[must_use]
    pub fn sample(
        &self,
        now: Time,
        sent_at: Time,
        newest: &SendSnapshot,
        min_rtt: Span,
    ) -> Option<Rate> {
        let interval = (now - newest.delivered_at).max(sent_at - newest.first_sent_at);
        let is_valid = interval >= min_rtt && interval > Span::ZERO;
        is_valid.then(|| -> Rate { Bytes(self.delivered - newest.delivered) / interval })
    }

    /// Round trips so far; each ends when a packet is delivered that was sent after the one before
    /// ended.
    #[inline]
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    const RTT: Span = Span::from_millis(10);

    #[test]
    fn a_steady_flight_gives_its_rate() {
        let mut rate = DeliveryRate::new(at(0));
        // A packet of 1000 bytes each millisecond: 8 Mbit/s.
        let snapshots: [SendSnapshot; 40] = core::array::from_fn(|n| {
            let n = n as u64;
            if n >= 10 {
                rate.handle_delivered(at(n), Bytes(1_000), at(n - 10));
            }
            rate.snapshot()
        });
        assert_eq!(rate.sample(at(39), at(29), &snapshots[29], RTT), Some(Rate::mbit(8)));
    }

    #[test]
    fn acknowledgements_in_a_cluster_are_not_faster_than_the_packets_left() {
        let mut rate = DeliveryRate::new(at(0));
        let first = rate.snapshot();
        rate.handle_delivered(at(10), Bytes(1_000), at(0));
        assert_eq!(rate.sample(at(10), at(0), &first, RTT), Some(Bytes(1_000) / RTT));
        let second = rate.snapshot();
        // The interval is the longer one of sending (20 ms) and of delivery (22 ms).
        rate.handle_delivered(at(32), Bytes(20_000), at(20));
        assert_eq!(
            rate.sample(at(32), at(20), &second, RTT),
            Some(Bytes(20_000) / Span::from_millis(22))
        );
    }

    #[test]
    fn an_interval_below_the_min_rtt_gives_no_sample() {
        let mut rate = DeliveryRate::new(at(0));
        let snapshot = rate.snapshot();
        rate.handle_delivered(at(5), Bytes(1_000), at(0));
        assert_eq!(rate.sample(at(5), at(0), &snapshot, RTT), None);
    }

    #[test]
    fn the_application_limits_until_what_was_in_flight_is_delivered() {
        let mut rate = DeliveryRate::new(at(0));
        assert!(!rate.is_app_limited());
        assert!(!rate.is_idle_noted(Bytes(2_000)));
        rate.note_idle(Bytes(2_000));
        assert!(rate.is_idle_noted(Bytes(2_000)));
        assert!(rate.is_app_limited());
        rate.handle_delivered(at(10), Bytes(2_000), at(0));
        assert!(!rate.is_app_limited());
    }

    #[test]
    fn a_round_trip_lasts_from_sending_to_delivery() {
        let mut rate = DeliveryRate::new(at(0));
        rate.handle_delivered(at(10), Bytes(1_000), at(0));
        assert_eq!(rate.round(), 1);
        rate.handle_delivered(at(11), Bytes(1_000), at(1));
        assert_eq!(rate.round(), 1, "it left before the round trip began");
        rate.handle_delivered(at(20), Bytes(1_000), at(10));
        assert_eq!(rate.round(), 2);
    }
}
