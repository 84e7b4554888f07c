//! Loss detection by time (RACK, RFC 8985): a packet is lost if one sent later has arrived and the
//! reordering window has passed.

use units::{Span, Time};

/// RACK's state: the latest sent of the delivered packets, and the reordering window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// When the latest sent of the delivered packets left (`RACK.xmit_ts`), and its end for ties
    /// (`RACK.end_seq`).
    newest: Option<(Time, u64)>,
    /// Its round-trip time (`RACK.rtt`).
    rtt: Span,
    /// The reordering window in quarters of the smallest round-trip time (`RACK.reo_wnd_mult`);
    /// zero until reordering is seen.
    quarters: u64,
    has_reordering: bool,
}

impl Rack {
    /// A packet that was sent at `sent_at`, with its last byte at `end`, was delivered at `now`. A
    /// retransmission that is acknowledged sooner than `min_rtt` is ignored: the acknowledgement
    /// belongs to an earlier transmission (section 6.2, step 2).
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

    /// A packet that was never retransmitted was delivered after one sent later: the network
    /// reorders.
    pub fn handle_reordering(&mut self) {
        self.has_reordering = true;
        self.quarters = self.quarters.max(1);
    }

    /// A retransmission was spurious (DSACK): the reordering window grows (section 6.2, step 4).
    pub fn handle_spurious(&mut self) {
        self.has_reordering = true;
        self.quarters = (self.quarters + 1).min(16);
    }

    /// The reordering window: how long a packet may be late before it is lost. `is_urgent`: in
    /// recovery, or with three packets delivered beyond it; without reordering so far the window is
    /// then zero.
    #[must_use]
    pub fn window(&self, min_rtt: Span, smoothed_rtt: Span, is_urgent: bool) -> Span {
        if !self.has_reordering && is_urgent {
            return Span::ZERO;
        }
        Span::from_nanos(self.quarters.max(1) * min_rtt.as_nanos() / 4).min(smoothed_rtt)
    }

    /// When a packet that was sent at `sent_at`, with its last byte at `end`, counts as lost unless
    /// it is delivered before; `None` if none sent later has been delivered.
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
    fn a_packet_sent_before_the_newest_delivered_one_is_late() {
        let ms = Span::from_millis;
        let mut rack = Rack::default();
        assert_eq!(rack.lost_at(at(0), 1, ms(5)), None);
        rack.handle_delivered(at(30), at(10), 3, false, ms(20));
        assert_eq!(rack.lost_at(at(9), 2, ms(5)), Some(at(34)));
        assert_eq!(rack.lost_at(at(10), 4, ms(5)), None);
        // An acknowledgement of an earlier transmission of the same packet is ignored.
        rack.handle_delivered(at(31), at(30), 1, true, ms(20));
        assert_eq!(rack.lost_at(at(20), 9, ms(5)), None);
    }

    #[test]
    fn the_window_is_zero_in_recovery_until_reordering_is_seen() {
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
