//! LEDBAT (RFC 6817): keeps the delay that it adds to a queue at a target, and yields to everything
//! that adds more.
//!
//! There is no slow start, and the window begins with at most two packets (`INIT_CWND`). The
//! delays are one-way, those of the data; a transport that has none gives round-trip times, whose
//! way back counts then too. A latecomer takes a standing queue for the base delay, as the RFC
//! says (section 4.4); [`LedbatPlusPlus`](super::LedbatPlusPlus) drains it now and then.

use units::{Bytes, Span, Time};

use super::delays::Delays;
use super::forward_delay::ForwardDelay;
use super::window::Window;
use super::windowed::Windowed;
use super::{Acked, Congestion, Start};

/// `ALLOWED_INCREASE`: packets by which the window may exceed what is in flight.
const ALLOWED_INCREASE: f64 = 1.0;
/// `INIT_CWND`, packets.
const INITIAL: u64 = 2;

/// LEDBAT's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LedbatOptions {
    /// `TARGET`: the queueing delay that it keeps, up to 100 ms.
    pub target: Span,
    /// `GAIN`: packets more a round trip when the queue is empty, up to 1.
    pub gain: f64,
}

impl Default for LedbatOptions {
    fn default() -> LedbatOptions {
        LedbatOptions { target: Span::from_millis(100), gain: 1.0 }
    }
}

/// LEDBAT's window.
#[derive(Clone, Debug)]
pub struct Ledbat {
    options: LedbatOptions,
    window: Window,
    delay: ForwardDelay,
    delays: Delays,
}

impl Ledbat {
    /// A controller with these parameters. Values outside their ranges are clamped.
    #[must_use]
    pub fn new(options: LedbatOptions) -> Ledbat {
        let target = options.target.clamp(Span::from_millis(1), Span::from_millis(100));
        let gain = if options.gain > 0.0 { options.gain.min(1.0) } else { 1.0 };
        let options = LedbatOptions { target, gain };
        let (delay, delays) = (ForwardDelay::default(), Delays::default());
        Ledbat { options, window: Window::default(), delay, delays }
    }
}

impl Default for Ledbat {
    fn default() -> Ledbat {
        Ledbat::new(LedbatOptions::default())
    }
}

impl Windowed for Ledbat {
    const NAME: &'static str = "ledbat";

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let most = Bytes(start.mss.0.saturating_mul(INITIAL));
        let start = Start { initial_window: start.initial_window.min(most), ..*start };
        let mut window = Window::new(&start, 2.0);
        window.end_slow_start();
        *self = Ledbat { window, ..Ledbat::new(self.options) };
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        self.window.handle_progress();
        if let Some(delay) = self.delay.sample(now, acked, &mut self.delays) {
            self.delays.handle_sample(now, delay);
        }
        let Some(queueing) = self.delays.queueing() else { return };
        if acked.in_recovery {
            return;
        }
        let (bytes, mss) = (acked.bytes.as_f64(), self.window.mss());
        let off_target = 1.0 - queueing / self.options.target.as_secs_f64();
        let step = self.options.gain * off_target * bytes * mss / self.window.size();
        let in_flight = acked.in_flight.as_f64() + bytes;
        let most = in_flight + ALLOWED_INCREASE * mss;
        self.window.set((self.window.size() + step).min(most));
        self.window.lower_threshold(self.window.size());
    }

    fn handle_congestion(&mut self, _now: Time, _congestion: &Congestion) {
        self.window.cut(self.window.size() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, _in_flight: Bytes) {
        self.window.time_out(self.window.size() / 2.0);
        self.window.end_slow_start();
    }

    fn handle_undo(&mut self, _now: Time) {
        self.window.undo();
        self.window.end_slow_start();
    }

    fn handle_slow_start_end(&mut self, _now: Time) {}
}
