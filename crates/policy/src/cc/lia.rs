//! LIA: linked increases (RFC 6356).

use super::coupled::{Coupling, PathState};

/// The connection takes as much as one flow on its best path would; no subflow grows faster than
/// Reno.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lia;

impl Coupling for Lia {
    const NAME: &'static str = "lia";

    /// `min(α / Σw, 1 / w_i)` MSS for each acknowledged byte (RFC 6356, section 3), with the α of
    /// equation 2.
    fn growth(&self, paths: &[PathState], at: usize) -> f64 {
        let path = &paths[at];
        let total: f64 = paths.iter().map(|path| path.window).sum();
        let rate: f64 = paths.iter().map(PathState::rate).sum();
        let best = paths.iter().map(|path| path.rate() / path.rtt).fold(0.0, f64::max);
        let alpha = total * best / (rate * rate);
        path.mss * (alpha / total).min(1.0 / path.window)
    }
}
