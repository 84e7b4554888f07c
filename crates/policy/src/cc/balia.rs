//! BALIA: balanced linked adaptation (draft-walid-mptcp-congestion-control-04).

use super::coupled::{Coupling, PathState};

/// Between LIA's friendliness and OLIA's responsiveness: both increase and decrease depend on how
/// much slower a path is than the fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Balia;

impl Balia {
    /// `α_r = max x / x_r`: 1 on the fastest path, more on others.
    fn alpha(paths: &[PathState], at: usize) -> f64 {
        paths.iter().map(PathState::rate).fold(0.0, f64::max) / paths[at].rate()
    }
}

impl Coupling for Balia {
    const NAME: &'static str = "balia";

    /// Section 3: `x_r / (rtt_r (Σx)²) · (1 + α_r)/2 · (4 + α_r)/5` packets for each acknowledged
    /// packet.
    fn growth(&self, paths: &[PathState], at: usize) -> f64 {
        let path = &paths[at];
        let rate: f64 = paths.iter().map(PathState::rate).sum();
        let alpha = Balia::alpha(paths, at);
        path.mss * path.rate() / (path.rtt * rate * rate) * (1.0 + alpha) / 2.0 * (4.0 + alpha)
            / 5.0
    }

    /// Section 3: the window loses `w/2 · min(α_r, 1.5)`.
    fn remainder(&self, paths: &[PathState], at: usize) -> f64 {
        1.0 - Balia::alpha(paths, at).min(1.5) / 2.0
    }
}
