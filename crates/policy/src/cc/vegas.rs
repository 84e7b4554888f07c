//! Vegas: keeps a small number of the flow's own packets in the queue (Brakmo and Peterson, "TCP
//! Vegas: End to End Congestion Avoidance on a Global Internet", 1995).
//!
//! Implementations differ; this one uses
//!
//! * the paper's backlog `w (rtt - base) / rtt`, as in ns-2, which at a single bottleneck is the
//!   flow's own queue. Linux divides by `base` and overestimates a queue that is a large part of
//!   the round trip: with a target of 100 packets and 834 in the pipe, Linux settles at 90;
//! * the smallest round-trip time of each round, as Linux does (ns-2: the mean), so that the flow's
//!   own bursts do not count;
//! * backlogs as real numbers, so that the window settles between `alpha` and `beta` (Linux rounds
//!   them down, ns-2 to the nearest);
//! * slow start that doubles every other round trip, as in the paper and ns-2, and measures the
//!   backlog with packets of the rounds between, when no burst stands in the queue. (Linux doubles
//!   in each round, so its delays are a doubling old: it fills a buffer of one bandwidth-delay
//!   product before it sees a queue. ns-2 measures the bursts of the doubling and ends slow start
//!   early on long paths.)
//! * an end of slow start at the bandwidth-delay product plus one packet, as in Linux (ns-2: an
//!   eighth less, then step by step).

use units::{Bytes, Time};

use super::window::{Rounds, Window, seconds};
use super::windowed::Windowed;
use super::{Acked, Congestion, Start};

/// A round with no more samples than this is not evaluated: the window takes Reno's step, as in
/// Linux.
const FEW: u32 = 2;

/// Vegas' bounds, in packets of backlog.
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
    /// In slow start: whether this is a round in which the window grows.
    is_growing: bool,
    /// The smallest window in packets.
    floor: f64,
}

impl Vegas {
    /// A controller with these bounds.
    #[must_use]
    pub fn new(options: VegasOptions) -> Vegas {
        Vegas::with_floor(options, 2.0)
    }

    /// The same with a window of at least `floor` packets.
    pub(super) fn with_floor(options: VegasOptions, floor: f64) -> Vegas {
        Vegas {
            options,
            window: Window::default(),
            base: f64::INFINITY,
            rounds: Rounds::default(),
            smallest: f64::INFINITY,
            samples: 0,
            is_growing: true,
            floor,
        }
    }

    /// The smallest round-trip time so far, seconds; infinite before the first sample.
    pub(super) fn base(&self) -> f64 {
        self.base
    }

    /// Lowers the window to `bytes`, and ends slow start.
    pub(super) fn lower_to(&mut self, bytes: f64) {
        self.window.set(self.window.size().min(bytes));
        self.window.lower_threshold(self.window.size());
        self.window.end_slow_start();
    }

    /// Adjusts the window, once a round trip.
    fn end_round(&mut self) {
        if self.window.is_in_slow_start() {
            self.is_growing = !self.is_growing;
        } else if self.samples <= FEW {
            self.window.add(self.window.mss());
        } else {
            self.adjust();
        }
        self.begin_round();
    }

    /// Slow start, in rounds with growth. Their samples are of packets from the round without.
    /// Three samples are enough, because the smallest counts.
    fn slow_start(&mut self, acked: &Acked) {
        if self.samples <= FEW || self.backlog(self.smallest) <= self.options.gamma {
            self.window.slow_start(acked);
            return;
        }
        let (pipe, mss) = (self.window.size() * self.base / self.smallest, self.window.mss());
        self.window.set(self.window.size().min(pipe + mss));
        self.window.lower_threshold(self.window.size() - mss);
    }

    /// Congestion avoidance.
    fn adjust(&mut self) {
        let backlog = self.backlog(self.smallest);
        let mss = self.window.mss();
        if backlog > self.options.beta {
            self.window.add(-mss);
            self.window.lower_threshold(self.window.size() - mss);
        } else if backlog < self.options.alpha {
            self.window.add(mss);
        }
    }

    /// The flow's own packets in the queue.
    fn backlog(&self, rtt: f64) -> f64 {
        self.window.packets() * (rtt - self.base) / rtt
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

impl Windowed for Vegas {
    const NAME: &'static str = "vegas";

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let window = Window::new(start, self.floor);
        *self = Vegas { window, ..Vegas::with_floor(self.options, self.floor) };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        self.window.handle_progress();
        let rtt = acked.rtt.and_then(seconds);
        self.base = self.base.min(rtt.unwrap_or(f64::INFINITY));
        if acked.in_recovery || acked.is_app_limited {
            // A window that is not full gives no backlog; measuring begins again with the next full
            // round.
            self.rounds.restart();
            self.begin_round();
            return;
        }
        if self.rounds.is_over(acked.round, 1) {
            self.end_round();
        }
        if let Some(rtt) = rtt {
            self.smallest = self.smallest.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.window.is_in_slow_start() && self.is_growing {
            self.slow_start(acked);
        }
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window.cut(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window.time_out(in_flight.as_f64() / 2.0);
        self.is_growing = true;
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
        self.rounds.restart();
        self.begin_round();
        self.is_growing = true;
    }
}
