//! wVegas: Vegas over several paths, each with a share of one backlog that follows its share of
//! the rate (Cao, Xu and Fu, "Delay-based congestion control for multipath TCP", 2012), as in the
//! Linux module of multipath-tcp.org.
//!
//! A path's window changes by one packet a round trip, so that a long fat path takes as many round
//! trips as it has packets to fill. Backlogs come from the mean round-trip time of a round.

use alloc::boxed::Box;
use alloc::vec::Vec;

use units::{Bytes, SubflowId, Time};

use super::window::{Rounds, Window, seconds};
use super::{Acked, Allowance, Congestion, Controller, Start};

/// The backlog of all paths together, packets.
const TOTAL: f64 = 10.0;
/// The least backlog of a path, and the least window, packets.
const LEAST: f64 = 2.0;
/// γ: the backlog that ends slow start, packets.
const GAMMA: f64 = 1.0;
/// A shorter queueing delay, in seconds, is none: Linux counts in microseconds.
const LEAST_DELAY: f64 = 1e-6;
/// A round with no more samples than this is not evaluated: the window takes Reno's step.
const FEW: u32 = 2;

/// wVegas' controller.
#[derive(Clone, Debug, Default)]
pub struct Wvegas {
    subflows: Vec<WvegasPath>,
}

#[derive(Clone, Debug)]
struct WvegasPath {
    id: SubflowId,
    window: Window,
    rounds: Rounds,
    /// The smallest round-trip time so far, seconds.
    base: f64,
    /// The sum of the round's round-trip times, seconds, and their number.
    sum: f64,
    samples: u32,
    /// `α_r`, packets.
    backlog: f64,
    /// The rate when the backlog was last reached, packets a second.
    rate: f64,
    /// The smallest queueing delay of a round since the last drain, seconds; zero before the first.
    least_delay: f64,
}

impl WvegasPath {
    fn begin_round(&mut self) {
        self.sum = 0.0;
        self.samples = 0;
    }

    /// The mean round-trip time of the round.
    fn mean(&self) -> f64 {
        self.sum / f64::from(self.samples)
    }

    fn queued(&self) -> f64 {
        self.window.packets() * (1.0 - self.base / self.mean())
    }

    fn slow_start(&mut self) {
        if self.queued() <= GAMMA {
            return;
        }
        let (pipe, mss) = (self.window.size() * self.base / self.mean(), self.window.mss());
        self.window.set(self.window.size().min(pipe + mss));
        self.window.lower_threshold(self.window.size() - mss);
    }

    /// One packet towards the backlog, and the drain: a queue twice as long as the shortest one is
    /// the others'.
    fn avoid_congestion(&mut self) {
        let mss = self.window.mss();
        let queued = self.queued();
        if queued > self.backlog {
            self.window.add(-mss);
        } else if queued < self.backlog {
            self.window.add(mss);
        }
        let rtt = self.mean();
        let delay = rtt - self.base;
        if self.least_delay < LEAST_DELAY || delay < self.least_delay {
            self.least_delay = delay;
        } else if delay >= 2.0 * self.least_delay {
            self.window.set(self.window.size() * self.base / (2.0 * rtt));
            self.least_delay = 0.0;
        }
        self.window.lower_threshold(self.window.size() - mss);
    }
}

impl Wvegas {
    fn path(&mut self, id: SubflowId) -> Option<&mut WvegasPath> {
        self.subflows.iter_mut().find(|path| path.id == id)
    }

    /// A path reached its backlog: its weight is anew its share of the rates.
    fn weigh(&mut self, id: SubflowId) {
        let Some(path) = self.path(id) else { return };
        path.rate = path.window.packets() / path.mean();
        let rate = path.rate;
        let sum: f64 = self.subflows.iter().map(|path| path.rate).sum();
        if let Some(path) = self.path(id) {
            path.backlog = (TOTAL * rate / sum).max(LEAST);
        }
    }

    fn end_round(&mut self, id: SubflowId) {
        let Some(path) = self.path(id) else { return };
        if path.samples <= FEW {
            if !path.window.is_in_slow_start() {
                path.window.add(path.window.mss());
            }
        } else if path.window.is_in_slow_start() {
            path.slow_start();
        } else {
            if path.queued() >= path.backlog {
                self.weigh(id);
            }
            if let Some(path) = self.path(id) {
                path.avoid_congestion();
            }
        }
        if let Some(path) = self.path(id) {
            path.begin_round();
        }
    }
}

impl Controller for Wvegas {
    fn name(&self) -> &'static str {
        "wvegas"
    }

    fn handle_add(&mut self, _now: Time, id: SubflowId, start: &Start) {
        self.subflows.push(WvegasPath {
            id,
            window: Window::new(start, LEAST),
            rounds: Rounds::default(),
            base: f64::INFINITY,
            sum: 0.0,
            samples: 0,
            backlog: LEAST,
            rate: 0.0,
            least_delay: 0.0,
        });
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        self.subflows.retain(|path| path.id != id);
    }

    fn handle_acked(&mut self, _now: Time, id: SubflowId, acked: &Acked) {
        let Some(path) = self.path(id) else { return };
        path.window.handle_progress();
        let rtt = acked.rtt.and_then(seconds);
        path.base = path.base.min(rtt.unwrap_or(f64::INFINITY));
        if acked.in_recovery || acked.is_app_limited {
            path.rounds.restart();
            path.begin_round();
            return;
        }
        let is_over = path.rounds.is_over(acked.round, 1);
        if is_over {
            self.end_round(id);
        }
        let Some(path) = self.path(id) else { return };
        if let Some(rtt) = rtt {
            path.sum += rtt;
            path.samples = path.samples.saturating_add(1);
        }
        path.window.slow_start(acked);
    }

    fn handle_congestion(&mut self, _now: Time, id: SubflowId, congestion: &Congestion) {
        if let Some(path) = self.path(id) {
            path.window.cut(congestion.in_flight.as_f64() / 2.0);
        }
    }

    fn handle_timeout(&mut self, _now: Time, id: SubflowId, in_flight: Bytes) {
        if let Some(path) = self.path(id) {
            path.window.time_out(in_flight.as_f64() / 2.0);
        }
    }

    fn handle_undo(&mut self, _now: Time, id: SubflowId) {
        if let Some(path) = self.path(id) {
            path.window.undo();
        }
    }

    fn handle_idle_restart(&mut self, _now: Time, id: SubflowId) {
        if let Some(path) = self.path(id) {
            path.window.restart();
            path.rounds.restart();
            path.begin_round();
        }
    }

    fn handle_slow_start_end(&mut self, _now: Time, id: SubflowId) {
        if let Some(path) = self.path(id) {
            path.window.end_slow_start();
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.subflows
            .iter()
            .find(|path| path.id == id)
            .map_or_else(|| Allowance::window(Bytes::ZERO), |path| path.window.allowance())
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.subflows.iter().find(|path| path.id == id)?.window.threshold()
    }

    fn wants_snapshots(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
