//! OLIA: opportunistic linked increases (draft-khalili-mptcp-congestion-control-05).

use super::coupled::{Coupling, PathState};

/// Takes no more than one flow, as LIA, and moves windows away from paths that lose more than the
/// best ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Olia;

impl Olia {
    /// `l_r / rtt_r²`, which ranks the paths (set B).
    fn merit(path: &PathState) -> f64 {
        path.between_losses / (path.rtt * path.rtt)
    }

    /// ε of section 3: positive on the best paths with small windows, negative on the paths with
    /// the largest window, zero if these sets do not differ.
    fn epsilon(paths: &[PathState], at: usize) -> f64 {
        // Windows are compared in whole packets, as in Linux: real numbers are hardly ever equal.
        let window = |path: &PathState| libm::floor(path.window / path.mss);
        let largest = paths.iter().map(window).fold(0.0, f64::max);
        let best = paths.iter().map(Olia::merit).fold(0.0, f64::max);
        let is_largest = |path: &PathState| window(path) >= largest;
        let is_left_behind = |path: &PathState| !is_largest(path) && Olia::merit(path) >= best;

        let left_behind = paths.iter().filter(|path| is_left_behind(path)).count();
        if left_behind == 0 {
            0.0
        } else if is_left_behind(&paths[at]) {
            1.0 / count(paths.len() * left_behind)
        } else if is_largest(&paths[at]) {
            -1.0 / count(paths.len() * paths.iter().filter(|path| is_largest(path)).count())
        } else {
            0.0
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of subflows")]
fn count(n: usize) -> f64 {
    n as f64
}

impl Coupling for Olia {
    const NAME: &'static str = "olia";

    /// Section 3: `(w_r / rtt_r²) / (Σ w_p / rtt_p)² + ε_r / w_r` packets for each acknowledged
    /// packet. It may be negative.
    fn growth(&self, paths: &[PathState], at: usize) -> f64 {
        let path = &paths[at];
        let rate: f64 = paths.iter().map(PathState::rate).sum();
        path.mss * (path.rate() / path.rtt / (rate * rate) + Olia::epsilon(paths, at) / path.window)
    }
}
