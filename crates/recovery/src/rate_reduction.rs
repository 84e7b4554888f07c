//! Proportional rate reduction: how much to send for each acknowledgement in fast recovery (RFC
//! 9937).

use units::Bytes;

/// The state of one fast recovery. Bytes are payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateReduction {
    /// Bytes in flight when recovery began (`RecoverFS`).
    begin: Bytes,
    /// Bytes in flight to end with (`ssthresh`).
    end: Bytes,
    /// Bytes delivered in recovery (`prr_delivered`).
    delivered: Bytes,
    /// Bytes sent in recovery (`prr_out`).
    sent: Bytes,
    mss: Bytes,
    /// Bytes that may be sent before the next acknowledgement (`SndCnt`).
    budget: Bytes,
}

impl RateReduction {
    /// Recovery begins with `begin` bytes in flight, the lost ones included; `end` is the new
    /// window.
    #[must_use]
    pub fn new(begin: Bytes, end: Bytes, mss: Bytes) -> RateReduction {
        let none = Bytes::ZERO;
        // The first retransmission leaves whatever the budget is.
        RateReduction { begin: begin.max(mss), end, delivered: none, sent: none, mss, budget: mss }
    }

    /// An acknowledgement delivered `delivered` bytes; `in_flight` are left. `is_safe` (`SafeACK`):
    /// it advanced the cumulative acknowledgement and revealed no further loss.
    pub fn handle_acked(&mut self, delivered: Bytes, in_flight: Bytes, is_safe: bool) {
        self.delivered += delivered;
        self.budget = if in_flight > self.end {
            // Proportional: the sending rate falls in the ratio of the windows.
            let share = (u128::from(self.delivered.0) * u128::from(self.end.0))
                .div_ceil(u128::from(self.begin.0));
            Bytes(u64::try_from(share).unwrap_or(u64::MAX)) - self.sent
        } else {
            // Below the target: slow start back to it, by at most one packet more than was
            // delivered.
            let extra = if is_safe { self.mss } else { Bytes::ZERO };
            ((self.delivered - self.sent).max(delivered) + extra).min(self.end - in_flight)
        };
        if self.sent == Bytes::ZERO {
            self.budget = self.budget.max(self.mss);
        }
    }

    /// A packet left.
    pub fn handle_sent(&mut self, bytes: Bytes) {
        self.sent += bytes;
        self.budget -= bytes;
    }

    /// Whether a packet of `bytes` may leave: at least half of it fits the budget, so that rounding
    /// costs no packet.
    #[must_use]
    pub fn allows(&self, bytes: Bytes) -> bool {
        self.budget.0 * 2 >= bytes.0 && self.budget > Bytes::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes(1_000);

    /// One loss out of 20 packets: every other acknowledgement sends one, until half is in flight.
    #[test]
    fn the_window_is_halved_over_one_round_trip() {
        let mut prr = RateReduction::new(Bytes(20_000), Bytes(10_000), MSS);
        prr.handle_sent(MSS);
        let mut in_flight = 17_000;
        let mut sent = 1;
        for _ in 0..17 {
            in_flight -= 1_000;
            prr.handle_acked(MSS, Bytes(in_flight), false);
            while prr.allows(MSS) {
                prr.handle_sent(MSS);
                in_flight += 1_000;
                sent += 1;
            }
        }
        assert!((9..=11).contains(&sent), "{sent}");
        assert!((9_000..=10_000).contains(&in_flight), "{in_flight}");
    }

    #[test]
    fn after_a_burst_of_losses_it_grows_back_to_the_target_only() {
        let mut prr = RateReduction::new(Bytes(20_000), Bytes(10_000), MSS);
        prr.handle_sent(MSS);
        // 15 of 20 are lost: 4 in flight beside the retransmission.
        prr.handle_acked(MSS, Bytes(4_000), true);
        assert!(prr.allows(MSS));
        prr.handle_sent(MSS);
        prr.handle_sent(MSS);
        assert!(!prr.allows(MSS));
        prr.handle_acked(MSS, Bytes(10_000), true);
        assert!(!prr.allows(MSS));
    }
}
