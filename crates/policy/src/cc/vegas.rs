//! Vegas (Brakmo and Peterson 1995): a few packets in the queue, and no more.

use units::{Bytes, Span, Time};

use super::window::{Window, seconds};
use super::{Acked, Allowance, Congestion, SinglePath, Start};

/// Vegas's settings, in packets in the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VegasOptions {
    /// With fewer, the window grows.
    pub alpha: f64,
    /// With more, it shrinks.
    pub beta: f64,
    /// With more, slow start is over.
    pub gamma: f64,
}

/// As in Linux.
impl Default for VegasOptions {
    fn default() -> VegasOptions {
        VegasOptions { alpha: 2.0, beta: 4.0, gamma: 1.0 }
    }
}

/// Vegas's window.
#[derive(Clone, Debug, Default)]
pub struct Vegas {
    options: VegasOptions,
    window: Window,
    round: Round,
    /// Slow start grows in every other round, so that the comparison is of a round at one rate.
    grows: bool,
}

/// What the round trip in progress showed.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    number: u64,
    least: Option<Span>,
    samples: u32,
}

impl Vegas {
    /// With settings of one's own.
    #[must_use]
    pub fn new(options: VegasOptions) -> Vegas {
        Vegas { options, ..Vegas::default() }
    }

    /// Once a round trip: compares what is expected with what is.
    fn compare(&mut self, least: Span, base: Span) {
        let (least, base) = (seconds(least), seconds(base));
        let packets = self.window.packets();
        // Packets in the queue: (expected - actual) x base.
        let queued = packets * (least - base) / least;
        let VegasOptions { alpha, beta, gamma } = self.options;
        let mss = self.window.mss;
        if self.window.is_slow_start() {
            if queued > gamma {
                // As much as the path holds without a queue, and one packet.
                let holds = (packets * base / least + 1.0).min(packets);
                self.window.add((holds.max(2.0) - packets) * mss);
                self.window.end_slow_start();
            }
            self.grows = !self.grows;
        } else if queued > beta {
            self.window.add(if packets - 1.0 < 2.0 { 0.0 } else { -mss });
        } else if queued < alpha {
            self.window.add(mss);
        }
    }
}

impl SinglePath for Vegas {
    const NAME: &'static str = "vegas";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        *self = Vegas { options: self.options, window: Window::new(start), round: Round::default(), grows: true };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        if let Some(rtt) = acked.rtt {
            self.round.least = Some(self.round.least.map_or(rtt, |least| least.min(rtt)));
            self.round.samples += 1;
        }
        if acked.round != self.round.number {
            let over = core::mem::replace(&mut self.round, Round { number: acked.round, ..Round::default() });
            if acked.in_recovery || acked.is_app_limited {
                return;
            }
            if let Some(least) = over.least {
                self.compare(least, acked.min_rtt);
            }
        }
        if self.window.is_slow_start() && self.grows && !acked.in_recovery && !acked.is_app_limited {
            self.window.grow_slowly(acked);
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
