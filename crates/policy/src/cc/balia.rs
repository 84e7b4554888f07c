//! BALIA: balanced linked adaptation (Peng, Walid, Hwang, Low 2013, draft-walid-mptcp-congestion-control): friendly, responsive, and steady.

use super::coupled::{Member, Rule};

/// BALIA's rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Balia;

/// The path's rate in packets a second, and how much faster the fastest is (`alpha` of the draft).
fn rate(members: &[Member], index: usize) -> Option<(f64, f64, f64)> {
    let rates = || members.iter().filter_map(Member::path).map(|(window, rtt)| window / rtt);
    let (window, rtt) = members[index].path()?;
    let own = window / rtt;
    Some((own, rates().fold(0.0, f64::max) / own, rates().sum()))
}

impl Rule for Balia {
    const NAME: &'static str = "balia";

    /// `x / (rtt (sum x)^2) x (1 + a)/2 x (4 + a)/5`.
    fn growth(&self, members: &[Member], index: usize) -> f64 {
        let (Some((own, ahead, sum)), Some(rtt)) = (rate(members, index), members[index].rtt) else { return 0.0 };
        own / (rtt * sum * sum) * f64::midpoint(1.0, ahead) * (4.0 + ahead) / 5.0
    }

    /// Half, and up to three quarters on the slower paths.
    fn cut(&self, members: &[Member], index: usize) -> f64 {
        rate(members, index).map_or(0.5, |(_, ahead, _)| 0.5 * ahead.min(1.5))
    }
}
