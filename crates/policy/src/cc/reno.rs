//! Reno: slow start, congestion avoidance, halving (RFC 5681).

use units::{Bytes, Time};

use super::window::Window;
use super::windowed::Windowed;
use super::{Acked, Congestion, Start};

/// Reno's window: one MSS more a round trip, half at congestion. `NewReno` and SACK differ in
/// recovery only, which is the sender's task.
#[derive(Clone, Debug, Default)]
pub struct Reno {
    window: Window,
}

impl Windowed for Reno {
    const NAME: &'static str = "reno";

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        self.window = Window::new(start, 1.0);
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        self.window.handle_progress();
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        let bytes = self.window.slow_start(acked);
        // RFC 5681, equation 3, with byte counting (RFC 3465).
        self.window.add(self.window.mss() * bytes / self.window.size());
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window.cut(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window.time_out(in_flight.as_f64() / 2.0);
    }
}
