//! CUBIC (RFC 9438): the window as a cubic function of the time since the last congestion.

use units::{Bytes, Span, Time};

use super::window::{Window, seconds};
use super::{Acked, Allowance, Congestion, SinglePath, Start};

/// How fast it grows, in packets per second cubed (section 4.1).
const C: f64 = 0.4;
/// What is left of the window after congestion.
const BETA: f64 = 0.7;
/// Growth of the Reno-friendly estimate, in packets a round trip (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC's window.
#[derive(Clone, Debug, Default)]
pub struct Cubic {
    window: Window,
    /// The window before the last congestion, in packets (`W_max`).
    max: f64,
    epoch: Option<Epoch>,
    before: Option<(f64, Option<Epoch>)>,
}

/// Congestion avoidance since the last congestion. Windows in packets, times in seconds.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    since: Time,
    /// When the window reaches `max` again (`K`).
    k: f64,
    /// The plateau; the window at the beginning if there was no cut.
    max: f64,
    /// What Reno would have (`W_est`).
    reno: f64,
    /// The window before the cut (`cwnd_prior`).
    prior: f64,
}

impl Cubic {
    fn begin(&self, now: Time) -> Epoch {
        let packets = self.window.packets();
        // After a timeout, or slow start without loss, there is no plateau to come back to (section 4.8).
        let max = self.max.max(packets);
        Epoch { since: now, k: libm::cbrt((max - packets) / C), max, reno: packets, prior: max }
    }

    fn cut(&mut self, in_flight: Bytes) -> f64 {
        self.before = Some((self.max, self.epoch));
        let packets = self.window.packets();
        // Fast convergence (section 4.7): a shrinking share is given up sooner.
        self.max = if packets < self.max { packets * (1.0 + BETA) / 2.0 } else { packets };
        self.epoch = None;
        // Of what is in flight, not of a window that was not filled (section 4.6).
        in_flight.as_f64().min(self.window.bytes) * BETA
    }

    fn avoid(&mut self, now: Time, acked: &Acked) {
        let packets = self.window.packets();
        let delivered = acked.bytes.as_f64() / self.window.mss;
        let rtt = seconds(acked.smoothed_rtt);
        let mut epoch = self.epoch.unwrap_or_else(|| self.begin(now));
        let t = (now - epoch.since).as_secs_f64();
        let at = |t: f64| C * (t - epoch.k) * (t - epoch.k) * (t - epoch.k) + epoch.max;
        let alpha = if epoch.reno >= epoch.prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * delivered / packets;
        if at(t) < epoch.reno {
            // Reno would be faster (section 4.3).
            self.window.add((epoch.reno - packets).max(0.0) * self.window.mss);
        } else {
            let target = at(t + rtt).clamp(packets, 1.5 * packets);
            self.window.add((target - packets) / packets * delivered * self.window.mss);
        }
        self.epoch = Some(epoch);
    }
}

impl SinglePath for Cubic {
    const NAME: &'static str = "cubic";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        *self = Cubic { window: Window::new(start), ..Cubic::default() };
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        if acked.is_app_limited {
            // Time without enough to send does not count (section 5.8).
            if let Some(epoch) = &mut self.epoch {
                epoch.since += now - acked.sent_at.max(epoch.since).min(now);
            }
            return;
        }
        if acked.in_recovery {
            return;
        }
        if self.window.is_slow_start() {
            self.window.grow_slowly(acked);
        } else {
            self.avoid(now, acked);
        }
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        let bytes = self.cut(congestion.in_flight);
        self.window.cut_to(bytes);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        let bytes = self.cut(in_flight);
        self.window.collapse(bytes);
        // No concave way back up (section 4.8): congestion avoidance begins where slow start ends.
        self.max = 0.0;
    }

    fn handle_undo(&mut self, _now: Time) {
        self.window.undo();
        if let Some((max, epoch)) = self.before.take() {
            self.max = max;
            self.epoch = epoch;
        }
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
        self.epoch = None;
    }

    fn handle_slow_start_end(&mut self, _now: Time) {
        self.window.end_slow_start();
    }

    fn allowance(&self) -> Allowance {
        self.window.allowance()
    }

    fn threshold(&self) -> Option<Bytes> {
        self.window.threshold()
    }
}

impl Cubic {
    /// How long from `now` until the window is what it was before the last congestion; `None` outside of congestion avoidance.
    #[must_use]
    pub fn time_to_plateau(&self, now: Time) -> Option<Span> {
        let epoch = self.epoch?;
        Some(Span::from_secs_f64((epoch.k - (now - epoch.since).as_secs_f64()).max(0.0)))
    }
}
