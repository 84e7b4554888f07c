//! TCP Nice (Venkataramani, Kokku and Dahlin, "TCP Nice: A Mechanism for Background Transfers",
//! 2002): Vegas that halves its window when many packets of a round trip met a queue, down to a
//! packet in 48 round trips.
//!
//! A packet counts whose round-trip time is beyond a share of the range of all; more of them than a
//! share of the window are congestion. Below one packet the allowance is one packet at a pace of
//! the window a round trip. From there the window grows by Vegas' steps.
//!
//! Where nobody ever fills the buffer, the range is that of Vegas' own few packets, and Nice halves
//! for them: alone it then has less than the link. On a fast line a few packets take less time than
//! hosts need to wake, and nearly every packet would count: a packet is late by a millisecond at
//! least, which the paper does not have.

use units::{Bytes, Rate, Span, Time};

use super::vegas::{Vegas, VegasOptions};
use super::window::{Rounds, Window};
use super::windowed::Windowed;
use super::{Acked, Allowance, Congestion, Start};

/// The smallest window in packets.
const FLOOR: f64 = 1.0 / 48.0;
/// A packet met a queue if it is later than the shortest round trip by this at least, in seconds:
/// hosts are no more exact.
const LEAST_LATE: f64 = 0.001;
/// The slowest pace.
const SLOWEST: Rate = Rate::from_bytes(1);

/// Nice's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NiceOptions {
    /// t: the share of the range of round-trip times above which a packet met a queue, 0 to 1.
    pub threshold: f64,
    /// f: the share of the window in packets above which such packets are congestion, 0 to 1.
    pub fraction: f64,
}

impl Default for NiceOptions {
    fn default() -> NiceOptions {
        NiceOptions { threshold: 0.1, fraction: 0.5 }
    }
}

/// Nice's window.
#[derive(Clone, Debug)]
pub struct Nice {
    options: NiceOptions,
    vegas: Vegas,
    rounds: Rounds,
    /// The largest round-trip time so far, seconds.
    most: f64,
    /// The packets of the round that met a queue.
    late: f64,
    /// Packets sent before say nothing of the last halving.
    halved: Time,
    smoothed: Span,
}

impl Nice {
    /// A controller with these parameters. Values outside their ranges are clamped.
    #[must_use]
    pub fn new(options: NiceOptions) -> Nice {
        let share = |value: f64| value.clamp(0.0, 1.0);
        Nice {
            options: NiceOptions {
                threshold: share(options.threshold),
                fraction: share(options.fraction),
            },
            vegas: Vegas::with_floor(VegasOptions { alpha: 1.0, beta: 3.0, gamma: 1.0 }, FLOOR),
            rounds: Rounds::default(),
            most: 0.0,
            late: 0.0,
            halved: Time::ZERO,
            smoothed: Span::ZERO,
        }
    }
}

impl Default for Nice {
    fn default() -> Nice {
        Nice::new(NiceOptions::default())
    }
}

impl Windowed for Nice {
    const NAME: &'static str = "nice";

    fn window(&self) -> &Window {
        self.vegas.window()
    }

    fn window_mut(&mut self) -> &mut Window {
        self.vegas.window_mut()
    }

    fn handle_start(&mut self, now: Time, start: &Start) {
        *self = Nice::new(self.options);
        self.vegas.handle_start(now, start);
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        let (packets, half) = (self.vegas.window().packets(), self.vegas.window().size() / 2.0);
        self.vegas.handle_acked(now, acked);
        self.smoothed = acked.smoothed_rtt;
        if self.rounds.is_over(acked.round, 1) {
            if self.late > self.options.fraction * packets && !acked.in_recovery {
                self.halved = now;
                self.vegas.lower_to(half);
            }
            self.late = 0.0;
        }
        let Some(rtt) = acked.rtt.map(Span::as_secs_f64) else { return };
        self.most = self.most.max(rtt);
        let base = self.vegas.base().min(rtt);
        let late = (self.options.threshold * (self.most - base)).max(LEAST_LATE);
        let is_late = rtt > base + late;
        if is_late && acked.sent_at >= self.halved {
            self.late += 1.0;
        }
    }

    fn handle_congestion(&mut self, now: Time, congestion: &Congestion) {
        let half = self.vegas.window().size() / 2.0;
        self.vegas.handle_congestion(now, congestion);
        // Vegas keeps two packets.
        self.vegas.lower_to(half);
    }

    fn handle_timeout(&mut self, now: Time, in_flight: Bytes) {
        self.vegas.handle_timeout(now, in_flight);
    }

    fn handle_idle_restart(&mut self, now: Time) {
        self.vegas.handle_idle_restart(now);
        self.rounds.restart();
        self.late = 0.0;
    }

    fn allowance(&self) -> Allowance {
        let (window, allowance) = (self.vegas.window(), self.vegas.allowance());
        if window.packets() >= 1.0 || self.smoothed == Span::ZERO {
            return allowance;
        }
        // One packet in 1/w round trips; a rate of nothing would never end.
        let pace = (allowance.window / self.smoothed).max(SLOWEST);
        Allowance { pacing: Some(pace), ..allowance }
    }
}
