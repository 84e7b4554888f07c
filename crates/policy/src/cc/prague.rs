//! Prague: DCTCP for the Internet (draft-briscoe-iccrg-prague-congestion-control-04, section 2.4,
//! as its reference implementation for Linux has it).
//!
//! As [`Dctcp`](super::Dctcp) it falls by half of the average part of marked bytes. Beyond that:
//!
//! * What was marked does not grow the window, and a reduction does not end the growth, so that a
//!   flow whose every packet is marked still has a balance: `2 (1 - p) / p` packets.
//! * The average begins at the first mark, with 1.
//! * Flows that last treat round trips below 25 ms as if they were 25 ms: they grow by as much as
//!   such a flow in the same time, and average and reduce once in 25 ms. Short round trips then
//!   take no more than others.
//! * Packets are paced over the round trip, so that they do not queue behind each other.
//!
//! Losses are Reno's. What the draft leaves optional is left out: windows below a packet, the
//! detection of queues that mark as RFC 3168 has it.

use units::{Bytes, Rate, Span, Time};

use super::window::{Rounds, Window};
use super::windowed::Windowed;
use super::{Acked, Allowance, Congestion, Signal, Start};

/// The time in which a burst leaves at the pacing rate: a quarter of a millisecond.
const BURST: Span = Span::from_micros(250);

/// Prague's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PragueOptions {
    /// The weight of a round trip in the average part of marked bytes, above 0 and up to 1.
    pub weight: f64,
    /// The round-trip time that shorter ones count as; zero: none.
    pub virtual_rtt: Span,
    /// After so many round trips of congestion avoidance they do.
    pub transition: u64,
}

impl Default for PragueOptions {
    /// A sixteenth, 25 ms, 500.
    fn default() -> PragueOptions {
        PragueOptions { weight: 1.0 / 16.0, virtual_rtt: Span::from_millis(25), transition: 500 }
    }
}

/// Prague's window and pace.
#[derive(Clone, Debug)]
pub struct Prague {
    options: PragueOptions,
    window: Window,
    /// The part of bytes that are marked, its average over round trips.
    alpha: f64,
    /// Whether any packet came marked; before, there is nothing to average.
    has_marks: bool,
    rounds: Rounds,
    /// Round trips outside of slow start.
    round_trips: u64,
    /// Acknowledged and marked bytes since the average was last brought up to date.
    acked: f64,
    marked: f64,
    averaged_at: Time,
    /// When a mark last reduced the window.
    reduced_at: Option<Time>,
    /// Whether a sign of marks came within a virtual round trip. The sender gives the next one
    /// after a real one only; further marks count from the end of the virtual one on.
    is_owed: bool,
    /// The last sign of congestion: recovery from losses ends the growth, one from marks does not.
    last: Signal,
    smoothed_rtt: Span,
}

impl Prague {
    /// A weight outside of its range becomes the default.
    #[must_use]
    pub fn new(options: PragueOptions) -> Prague {
        let is_weight = options.weight > 0.0 && options.weight <= 1.0;
        let weight = if is_weight { options.weight } else { PragueOptions::default().weight };
        Prague {
            options: PragueOptions { weight, ..options },
            window: Window::default(),
            alpha: 1.0,
            has_marks: false,
            rounds: Rounds::default(),
            round_trips: 0,
            acked: 0.0,
            marked: 0.0,
            averaged_at: Time::ZERO,
            reduced_at: None,
            is_owed: false,
            last: Signal::Mark,
            smoothed_rtt: Span::ZERO,
        }
    }

    /// Whether a round trip counts as the virtual one if it is shorter.
    fn is_scaled(&self) -> bool {
        self.round_trips >= self.options.transition
    }

    /// Whether the virtual round trip that began at `since` lasts, where such round trips count.
    fn is_within_virtual(&self, since: Time, now: Time) -> bool {
        self.is_scaled() && now < since + self.options.virtual_rtt
    }

    /// Counts what an acknowledgement says of marks; at the end of a round trip it goes into the
    /// average.
    fn count(&mut self, now: Time, acked: &Acked) {
        self.has_marks |= acked.ce_packets > 0;
        self.acked += acked.bytes.as_f64();
        self.marked += acked.ce_bytes.as_f64();
        if !self.rounds.is_over(acked.round, 1) {
            return;
        }
        self.round_trips += u64::from(!self.window.is_in_slow_start());
        if self.is_within_virtual(self.averaged_at, now) {
            return;
        }
        if self.has_marks && self.acked > 0.0 {
            // Some of the marked bytes may be acknowledged in another round trip.
            let part = (self.marked / self.acked).min(1.0);
            self.alpha += self.options.weight * (part - self.alpha);
            self.averaged_at = now;
        }
        (self.acked, self.marked) = (0.0, 0.0);
    }

    /// A mark, which counts once in a virtual round trip.
    fn handle_mark(&mut self, now: Time) {
        self.is_owed = self.reduced_at.is_some_and(|at| self.is_within_virtual(at, now));
        if !self.is_owed {
            self.reduced_at = Some(now);
            self.window.cut(self.window.size() * (1.0 - self.alpha / 2.0));
        }
    }

    /// Packets that a round trip without marks adds. A packet in each virtual round trip would be
    /// `rtt / virtual` of one in each real one; a window that is `virtual / rtt` times smaller than
    /// that of a flow with the same rate makes it the square.
    fn growth(&self) -> f64 {
        let (rtt, least) = (self.smoothed_rtt, self.options.virtual_rtt);
        if !self.is_scaled() || rtt >= least {
            return 1.0;
        }
        let share = rtt.as_secs_f64() / least.as_secs_f64();
        share * share
    }
}

impl Default for Prague {
    fn default() -> Prague {
        Prague::new(PragueOptions::default())
    }
}

impl Windowed for Prague {
    const NAME: &'static str = "prague";
    const IS_SCALABLE: bool = true;

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        *self = Prague {
            window: Window::new(start, 1.0),
            smoothed_rtt: start.rtt.unwrap_or_default(),
            ..Prague::new(self.options)
        };
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        self.smoothed_rtt = acked.smoothed_rtt;
        self.count(now, acked);
        if self.is_owed && acked.ce_packets > 0 {
            self.handle_mark(now);
        }
        self.window.handle_progress();
        if acked.is_app_limited || acked.in_recovery && self.last == Signal::Loss {
            return;
        }
        let unmarked = Acked { bytes: acked.bytes - acked.ce_bytes, ..*acked };
        let bytes = self.window.slow_start(&unmarked);
        self.window.add(self.growth() * self.window.mss() * bytes / self.window.size());
    }

    fn handle_congestion(&mut self, now: Time, congestion: &Congestion) {
        self.last = congestion.signal;
        match congestion.signal {
            Signal::Mark => self.handle_mark(now),
            Signal::Loss => {
                self.is_owed = false;
                self.window.cut(congestion.in_flight.as_f64() / 2.0);
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window.time_out(in_flight.as_f64() / 2.0);
    }

    /// A window a round trip; two while slow start is far from its end, since each acknowledgement
    /// allows two packets then.
    fn allowance(&self) -> Allowance {
        let allowance = self.window.allowance();
        if self.smoothed_rtt == Span::ZERO {
            return allowance;
        }
        let rate = allowance.window / self.smoothed_rtt;
        let is_far = self.window.threshold().is_none_or(|end| allowance.window.0 < end.0 / 2);
        let bits = rate.as_bits().saturating_mul(if is_far { 2 } else { 1 });
        // A round trip of hours is no reason to stand still.
        let rate = Rate::from_bits(bits.max(1));
        Allowance { pacing: Some(rate), burst: rate * BURST, ..allowance }
    }
}
