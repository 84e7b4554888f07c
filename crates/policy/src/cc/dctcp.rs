//! DCTCP: a window that falls by as much as was marked (RFC 8257, section 3.3; M. Alizadeh et al.,
//! "Data Center TCP", 2010).
//!
//! It is a scalable control: at its balance there are two marks a round trip, whatever the rate, as
//! L4S queues want it (RFC 9331). It is meant for such queues and for marks at a step; beside flows
//! that halve at a mark, at one queue that marks both alike, it takes nearly all.

use units::{Bytes, Time};

use super::window::{Rounds, Window};
use super::windowed::Windowed;
use super::{Acked, Congestion, Signal, Start};

/// The weight of a round trip in the average, `g`, as section 4.2 recommends.
const WEIGHT: f64 = 1.0 / 16.0;

/// Reno, with a cut by half of the average part of marked bytes at marks.
#[derive(Clone, Debug)]
pub struct Dctcp {
    weight: f64,
    window: Window,
    /// The part of bytes that are marked, its average over round trips: `DCTCP.Alpha`.
    alpha: f64,
    rounds: Rounds,
    /// Acknowledged and marked bytes in this round trip.
    acked: f64,
    marked: f64,
}

impl Dctcp {
    /// `weight`: that of a round trip in the average, above 0 and up to 1; another value becomes
    /// the default.
    #[must_use]
    pub fn new(weight: f64) -> Dctcp {
        Dctcp {
            weight: if weight > 0.0 && weight <= 1.0 { weight } else { WEIGHT },
            window: Window::default(),
            // The first mark halves the window, as section 3.3 wants it.
            alpha: 1.0,
            rounds: Rounds::default(),
            acked: 0.0,
            marked: 0.0,
        }
    }

    /// Counts what an acknowledgement says of marks; at the end of a round trip it goes into the
    /// average.
    fn count(&mut self, acked: &Acked) {
        self.acked += acked.bytes.as_f64();
        self.marked += acked.ce_bytes.as_f64();
        if self.rounds.is_over(acked.round, 1) && self.acked > 0.0 {
            // Some of the marked bytes may be acknowledged in another round trip.
            let part = (self.marked / self.acked).min(1.0);
            self.alpha += self.weight * (part - self.alpha);
            (self.acked, self.marked) = (0.0, 0.0);
        }
    }
}

impl Default for Dctcp {
    fn default() -> Dctcp {
        Dctcp::new(WEIGHT)
    }
}

impl Windowed for Dctcp {
    const NAME: &'static str = "dctcp";
    const IS_SCALABLE: bool = true;

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
        self.count(acked);
        self.window.handle_progress();
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        let bytes = self.window.slow_start(acked);
        self.window.add(self.window.mss() * bytes / self.window.size());
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window.cut(match congestion.signal {
            Signal::Mark => self.window.size() * (1.0 - self.alpha / 2.0),
            // Section 3.4: losses are those of any TCP.
            Signal::Loss => congestion.in_flight.as_f64() / 2.0,
        });
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window.time_out(in_flight.as_f64() / 2.0);
    }
}
