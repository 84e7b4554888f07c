//! How fast packets are delivered, and round trips counted by packets
//! (draft-cheng-iccrg-delivery-rate-estimation).

use units::{Bytes, Rate, Span, Time};

/// Counts what is delivered. Each packet carries a [`SendSnapshot`] of what was known when it left;
/// its delivery then says at what rate the path delivered meanwhile. The order of the fields is
/// kept: who sends nothing looks at the first two only.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct DeliveryRate {
    delivered: u64,
    /// Samples are limited by the application until this much is delivered.
    app_limited_until: u64,
    /// When the latest was delivered.
    delivered_at: Time,
    /// When the packet was sent that was delivered last: sampling intervals begin there.
    first_sent_at: Time,
    round: u64,
    /// When the latest round trip began.
    round_at: Time,
}

/// What was known when a packet left. Whether that was [limited by the
/// application](DeliveryRate::is_app_limited) is noted beside it, where there is room.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSnapshot {
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
}

impl DeliveryRate {
    /// Of a path that opens now.
    #[must_use]
    pub fn new(now: Time) -> DeliveryRate {
        DeliveryRate { delivered_at: now, first_sent_at: now, ..DeliveryRate::default() }
    }

    /// A packet leaves while nothing is in flight: what was before says nothing of the path.
    #[inline]
    pub fn restart(&mut self, now: Time) {
        (self.first_sent_at, self.delivered_at) = (now, now);
    }

    /// For a packet that leaves now.
    #[inline]
    #[must_use]
    pub fn snapshot(&self) -> SendSnapshot {
        let DeliveryRate { delivered, delivered_at, first_sent_at, .. } = *self;
        SendSnapshot { delivered, delivered_at, first_sent_at }
    }

    /// Whether a packet that leaves now does so because the application has no more.
    #[inline]
    #[must_use]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until > self.delivered
    }

    /// There was room, and nothing to send.
    #[inline]
    pub fn note_idle(&mut self, in_flight: Bytes) {
        self.app_limited_until = self.idle_mark(in_flight);
    }

    /// Whether that [was noted](DeliveryRate::note_idle), and nothing has changed since.
    #[inline]
    #[must_use]
    pub fn is_idle_noted(&self, in_flight: Bytes) -> bool {
        self.app_limited_until == self.idle_mark(in_flight)
    }

    /// What is to be delivered before packets are no longer limited by the application, if it has
    /// nothing to send now.
    #[inline]
    fn idle_mark(&self, in_flight: Bytes) -> u64 {
        (self.delivered + in_flight.0).max(1)
    }

    /// An acknowledgement delivers so much; the latest sent of the packets that it delivers left at
    /// `sent_at`.
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

    /// Then: the rate at which the path delivered since that packet left. `None` if less than the
    /// least round trip has passed, which says more of how acknowledgements cluster than of the
    /// path.
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

    /// Round trips so far, each from a packet's departure to its delivery.
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
    fn a_flight_that_leaves_and_comes_at_a_rate() {
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
        // It left 20 ms after the first, and came together with much else: over the 20 ms of
        // sending, not the 12 of coming.
        rate.handle_delivered(at(32), Bytes(20_000), at(20));
        assert_eq!(
            rate.sample(at(32), at(20), &second, RTT),
            Some(Bytes(20_000) / Span::from_millis(22))
        );
    }

    #[test]
    fn too_short_an_interval_says_nothing() {
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
    fn a_round_trip_from_departure_to_delivery() {
        let mut rate = DeliveryRate::new(at(0));
        rate.handle_delivered(at(10), Bytes(1_000), at(0));
        assert_eq!(rate.round(), 1);
        rate.handle_delivered(at(11), Bytes(1_000), at(1));
        assert_eq!(rate.round(), 1, "it left before the round trip began");
        rate.handle_delivered(at(20), Bytes(1_000), at(10));
        assert_eq!(rate.round(), 2);
    }
}
