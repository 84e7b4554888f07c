//! LIA: linked increases (RFC 6356). Together no more than one Reno on the best path, and some traffic off the congested ones.

use super::coupled::{Member, Rule};

/// LIA's rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lia;

impl Rule for Lia {
    const NAME: &'static str = "lia";

    /// `min(alpha / total, 1 / window)` with `alpha = total max(w/rtt^2) / (sum w/rtt)^2` (section 3, equations 1 and 2).
    fn growth(&self, members: &[Member], index: usize) -> f64 {
        let (mut best, mut sum) = (0.0f64, 0.0);
        for (window, rtt) in members.iter().filter_map(Member::path) {
            best = best.max(window / (rtt * rtt));
            sum += window / rtt;
        }
        let alone = 1.0 / members[index].window.packets();
        if sum > 0.0 { (best / (sum * sum)).min(alone) } else { alone }
    }
}
