//! Reno: slow start, congestion avoidance, halving (RFC 5681).

use units::{Bytes, Time};

use super::{Acked, Allowance, Congestion, SinglePath, Start};

/// Reno's window.
#[derive(Clone, Debug, Default)]
pub struct Reno {
    mss: f64,
    window: f64,
    /// `None` before the first congestion: slow start without bound.
    threshold: Option<f64>,
    initial: f64,
    /// Window and threshold before the last cut.
    before: Option<(f64, Option<f64>)>,
}

impl Reno {
    fn cut(&mut self, in_flight: Bytes) -> f64 {
        self.before = Some((self.window, self.threshold));
        // RFC 5681, equation 4.
        let threshold = (in_flight.as_f64() / 2.0).max(2.0 * self.mss);
        self.threshold = Some(threshold);
        threshold
    }
}

impl SinglePath for Reno {
    const NAME: &'static str = "reno";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let initial = start.initial_window.as_f64();
        *self = Reno { mss: start.mss.as_f64(), window: initial, threshold: None, initial, before: None };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        let bytes = acked.bytes.as_f64();
        self.window += match self.threshold {
            Some(threshold) if self.window >= threshold => self.mss * bytes / self.window,
            // One MSS an acknowledgement at most (RFC 5681, equation 2), two when they are delayed (RFC 3465).
            _ => bytes.min(2.0 * self.mss) / f64::from(acked.slow_start_divisor),
        };
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window = self.cut(congestion.in_flight);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.cut(in_flight);
        self.window = self.mss;
    }

    fn handle_undo(&mut self, _now: Time) {
        if let Some((window, threshold)) = self.before.take() {
            self.window = self.window.max(window);
            self.threshold = threshold;
        }
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window = self.window.min(self.initial);
    }

    fn handle_slow_start_end(&mut self, _now: Time) {
        self.threshold = Some(self.window);
    }

    fn allowance(&self) -> Allowance {
        Allowance::window(bytes(self.window))
    }

    fn threshold(&self) -> Option<Bytes> {
        self.threshold.map(bytes)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
fn bytes(window: f64) -> Bytes {
    Bytes(window as u64)
}
