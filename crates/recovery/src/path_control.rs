//! One path's sender half, as far as it knows neither sequence numbers nor a scoreboard.

use core::borrow::BorrowMut;

use units::{Bytes, Rate, Span, Time};

use crate::{DeliveryRate, HyStart, OneWayDelay, Pacer, RoundTrip};

/// A time that never comes.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// The measurements and the pace of one path: round-trip times and timeouts, delivery rates,
/// one-way delays, the end of slow start by delay, and when a choke or pacing allows the next
/// packet.
///
/// `H` holds the state of `HyStart++`: itself, or a box where senders must be small. The order of
/// the fields is fixed: an endpoint that sends nothing reads only the first two.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PathControl<H = HyStart> {
    /// When the next packet may leave, by the last question; [`NEVER`] if nothing holds it.
    held_until: Time,
    /// Delivery rates and round trips.
    pub rate: DeliveryRate,
    /// Round-trip times and timeouts.
    pub rtt: RoundTrip,
    /// The one-way delays of data and of acknowledgements.
    data_delay: OneWayDelay,
    ack_delay: OneWayDelay,
    hystart: Option<H>,
    pacer: Pacer,
}

/// How a sender paces where its controller gives no rate and its window is at least one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPacing {
    /// Not at all.
    Off,
    /// At [`Pacer::rate_of_window`], with bursts of this size.
    Burst(Bytes),
    /// At [`Pacer::rate_of_window`], with the bursts of [`Pacer::burst_of_rate`].
    BurstOfRate,
}

/// What limits the pace of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The size of a full packet.
    pub packet: Bytes,
    /// The congestion window.
    pub window: Bytes,
    /// The controller's rate and the size of its bursts.
    pub given: Option<(Rate, Bytes)>,
    /// The sender's own pacing.
    pub own: OwnPacing,
}

impl Pace {
    /// Whether packets are paced.
    #[inline]
    fn is_on(&self) -> bool {
        self.own != OwnPacing::Off || self.given.is_some() || self.window < self.packet
    }

    /// The pacing rate and burst size; `None`: no pacing. `is_slow_start` is asked only where the
    /// rate follows from the window.
    #[inline]
    fn rate(
        &self,
        smoothed: Option<Span>,
        is_slow_start: impl FnOnce() -> bool,
    ) -> Option<(Rate, Bytes)> {
        if let Some((rate, burst)) = self.given {
            return Some((rate, burst.max(self.packet)));
        }
        if !self.is_on() {
            return None;
        }
        let smoothed = smoothed?;
        if self.window < self.packet {
            // Less than one packet a round trip.
            let rate = self.window.max(Bytes(1)) / smoothed.max(Span::from_micros(1));
            return Some((rate, Bytes(1)));
        }
        let rate = Pacer::rate_of_window(self.window, smoothed, is_slow_start());
        let burst = match self.own {
            OwnPacing::Burst(burst) => burst,
            OwnPacing::Off | OwnPacing::BurstOfRate => Pacer::burst_of_rate(rate, self.packet),
        };
        Some((rate, burst))
    }
}

impl<H: BorrowMut<HyStart>> PathControl<H> {
    /// A path that opens at `now`, whose timeouts are at least `floor`. `hystart` is the state of
    /// `HyStart++`, if it is to end slow start.
    #[must_use]
    pub fn new(now: Time, floor: Span, hystart: Option<H>) -> PathControl<H> {
        PathControl {
            held_until: NEVER,
            rate: DeliveryRate::new(now),
            rtt: RoundTrip::new(floor),
            data_delay: OneWayDelay::default(),
            ack_delay: OneWayDelay::default(),
            hystart,
            pacer: Pacer::new(),
        }
    }

    /// When a choke or pacing allows the next packet, by the last questions since
    /// [`PathControl::release`]; the largest time if nothing holds it.
    #[inline]
    #[must_use]
    pub fn held_until(&self) -> Time {
        self.held_until
    }

    /// Whether a choke or pacing held packets back at the last question, until a time that has not
    /// come.
    #[must_use]
    pub fn is_held(&self, now: Time) -> bool {
        self.held_until > now && self.held_until < NEVER
    }

    /// The sender wakes, for what was held until `since` or later: it makes up for being late.
    pub fn handle_wake(&mut self, now: Time, since: Time) {
        if (since..=now).contains(&self.held_until) {
            let rtt = self.rtt.smoothed().unwrap_or_default();
            self.pacer.handle_late(now, self.held_until, rtt);
            self.held_until = NEVER;
        }
    }

    /// Nothing holds packets, until the next question says otherwise.
    #[inline]
    pub fn release(&mut self) {
        self.held_until = NEVER;
    }

    /// Whether a choke, with its next probe at `probe_at`, forbids a packet: the probe is not due,
    /// or something is in flight.
    #[inline]
    pub fn is_choked(&mut self, now: Time, probe_at: Time, in_flight: Bytes) -> bool {
        if probe_at <= now && in_flight == Bytes::ZERO {
            return false;
        }
        self.held_until = if probe_at > now { probe_at } else { NEVER };
        true
    }

    /// Whether pacing allows a packet.
    #[inline]
    pub fn is_paced(
        &mut self,
        now: Time,
        pace: &Pace,
        is_slow_start: impl FnOnce() -> bool,
    ) -> bool {
        let Some((rate, burst)) = pace.rate(self.rtt.smoothed(), is_slow_start) else {
            return true;
        };
        self.pacer.set(rate, burst);
        let at = self.pacer.ready_at(now);
        self.held_until = if at > now { at } else { NEVER };
        at <= now
    }

    /// A packet of `bytes` left.
    #[inline]
    pub fn handle_sent(&mut self, now: Time, bytes: Bytes, pace: &Pace) {
        if pace.is_on() {
            self.pacer.handle_sent(now, bytes);
        }
    }

    /// The delays of data and of its acknowledgement by readings of two clocks, as
    /// [`OneWayDelay::handle_reading`] takes them.
    #[inline]
    pub fn handle_delays(&mut self, data: u32, ack: u32) -> (Span, Span) {
        (self.data_delay.handle_reading(data), self.ack_delay.handle_reading(ack))
    }

    /// Whether slow start ends now, by the delay of an acknowledgement with a sample. `is_over`,
    /// whether the window has reached its threshold, is asked only where delays can end it.
    #[inline]
    pub fn ends_slow_start(&mut self, rtt: Option<Span>, is_over: impl FnOnce() -> bool) -> bool {
        let (Some(hystart), Some(rtt)) = (&mut self.hystart, rtt) else { return false };
        hystart.borrow_mut().handle_acked(rtt, self.rate.round(), is_over())
    }

    /// The window grows by the acknowledged bytes over this divisor, in conservative slow start.
    #[inline]
    #[must_use]
    pub fn slow_start_divisor(&self) -> u32 {
        self.hystart.as_ref().map_or(1, |hystart| hystart.borrow().divisor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes(1_000);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn path() -> PathControl {
        let mut path = PathControl::new(at(0), Span::from_millis(200), Some(HyStart::new()));
        path.rtt.handle_sample(Span::from_millis(100), 1);
        path
    }

    fn pace(window: u64, own: OwnPacing) -> Pace {
        Pace { packet: PACKET, window: Bytes(window), given: None, own }
    }

    #[test]
    fn a_choke_holds_until_its_probe_and_while_something_is_in_flight() {
        let mut path = path();
        assert!(path.is_choked(at(1), at(5), Bytes::ZERO));
        assert_eq!(path.held_until(), at(5));
        assert!(path.is_held(at(4)) && !path.is_held(at(5)));
        assert!(path.is_choked(at(5), at(5), PACKET), "the probe is on its way");
        assert_eq!(path.held_until(), NEVER);
        assert!(!path.is_held(at(4)), "an acknowledgement ends that, not a time");
        path.release();
        assert!(!path.is_choked(at(5), at(5), Bytes::ZERO));
        assert_eq!(path.held_until(), NEVER);
    }

    #[test]
    fn a_window_below_one_packet_is_paced_whatever_the_sender_wants() {
        let mut path = path();
        for own in [OwnPacing::Off, OwnPacing::Burst(Bytes(10_000)), OwnPacing::BurstOfRate] {
            let mut path = path.clone();
            let half = pace(500, own);
            assert!(path.is_paced(at(300), &half, || unreachable!("no rate of the window")));
            path.handle_sent(at(300), PACKET, &half);
            // Half a packet a round trip.
            assert!(!path.is_paced(at(300), &half, || false));
            assert!(path.held_until() > at(499) && path.held_until() <= at(500));
        }
        let whole = pace(10_000, OwnPacing::Off);
        assert!(path.is_paced(at(300), &whole, || unreachable!("it does not pace")));
        path.handle_sent(at(300), Bytes(1 << 30), &whole);
        assert!(path.is_paced(at(300), &whole, || unreachable!("it does not pace")));
    }

    #[test]
    fn the_controllers_rate_comes_first_and_its_bursts_have_a_packet() {
        let given = Some((Rate::mbit(8), Bytes::ZERO));
        let pace = Pace { given, ..pace(10_000, OwnPacing::BurstOfRate) };
        let mut path = path();
        for _ in 0..2 {
            assert!(path.is_paced(at(300), &pace, || unreachable!("it has a rate")));
            path.handle_sent(at(300), PACKET, &pace);
            path.release();
        }
        assert!(!path.is_paced(at(300), &pace, || false));
        assert_eq!(path.held_until(), at(301), "a packet takes a millisecond");
    }

    #[test]
    fn who_wakes_late_for_what_was_held_makes_up_for_it() {
        let given = Some((Rate::mbit(8), PACKET));
        let pace = Pace { given, ..pace(100_000, OwnPacing::BurstOfRate) };
        let burst = |path: &mut PathControl, now: Time| {
            let mut sent = 0;
            while path.is_paced(now, &pace, || false) {
                path.handle_sent(now, PACKET, &pace);
                sent += 1;
            }
            sent
        };
        let mut path = path();
        assert_eq!(burst(&mut path, at(300)), 2);
        assert_eq!(path.held_until(), at(301));
        let mut late = path.clone();
        late.handle_wake(at(306), at(301));
        assert_eq!(burst(&mut late, at(306)), 6, "a packet a millisecond");
        // It was held until an earlier time than what the wake-up was for: nobody waited for it.
        path.handle_wake(at(306), at(302));
        assert_eq!(burst(&mut path, at(306)), 2);
    }

    #[test]
    fn hystart_is_optional() {
        let mut without = PathControl::<HyStart>::new(at(0), Span::ZERO, None);
        let rtt = Some(Span::from_millis(10));
        assert!(!without.ends_slow_start(rtt, || unreachable!("nobody watches")));
        assert_eq!(without.slow_start_divisor(), 1);
        let mut with = path();
        assert!(!with.ends_slow_start(None, || unreachable!("there is no sample")));
        let mut is_asked = false;
        assert!(!with.ends_slow_start(rtt, || {
            is_asked = true;
            false
        }));
        assert!(is_asked);
    }
}
