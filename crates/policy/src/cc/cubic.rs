//! CUBIC (RFC 9438). Windows are counted in packets (segments) here, as in the RFC.

use units::{Bytes, Time};

use super::window::{Window, elapsed};
use super::windowed::Windowed;
use super::{Acked, Congestion, Start};

/// CUBIC's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubicOptions {
    /// C, in packets a second³ (RFC 9438, section 5): above 0.
    pub c: f64,
    /// β: the share of the window that remains after congestion, between 0 and 1 (section 4.6).
    pub beta: f64,
    /// Whether a flow with a shrinking plateau releases more bandwidth (section 4.7).
    pub fast_convergence: bool,
}

impl Default for CubicOptions {
    fn default() -> CubicOptions {
        CubicOptions { c: 0.4, beta: 0.7, fast_convergence: true }
    }
}

/// CUBIC's window.
#[derive(Clone, Debug)]
pub struct Cubic {
    options: CubicOptions,
    window: Window,
    curve: Curve,
    /// The curve before the last cut.
    before: Option<Curve>,
    /// The share of one flow's rate that it takes, of a path among several.
    share: f64,
}

/// CUBIC's state besides the window.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    /// `W_max`: the window before the last cut, perhaps lowered by fast convergence; `None` before
    /// the first one and after a timeout.
    plateau: Option<f64>,
    /// `cwnd_prior`: the window before the last cut.
    prior: f64,
    /// The present stage of congestion avoidance; `None` until its first acknowledgement.
    epoch: Option<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// t: seconds since the stage began, without application-limited time (section 5.8).
    age: f64,
    /// When `age` was brought up to date.
    at: Time,
    /// K: the age at which the curve reaches the plateau, seconds.
    k: f64,
    /// `W_max` of the stage.
    plateau: f64,
    /// `W_est`: Reno's window.
    estimate: f64,
}

impl Cubic {
    /// A controller with these constants. Values outside their ranges are clamped.
    #[must_use]
    pub fn new(options: CubicOptions) -> Cubic {
        let options = CubicOptions {
            c: options.c.clamp(1e-6, 1e6),
            beta: options.beta.clamp(0.01, 0.99),
            ..options
        };
        let (window, curve) = (Window::default(), Curve::default());
        Cubic { options, window, curve, before: None, share: 1.0 }
    }

    /// From now on it takes this share of what one flow takes at the same loss rate, above 0 and up
    /// to 1.
    pub(super) fn set_share(&mut self, share: f64) {
        self.share = share;
    }

    /// Sections 4.2 to 4.5, for `packets` packets acknowledged.
    fn avoid_congestion(&mut self, now: Time, acked: &Acked, packets: f64) {
        let CubicOptions { c, beta, .. } = self.options;
        // Rates grow with the fourth root of C, and with the square root of α.
        let reno = self.share * self.share;
        let c = c * reno * reno;
        let window = self.window.packets();
        let prior = self.curve.prior;
        let epoch = self
            .curve
            .epoch
            .get_or_insert_with(|| Epoch::begin(now, window, self.curve.plateau, c));
        epoch.age += elapsed(epoch.at, now);
        epoch.at = now;

        // Once the estimate has reached the window before the last cut, α is 1, as Reno's (section
        // 4.3).
        let alpha = if epoch.estimate >= prior { 1.0 } else { 3.0 * (1.0 - beta) / (1.0 + beta) };
        epoch.estimate += reno * alpha * packets / window;

        let grown = if epoch.curve(c, epoch.age) < epoch.estimate {
            epoch.estimate.max(window)
        } else {
            let target = epoch.curve(c, epoch.age + acked.smoothed_rtt.as_secs_f64());
            window + (target.max(window).min(1.5 * window) - window) * packets / window
        };
        self.window.set(grown * self.window.mss());
    }

    /// Sections 4.6 and 4.7.
    fn note_cut(&mut self) {
        self.before = Some(self.curve);
        let window = self.window.packets();
        let is_shrinking = self.options.fast_convergence
            && self.curve.plateau.is_some_and(|plateau| window < plateau);
        let plateau = if is_shrinking { window * (1.0 + self.options.beta) / 2.0 } else { window };
        self.curve = Curve { plateau: Some(plateau), prior: window, epoch: None };
    }
}

impl Epoch {
    /// Without a plateau (slow start ended without loss, or after a timeout) the curve begins at
    /// its middle (sections 4.8 and 4.10).
    fn begin(now: Time, window: f64, plateau: Option<f64>, c: f64) -> Epoch {
        let plateau = plateau.unwrap_or(window).max(window);
        Epoch {
            age: 0.0,
            at: now,
            k: libm::cbrt((plateau - window) / c),
            plateau,
            estimate: window,
        }
    }

    /// `W_cubic(t)` in packets (equation 1).
    fn curve(&self, c: f64, t: f64) -> f64 {
        let x = t - self.k;
        c * x * x * x + self.plateau
    }
}

impl Default for Cubic {
    fn default() -> Cubic {
        Cubic::new(CubicOptions::default())
    }
}

impl Windowed for Cubic {
    const NAME: &'static str = "cubic";

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let (window, share) = (Window::new(start, 1.0), self.share);
        *self = Cubic { window, share, ..Cubic::new(self.options) };
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        self.window.handle_progress();
        if acked.in_recovery || acked.is_app_limited {
            if let Some(epoch) = &mut self.curve.epoch {
                epoch.at = now;
            }
            return;
        }
        let left = self.window.slow_start(acked);
        if left > 0.0 {
            self.avoid_congestion(now, acked, left / self.window.mss());
        }
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.note_cut();
        self.window.cut(congestion.in_flight.as_f64() * self.options.beta);
    }

    fn handle_timeout(&mut self, _now: Time, in_flight: Bytes) {
        let window = self.window.packets();
        if self.window.time_out(in_flight.as_f64() * self.options.beta) {
            self.before = Some(self.curve);
            self.curve = Curve { plateau: None, prior: window, epoch: None };
        }
    }

    fn handle_undo(&mut self, now: Time) {
        self.window.undo();
        if let Some(mut curve) = self.before.take() {
            // Section 4.9.2. The time in between does not count, or the window would jump.
            if let Some(epoch) = &mut curve.epoch {
                epoch.at = now;
            }
            self.curve = curve;
        }
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window.restart();
        // A new stage: the old curve does not fit the window at the end of slow start.
        self.curve.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_outlives_a_new_start() {
        let mut cubic = Cubic::default();
        cubic.set_share(0.5);
        let start = Start { mss: Bytes(1_000), initial_window: Bytes(10_000), rtt: None };
        cubic.handle_start(Time::ZERO, &start);
        assert_eq!((cubic.share, cubic.window.packets()), (0.5, 10.0));
    }
}
