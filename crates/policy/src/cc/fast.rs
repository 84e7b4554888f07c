//! FAST (Wei, Jin, Low and Hegde, "FAST TCP: Motivation, Architecture, Algorithms, Performance",
//! 2006), as in the ns-2 module of CUBIN lab: the flow keeps α packets of its own in the queue and
//! approaches that target in proportion to the distance.
//!
//! The handshake counts as a round-trip sample, as in the module. Its packets have almost no
//! transmission time, so that of a full packet counts as queueing delay: the α packets include the
//! one in transmission.
//!
//! Windows are real numbers here. The module's targets are whole packets unless
//! `high_accuracy_cwnd_` is set, and settle lower; `whole` does the same.

use units::{Bytes, Span, Time};

use super::fast_path::{Average, Increment, Step, target};
use super::window::{Rounds, Window, seconds};
use super::windowed::Windowed;
use super::{Acked, Congestion, Start};

/// FAST's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FastOptions {
    /// α: packets that the flow keeps in the queue. Usual values are 8, 20 and 200 for 10, 100 and
    /// 1000 Mbit/s.
    pub alpha: f64,
    /// γ: the share of the distance to the target in one step, above 0 and up to 1.
    pub gamma: f64,
    /// While the queueing delay is below this, the window grows by a packet for each acknowledged
    /// one.
    pub threshold: Span,
    /// Round trips from one step to the next. The ns-2 module and Linux: 2.
    pub every: u64,
    /// Whether targets are rounded down to whole packets, as in the ns-2 module: the queue settles
    /// up to 1/γ packets below α.
    pub whole: bool,
}

impl Default for FastOptions {
    fn default() -> FastOptions {
        FastOptions {
            alpha: 100.0,
            gamma: 0.5,
            threshold: Span::from_micros(750),
            every: 2,
            whole: false,
        }
    }
}

/// FAST's window.
#[derive(Clone, Debug)]
pub struct Fast {
    options: FastOptions,
    window: Window,
    /// `baseRTT`: the smallest round-trip time so far, the handshake's included, seconds. It never
    /// expires, so a flow that starts with a standing queue takes that for propagation delay.
    base: f64,
    average: Average,
    rounds: Rounds,
    increment: Increment,
}

impl Fast {
    /// A controller with these parameters. Values outside their ranges are clamped.
    #[must_use]
    pub fn new(options: FastOptions) -> Fast {
        let options = FastOptions {
            gamma: options.gamma.clamp(0.0, 1.0),
            every: options.every.max(1),
            ..options
        };
        Fast {
            options,
            window: Window::default(),
            base: f64::INFINITY,
            average: Average::default(),
            rounds: Rounds::default(),
            increment: Increment::default(),
        }
    }

    fn update(&mut self, old: f64, average: f64) {
        let FastOptions { alpha: backlog, gamma, whole, .. } = self.options;
        let target = target(&self.window, old, [self.base, average], Step { backlog, gamma });
        let target = if whole { libm::floor(target) } else { target };
        self.increment.aim(&mut self.window, target, self.base);
    }

    fn forget_increment(&mut self) {
        self.increment = Increment::default();
        self.rounds.restart();
    }
}

impl Default for Fast {
    fn default() -> Fast {
        Fast::new(FastOptions::default())
    }
}

impl Windowed for Fast {
    const NAME: &'static str = "fast";
    const WANTS_SNAPSHOTS: bool = true;

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let base = start.rtt.and_then(seconds).unwrap_or(f64::INFINITY);
        *self = Fast { window: Window::new(start, 2.0), base, ..Fast::new(self.options) };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        self.window.handle_progress();
        if acked.in_recovery {
            // Delays are not evaluated in recovery.
            return;
        }
        if let Some(rtt) = acked.rtt.and_then(seconds) {
            self.base = self.base.min(rtt);
            self.average.handle_rtt(rtt, self.window.packets());
        }
        let Some(average) = self.average.get() else { return };
        if acked.is_app_limited {
            return;
        }
        let packets = acked.bytes.as_f64() / self.window.mss();
        let is_round_over = self.rounds.is_over(acked.round, self.options.every);
        if average - self.base < self.options.threshold.as_secs_f64() {
            self.increment = Increment::default();
            self.window.add(packets.min(self.window.packets()) * self.window.mss());
        } else if is_round_over {
            let old = acked.window_at_sending.map_or(self.window.size(), Bytes::as_f64);
            self.update(old / self.window.mss(), average);
        } else {
            self.increment.pace(&mut self.window, packets);
        }
    }

    fn handle_congestion(&mut self, _now: Time, _congestion: &Congestion) {
        self.window.cut(self.window.size() / 2.0);
        self.forget_increment();
    }

    fn handle_timeout(&mut self, _now: Time, _in_flight: Bytes) {
        self.window.time_out(self.window.size() / 2.0);
        self.forget_increment();
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
        self.forget_increment();
    }

    fn handle_slow_start_end(&mut self, _now: Time) {}
}
