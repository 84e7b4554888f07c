//! WAIMD, also known as `MulTCP` (Crowcroft and Oechslin, "Differentiated end-to-end Internet
//! services using a weighted proportional fair sharing TCP", 1998): one flow that behaves as `N`
//! Reno flows together would.

use units::{Bytes, Time};

use super::window::Window;
use super::windowed::Windowed;
use super::{Acked, Congestion, Start};

/// A window that grows by `N` packets a round trip and loses `1/(2N)` of itself at congestion,
/// since only one of the `N` flows would halve.
///
/// Slow start triples the window each round trip, up to `3ᵏ` times what it began with:
/// `k = ln N / (ln 3 − ln 2)` round trips, after which `N` flows that double would have as much.
/// Then it doubles. With weight 1 it is Reno.
///
/// Congestion counts once a window for any number of losses. At large `N` such cuts are too small
/// for an overflow of the queue: windows with many losses and timeouts follow.
///
/// With [`Waimd::plain`] only the additive increase and the multiplicative decrease are weighted:
/// slow start doubles, and congestion in slow start halves, as a timeout does. This corresponds to
/// ns-2 with `increase_num_` and `decrease_num_`.
#[derive(Clone, Debug)]
pub struct Waimd {
    weight: f64,
    is_plain: bool,
    window: Window,
    /// Below this many bytes slow start triples the window.
    tripling_until: f64,
}

impl Waimd {
    /// A flow with the weight of `weight` flows; less than 1, or NaN, becomes 1.
    #[must_use]
    pub fn new(weight: f64) -> Waimd {
        Waimd {
            weight: weight.max(1.0),
            is_plain: false,
            window: Window::default(),
            tripling_until: 0.0,
        }
    }

    /// The same, with slow start and timeouts of one flow.
    #[must_use]
    pub fn plain(weight: f64) -> Waimd {
        Waimd { is_plain: true, ..Waimd::new(weight) }
    }

    /// The share of the window that a cut leaves.
    fn remainder(&self) -> f64 {
        1.0 - 1.0 / (2.0 * self.weight)
    }

    /// Slow start begins with the present window and triples up to `3ᵏ = N^(ln 3 / (ln 3 − ln 2))`
    /// times that.
    fn begin_slow_start(&mut self) {
        let (two, three) = (core::f64::consts::LN_2, libm::log(3.0));
        self.tripling_until = match self.weight {
            _ if self.is_plain => 0.0,
            1.0 => 0.0,
            weight => self.window.size() * libm::pow(weight, three / (three - two)),
        };
    }
}

impl Default for Waimd {
    fn default() -> Waimd {
        Waimd::new(10.0)
    }
}

impl Windowed for Waimd {
    const NAME: &'static str = "waimd";

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        self.window = Window::new(start, 1.0);
        self.begin_slow_start();
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        self.window.handle_progress();
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        let per_packet = if self.window.size() < self.tripling_until { 2.0 } else { 1.0 };
        let bytes = self.window.slow_start_by(acked, per_packet);
        self.window.add(self.weight * self.window.mss() * bytes / self.window.size());
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        let halves = self.is_plain && self.window.is_in_slow_start();
        self.window
            .cut(congestion.in_flight.as_f64() * if halves { 0.5 } else { self.remainder() });
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        self.window
            .time_out(in_flight.as_f64() * if self.is_plain { 0.5 } else { self.remainder() });
        self.begin_slow_start();
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
        self.begin_slow_start();
    }
}
