//! LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus): LEDBAT by round-trip times, with a slow start, a
//! decrease in proportion to the window, and slowdowns that show the base delay to everybody.
//!
//! In a slowdown the window is two packets for two round trips, and then grows back as in slow
//! start. The first one comes two round trips after the initial slow start; the next one comes nine
//! times its duration after the end of each, so that they cost a tenth at most.

use units::{Bytes, Span, Time};

use super::delays::Delays;
use super::window::Window;
use super::windowed::Windowed;
use super::{Acked, Congestion, Start};

/// The least window, packets.
const FLOOR: f64 = 2.0;
/// The round trips before the first slowdown, and with a window of two packets in each.
const ROUNDS: u64 = 2;
/// The time between slowdowns over the duration of the last.
const PAUSE: u64 = 9;
/// The share of the target at which the initial slow start ends.
const SLOW_START_SHARE: f64 = 0.75;
/// The slowest growth: a packet in so many round trips.
const SLOWEST: f64 = 16.0;

/// LEDBAT++'s parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LedbatPlusPlusOptions {
    /// `TARGET`: the queueing delay that it keeps.
    pub target: Span,
    /// Whether there are slowdowns.
    pub slowdowns: bool,
}

impl Default for LedbatPlusPlusOptions {
    fn default() -> LedbatPlusPlusOptions {
        LedbatPlusPlusOptions { target: Span::from_millis(60), slowdowns: true }
    }
}

#[derive(Clone, Copy, Debug)]
enum Slowdown {
    /// The initial slow start.
    Start,
    /// Between the initial slow start and the first slowdown, which begins with this round.
    First { at_round: u64 },
    /// The next slowdown begins then.
    Until(Time),
    /// In a slowdown since then: two packets up to this round.
    Frozen { since: Time, to_round: u64 },
    /// The window grows back since the slowdown began then.
    Back { since: Time },
}

/// LEDBAT++'s window.
#[derive(Clone, Debug)]
pub struct LedbatPlusPlus {
    options: LedbatPlusPlusOptions,
    window: Window,
    delays: Delays,
    phase: Slowdown,
    /// Round trips so far.
    round: u64,
}

impl LedbatPlusPlus {
    /// A controller with these parameters. A target below 1 ms is taken for 1 ms.
    #[must_use]
    pub fn new(options: LedbatPlusPlusOptions) -> LedbatPlusPlus {
        let target = options.target.max(Span::from_millis(1));
        LedbatPlusPlus {
            options: LedbatPlusPlusOptions { target, ..options },
            window: Window::default(),
            delays: Delays::default(),
            phase: Slowdown::Start,
            round: 0,
        }
    }

    /// Packets more in a round trip: fewer on short paths, where round trips are many.
    fn gain(&self) -> f64 {
        let base = self.delays.base().map_or(0.0, Span::as_secs_f64);
        1.0 / libm::ceil(2.0 * self.options.target.as_secs_f64() / base).clamp(1.0, SLOWEST)
    }

    /// The initial slow start is over.
    fn end_start(&mut self) {
        if matches!(self.phase, Slowdown::Start) {
            self.phase = Slowdown::First { at_round: self.round + ROUNDS };
        }
    }

    /// Begins and ends slowdowns. Returns whether the window may change.
    fn follow_phase(&mut self, now: Time) -> bool {
        let is_due = match self.phase {
            Slowdown::Start => false,
            Slowdown::First { at_round } => self.round >= at_round,
            Slowdown::Until(time) => now >= time,
            Slowdown::Frozen { since, to_round } => {
                if self.round < to_round {
                    return false;
                }
                self.phase = Slowdown::Back { since };
                false
            }
            Slowdown::Back { since } => {
                if !self.window.is_in_slow_start() {
                    self.phase = Slowdown::Until(now + now.since(since) * PAUSE);
                }
                false
            }
        };
        if is_due && self.options.slowdowns {
            self.window.slow_down();
            self.phase = Slowdown::Frozen { since: now, to_round: self.round + ROUNDS };
            return false;
        }
        true
    }

    /// Growth of one packet per `1/gain` round trips up to the target, beyond it a decrease in
    /// proportion to the window and to the excess, by half at most.
    fn adjust(&mut self, acked: &Acked, queueing: f64) {
        let excess = queueing / self.options.target.as_secs_f64() - 1.0;
        let (packets, gain) = (self.window.packets(), self.gain());
        let a_round =
            if excess <= 0.0 { gain } else { (gain - packets * excess).max(-packets / 2.0) };
        if a_round > 0.0 && acked.is_app_limited {
            return;
        }
        self.window.add(a_round * self.window.mss() * acked.bytes.as_f64() / self.window.size());
        self.window.lower_threshold(self.window.size());
    }
}

impl Default for LedbatPlusPlus {
    fn default() -> LedbatPlusPlus {
        LedbatPlusPlus::new(LedbatPlusPlusOptions::default())
    }
}

impl Windowed for LedbatPlusPlus {
    const NAME: &'static str = "ledbat++";

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let window = Window::new(start, FLOOR);
        *self = LedbatPlusPlus { window, ..LedbatPlusPlus::new(self.options) };
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        self.window.handle_progress();
        self.round = self.round.max(acked.round);
        if let Some(rtt) = acked.rtt {
            self.delays.handle_sample(now, rtt);
        }
        let Some(queueing) = self.delays.queueing() else { return };
        if !self.follow_phase(now) || acked.in_recovery {
            return;
        }
        let is_start = matches!(self.phase, Slowdown::Start);
        if is_start && queueing > SLOW_START_SHARE * self.options.target.as_secs_f64() {
            self.window.end_slow_start();
        }
        if !self.window.is_in_slow_start() {
            self.end_start();
            self.adjust(acked, queueing);
        } else if !acked.is_app_limited {
            self.window.slow_start_by(acked, self.gain());
        }
    }

    fn handle_congestion(&mut self, _now: Time, _congestion: &Congestion) {
        self.window.cut(self.window.size() / 2.0);
        self.end_start();
    }

    fn handle_timeout(&mut self, _now: Time, _in_flight: Bytes) {
        self.window.time_out(self.window.size() / 2.0);
        self.end_start();
    }

    fn handle_slow_start_end(&mut self, _now: Time) {
        // The end of a slowdown is not the sender's to decide.
        if matches!(self.phase, Slowdown::Start) {
            self.window.end_slow_start();
        }
    }
}
