//! FAST TCP (Jin, Wei, Low 2004; the public ns-2 module for details): `alpha` packets of each flow in the queue.

use units::{Bytes, Span, Time};

use super::window::{Window, seconds};
use super::{Acked, Allowance, Congestion, SinglePath, Start};

/// FAST's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FastOptions {
    /// Packets of this flow in the queue. All flows' together must fit into the buffer.
    pub alpha: f64,
    /// How much of the way to the target an update goes, 0 to 1.
    pub gamma: f64,
    /// Below this queueing delay the window doubles every round trip.
    pub threshold: Span,
}

impl Default for FastOptions {
    fn default() -> FastOptions {
        FastOptions { alpha: 200.0, gamma: 0.5, threshold: Span::from_micros(750) }
    }
}

/// FAST's window.
#[derive(Clone, Debug, Default)]
pub struct Fast {
    options: FastOptions,
    window: Window,
    /// Averaged round-trip time, in seconds.
    average: Option<f64>,
    round: u64,
    /// Whether this round's end brings an update: every other one does, so that the effect of the last is seen.
    updates: bool,
    /// What is still to be added, spread over the acknowledgements to come.
    pending: Pending,
}

/// An increase under way, in packets.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    left: f64,
    /// How much for each packet acknowledged.
    step: f64,
}

impl Fast {
    /// With settings of one's own.
    #[must_use]
    pub fn new(options: FastOptions) -> Fast {
        Fast { options, ..Fast::default() }
    }

    /// One step towards `alpha` packets in the queue, from what the window was when the packet just acknowledged was sent (`old`).
    fn update(&mut self, average: f64, base: f64, old: f64) {
        let FastOptions { alpha, gamma, .. } = self.options;
        let packets = self.window.packets();
        let target = (1.0 - gamma) * packets + gamma * (old * base / average + alpha);
        let target = target.clamp(2.0, 2.0 * packets);
        let delta = target - packets;
        if delta <= 0.0 {
            self.pending = Pending::default();
            self.window.add(delta * self.window.mss);
        } else {
            // At most doubling, over a round trip.
            self.pending = Pending { left: delta, step: delta / packets };
        }
    }

    fn continue_update(&mut self, delivered: f64) {
        let step = (self.pending.step * delivered).min(self.pending.left);
        self.pending.left -= step;
        self.window.add(step * self.window.mss);
    }
}

impl SinglePath for Fast {
    const NAME: &'static str = "fast";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        *self = Fast { options: self.options, window: Window::new(start), ..Fast::default() };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        let packets = self.window.packets();
        if let Some(rtt) = acked.rtt {
            let rtt = seconds(rtt);
            let weight = (3.0 / packets).min(0.25);
            self.average = Some(self.average.map_or(rtt, |average| average + weight * (rtt - average)));
        }
        let Some(average) = self.average else { return };
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        let base = seconds(acked.min_rtt).min(average);
        let delivered = acked.bytes.as_f64() / self.window.mss;
        if average - base < self.options.threshold.as_secs_f64() {
            // Multiplicative increase: a packet for each acknowledged.
            self.pending = Pending::default();
            self.window.add(delivered * self.window.mss);
            self.round = acked.round;
            return;
        }
        if acked.round != self.round {
            self.round = acked.round;
            self.updates = !self.updates;
            if self.updates {
                self.update(average, base, acked.window_at_sending.as_f64() / self.window.mss);
            }
        }
        self.continue_update(delivered);
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.pending = Pending::default();
        self.window.cut_to(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.pending = Pending::default();
        self.window.collapse(in_flight.as_f64() / 2.0);
        self.window.add(self.window.mss);
    }

    fn handle_undo(&mut self, _now: Time) {
        self.window.undo();
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
    }

    fn allowance(&self) -> Allowance {
        self.window.allowance()
    }
}
