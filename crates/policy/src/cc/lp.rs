//! TCP-LP (Kuzmanovic and Knightly, "TCP-LP: A Distributed Algorithm for Low Priority Data
//! Transfer", 2003): Reno that takes a rise of the one-way delay for congestion.
//!
//! The smoothed delay beyond a share of the range of all delays is an indication. The first one
//! halves the window and begins an inference phase of three round trips, in which the window does
//! not grow. A further one in this phase leaves one packet. A reduction shows in packets that are
//! sent after it, and in the smoothed delay a round trip later still: packets sent within a round
//! trip of an indication give no other. With `reseed`, the range begins anew at each indication, as
//! in Linux: the flow follows a standing queue of others, and yields less. Alone on a path whose
//! threshold is a short queue it has three quarters of it, as halving has it.

use units::{Bytes, Span, Time};

use super::forward_delay::ForwardDelay;
use super::window::Window;
use super::windowed::Windowed;
use super::{Acked, Congestion, DelayRange, Start};

/// The weight of a sample in the smoothed delay.
const WEIGHT: f64 = 1.0 / 8.0;
/// The least distance of the threshold from the least delay, seconds: without it a range that has
/// seen no queue makes an indication of each packet's own time on the line, and an idle path stays
/// at one packet.
const LEAST_DISTANCE: f64 = 0.002;
/// The inference phase, in round trips.
const INFERENCE: u64 = 3;

/// TCP-LP's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LpOptions {
    /// The share of the range of delays above which there is congestion, 0 to 1.
    pub threshold: f64,
    /// Whether the range begins anew at each indication, from the smoothed delay to twice that.
    pub reseed: bool,
}

impl Default for LpOptions {
    fn default() -> LpOptions {
        LpOptions { threshold: 0.15, reseed: false }
    }
}

/// TCP-LP's window.
#[derive(Clone, Debug)]
pub struct Lp {
    options: LpOptions,
    window: Window,
    /// The clock of its delays.
    delay: ForwardDelay,
    delays: LpDelays,
    /// When the inference phase ends.
    inference_until: Option<Time>,
    /// Packets sent before say nothing of the last reduction.
    deaf_until: Time,
}

/// The delays that are remembered; `None` before the first one.
#[derive(Clone, Copy, Debug, Default)]
struct LpDelays(Option<Range>);

/// The least, the largest and the smoothed delay, seconds.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: f64,
    most: f64,
    smoothed: f64,
}

impl DelayRange for LpDelays {
    fn range(&self) -> Option<(Span, Span)> {
        let seconds = Span::from_secs_f64;
        self.0.map(|range| (seconds(range.least), seconds(range.most)))
    }

    fn set_range(&mut self, least: Span, most: Span) {
        let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
        let smoothed = self.0.map_or(least, |range| range.smoothed.max(least));
        self.0 = Some(Range { least, most, smoothed });
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Lp {
    /// A controller with these parameters. A threshold outside its range is clamped.
    #[must_use]
    pub fn new(options: LpOptions) -> Lp {
        let threshold = options.threshold.clamp(0.0, 1.0);
        Lp {
            options: LpOptions { threshold, ..options },
            window: Window::default(),
            delay: ForwardDelay::default(),
            delays: LpDelays::default(),
            inference_until: None,
            deaf_until: Time::ZERO,
        }
    }

    /// Takes a delay in seconds. Returns whether it indicates congestion.
    fn is_congested(&mut self, delay: f64) -> bool {
        let fresh = Range { least: delay, most: delay, smoothed: delay };
        let range = self.delays.0.get_or_insert(fresh);
        range.least = range.least.min(delay);
        range.most = range.most.max(delay);
        range.smoothed += WEIGHT * (delay - range.smoothed);
        let distance = self.options.threshold * (range.most - range.least);
        range.smoothed > range.least + distance.max(LEAST_DISTANCE)
    }

    /// An indication of congestion, before a loss.
    fn handle_indication(&mut self, now: Time, acked: &Acked) {
        if acked.sent_at < self.deaf_until {
            return;
        }
        self.deaf_until = now + acked.smoothed_rtt;
        if self.is_inferring(now) {
            self.window.set(self.window.mss());
        } else {
            self.window.set(self.window.size() / 2.0);
        }
        self.window.lower_threshold(self.window.size());
        self.window.end_slow_start();
        self.inference_until = Some(now + acked.smoothed_rtt * INFERENCE);
        if let Some(range) = self.delays.0.as_mut().filter(|_| self.options.reseed) {
            let smoothed = range.smoothed;
            *range = Range { least: smoothed, most: 2.0 * smoothed, smoothed };
        }
    }

    fn is_inferring(&self, now: Time) -> bool {
        self.inference_until.is_some_and(|until| now < until)
    }
}

impl Default for Lp {
    fn default() -> Lp {
        Lp::new(LpOptions::default())
    }
}

impl Windowed for Lp {
    const NAME: &'static str = "lp";

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        *self = Lp { window: Window::new(start, 1.0), ..Lp::new(self.options) };
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        self.window.handle_progress();
        let delay = self.delay.sample(now, acked, &mut self.delays);
        if delay.is_some_and(|delay| self.is_congested(delay.as_secs_f64())) {
            self.handle_indication(now, acked);
        }
        if acked.in_recovery || acked.is_app_limited || self.is_inferring(now) {
            return;
        }
        let left = self.window.slow_start(acked);
        self.window.add(left * self.window.mss() / self.window.size());
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.window.cut(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window.time_out(in_flight.as_f64() / 2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found in the simulator: a line that nobody uses had .6 of 40 Mbit/s. Delays differ by no
    /// more than a packet's time on it, a third of a millisecond.
    #[test]
    fn the_time_of_a_packet_is_no_congestion() {
        let mut lp = Lp::default();
        let congested =
            (0..1_000_u32).filter(|n| lp.is_congested(0.025 + f64::from(n % 7) * 5e-5)).count();
        assert_eq!(congested, 0);
        // A queue of more than the least distance is, where no larger one was seen.
        assert!((0..100).any(|_| lp.is_congested(0.028)));
    }
}
