//! `ProbeRTT`: periods with little in flight, so that the queue drains and the minimum round-trip
//! time can be measured (section 5.3.4).

use units::{Span, Time};

use super::{Bbr, Sample, State};

/// `BBR.ProbeRTTDuration`.
const DURATION: Span = Span::from_millis(200);

/// The progress of `ProbeRTT`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeRtt {
    /// When it may end; `None` until the bytes in flight are below the target.
    done_at: Option<Time>,
    is_round_done: bool,
}

impl Bbr {
    /// `CheckProbeRTT` (section 5.3.4.3).
    pub(super) fn check_probe_rtt(&mut self, now: Time, sample: &Sample, is_expired: bool) {
        if self.state != State::ProbeRtt && is_expired && !self.is_idle_restart {
            self.save_window();
            self.state = State::ProbeRtt;
            self.probe_rtt = ProbeRtt::default();
            self.probe.stop();
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(now, sample);
        }
        if sample.delivered > 0 {
            self.is_idle_restart = false;
        }
    }

    /// `HandleProbeRTT`.
    fn handle_probe_rtt(&mut self, now: Time, sample: &Sample) {
        // Packets sent meanwhile are no samples of the bandwidth.
        self.limited_until = self.delivered.saturating_add(sample.in_flight).max(1);
        if self.probe_rtt.done_at.is_none() {
            if sample.in_flight <= self.probe_rtt_window() {
                self.probe_rtt = ProbeRtt { done_at: Some(now + DURATION), is_round_done: false };
                self.start_round();
            }
            return;
        }
        self.probe_rtt.is_round_done |= self.is_round_start;
        if self.probe_rtt.is_round_done {
            self.check_probe_rtt_done(now);
        }
    }

    /// `CheckProbeRTTDone`.
    pub(super) fn check_probe_rtt_done(&mut self, now: Time) {
        if self.probe_rtt.done_at.is_some_and(|at| now > at) {
            self.min_rtt.postpone(now);
            self.restore_window();
            self.exit_probe_rtt(now);
        }
    }

    /// `ProbeRTTCwnd`: half the bandwidth-delay product.
    pub(super) fn probe_rtt_window(&self) -> u64 {
        self.bdp(State::ProbeRtt.window_gain()).max(self.min_pipe())
    }
}
