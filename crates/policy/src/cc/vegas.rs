//! Vegas: a few packets of one's own in the queue, no more and no less (Brakmo and Peterson, "TCP Vegas: End to End Congestion
//! Avoidance on a Global Internet", 1995).
//!
//! Implementations differ; this one takes
//!
//! * the paper's backlog `w (rtt - base) / rtt`, as ns-2 does, which at one bottleneck is the flow's own queue. Linux divides by `base`,
//!   which is more where the queue is no small part of the round trip: asked for 100 packets on 834, Linux rests at 90;
//! * the smallest round-trip time of each round, as Linux does (ns-2: the mean), so that the flow's own bursts do not count;
//! * whole packets of backlog, rounded down as in Linux: the window rests while the backlog is in `alpha..beta + 1`;
//! * slow start that doubles every round trip and ends in one step at the bandwidth-delay product plus one packet, as in Linux
//!   (the paper and ns-2 double every other round trip and end by a cut of an eighth).

use units::{Bytes, Time};

use super::window::{Rounds, Window, seconds};
use super::{Acked, Allowance, Congestion, SinglePath, Start};

/// Samples in a round up to which it says nothing: Reno's step is taken then, as in Linux.
const FEW: u32 = 2;

/// Vegas' bounds, all in packets of backlog.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VegasOptions {
    /// α: with less than this, one packet more a round trip. Linux: 2, ns-2: 1.
    pub alpha: f64,
    /// β: with more than this, one packet less. Linux: 4, ns-2: 3.
    pub beta: f64,
    /// γ: with more than this, slow start ends.
    pub gamma: f64,
}

impl Default for VegasOptions {
    fn default() -> VegasOptions {
        VegasOptions { alpha: 2.0, beta: 4.0, gamma: 1.0 }
    }
}

/// Vegas' window.
#[derive(Clone, Debug)]
pub struct Vegas {
    options: VegasOptions,
    window: Window,
    /// The smallest round-trip time so far, seconds.
    base: f64,
    rounds: Rounds,
    /// The smallest round-trip time of the round, seconds.
    smallest: f64,
    samples: u32,
}

impl Vegas {
    /// With bounds of one's own.
    #[must_use]
    pub fn new(options: VegasOptions) -> Vegas {
        Vegas {
            options,
            window: Window::default(),
            base: f64::INFINITY,
            rounds: Rounds::default(),
            smallest: f64::INFINITY,
            samples: 0,
        }
    }

    /// Once a round trip. Returns whether the acknowledgement may still be used for slow start.
    fn end_round(&mut self) -> bool {
        let (samples, rtt) = (self.samples, self.smallest);
        self.begin_round();
        let (mss, window) = (self.window.mss(), self.window.packets());
        if samples <= FEW {
            if !self.window.is_in_slow_start() {
                self.window.add(mss);
            }
            return true;
        }
        let backlog = libm::floor(window * (rtt - self.base) / rtt + 1e-9);
        let VegasOptions { alpha, beta, gamma } = self.options;
        if self.window.is_in_slow_start() {
            if backlog <= gamma {
                return true;
            }
            self.window.set(self.window.size().min((window * self.base / rtt + 1.0) * mss));
            self.window.lower_threshold(self.window.size() - mss);
        } else if backlog > beta {
            self.window.add(-mss);
            self.window.lower_threshold(self.window.size() - mss);
        } else if backlog < alpha {
            self.window.add(mss);
        }
        false
    }

    fn begin_round(&mut self) {
        self.smallest = f64::INFINITY;
        self.samples = 0;
    }
}

impl Default for Vegas {
    fn default() -> Vegas {
        Vegas::new(VegasOptions::default())
    }
}

impl SinglePath for Vegas {
    const NAME: &'static str = "vegas";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        *self = Vegas { window: Window::new(start, 2.0), ..Vegas::new(self.options) };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        self.window.handle_progress();
        let rtt = acked.rtt.and_then(seconds);
        self.base = self.base.min(rtt.unwrap_or(f64::INFINITY));
        if acked.in_recovery || acked.is_app_limited {
            // Half-empty and emptying windows tell no backlog: the next full round does.
            self.rounds.restart();
            self.begin_round();
            return;
        }
        let may_slow_start = !self.rounds.is_over(acked.round, 1) || self.end_round();
        if let Some(rtt) = rtt {
            self.smallest = self.smallest.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if may_slow_start {
            self.window.slow_start(acked);
        }
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window.cut(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window.time_out(in_flight.as_f64() / 2.0);
    }

    fn handle_undo(&mut self, _now: Time) {
        self.window.undo();
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
        self.rounds.restart();
        self.begin_round();
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
