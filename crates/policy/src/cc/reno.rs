//! Reno: slow start, congestion avoidance, halving (RFC 5681).

use units::{Bytes, Time};

use super::window::Window;
use super::{Acked, Allowance, Congestion, SinglePath, Start};

/// Reno's window.
#[derive(Clone, Debug, Default)]
pub struct Reno {
    window: Window,
}

impl SinglePath for Reno {
    const NAME: &'static str = "reno";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        self.window = Window::new(start);
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        if self.window.is_slow_start() {
            self.window.grow_slowly(acked);
        } else {
            // One MSS a round trip (equation 3, for any number of bytes).
            self.window.add(self.window.mss * acked.bytes.as_f64() / self.window.bytes);
        }
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window.cut_to(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window.collapse(in_flight.as_f64() / 2.0);
    }

    fn handle_undo(&mut self, _now: Time) {
        self.window.undo();
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
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
