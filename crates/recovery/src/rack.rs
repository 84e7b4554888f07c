//! Which packets are lost because later ones have arrived (RACK, RFC 8985).

use units::{Span, Time};

/// What the latest delivered packet says of those sent before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// When the latest sent of the delivered packets was sent (`RACK.xmit_ts`), and its position
    /// for ties.
    newest: Option<(Time, u64)>,
    /// Its round-trip time (`RACK.rtt`).
    rtt: Span,
    /// The reordering window in quarters of the least round-trip time (`RACK.reo_wnd_mult`); zero
    /// until reordering was seen.
    quarters: u64,
    has_reordering: bool,
}

impl Rack {
    /// A packet that was sent at `sent_at` with its last byte at `end` was delivered at `now`.
    /// `is_ambiguous`: it was sent more than once and came back sooner than a round trip: the
    /// answer is to an earlier one (section 6.2, step 2).
    #[inline]
    pub fn handle_delivered(
        &mut self,
        now: Time,
        sent_at: Time,
        end: u64,
        is_retransmission: bool,
        min_rtt: Span,
    ) {
        let rtt = now - sent_at;
        if is_retransmission && rtt < min_rtt {
            return;
        }
        if self.newest.is_none_or(|newest| newest < (sent_at, end)) {
            self.newest = Some((sent_at, end));
            self.rtt = rtt;
        }
    }

    /// A packet was delivered that had never been sent again, after one sent later: the network
    /// reorders.
    pub fn handle_reordering(&mut self) {
        self.has_reordering = true;
        self.quarters = self.quarters.max(1);
    }

    /// A retransmission was for nothing (DSACK): the window widens (section 6.2, step 4).
    pub fn handle_spurious(&mut self) {
        self.has_reordering = true;
        self.quarters = (self.quarters + 1).min(16);
    }

    /// How long a packet may be late before it is lost. `is_urgent`: in recovery, or with three
    /// packets delivered beyond it.
    #[must_use]
    pub fn window(&self, min_rtt: Span, smoothed_rtt: Span, is_urgent: bool) -> Span {
        if !self.has_reordering && is_urgent {
            return Span::ZERO;
        }
        Span::from_nanos(self.quarters.max(1) * min_rtt.as_nanos() / 4).min(smoothed_rtt)
    }

    /// When a packet that was sent at `sent_at`, with its last byte at `end`, is lost if it is not
    /// delivered before; `None` if none sent later has been delivered yet.
    #[must_use]
    #[inline]
    pub fn lost_at(&self, sent_at: Time, end: u64, window: Span) -> Option<Time> {
        let newest = self.newest?;
        ((sent_at, end) < newest).then(|| sent_at + self.rtt + window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn what_was_sent_before_the_newest_is_late() {
        let ms = Span::from_millis;
        let mut rack = Rack::default();
        assert_eq!(rack.lost_at(at(0), 1, ms(5)), None);
        rack.handle_delivered(at(30), at(10), 3, false, ms(20));
        assert_eq!(rack.lost_at(at(9), 2, ms(5)), Some(at(34)));
        assert_eq!(rack.lost_at(at(10), 4, ms(5)), None);
        // The answer to an earlier transmission of the same packet says nothing.
        rack.handle_delivered(at(31), at(30), 1, true, ms(20));
        assert_eq!(rack.lost_at(at(20), 9, ms(5)), None);
    }

    #[test]
    fn the_window_is_none_until_reordering_is_seen() {
        let ms = Span::from_millis;
        let mut rack = Rack::default();
        assert_eq!(rack.window(ms(20), ms(40), true), ms(0));
        assert_eq!(rack.window(ms(20), ms(40), false), ms(5));
        rack.handle_reordering();
        assert_eq!(rack.window(ms(20), ms(40), true), ms(5));
        for _ in 0..20 {
            rack.handle_spurious();
        }
        assert_eq!(rack.window(ms(20), ms(40), true), ms(40));
    }
}
