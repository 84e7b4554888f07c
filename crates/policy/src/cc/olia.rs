//! OLIA: opportunistic linked increases (Khalili et al. 2012, draft-khalili-mptcp-congestion-control): Pareto-optimal, and still responsive.

use super::coupled::{Member, Rule};

/// OLIA's rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Olia;

/// Two windows, or two paths' qualities, that differ by less than this are equal: floats hardly ever are.
const TOLERANCE: f64 = 1e-9;

impl Rule for Olia {
    const NAME: &'static str = "olia";

    /// `(w/rtt^2) / (sum w/rtt)^2 + alpha/w`, where alpha moves traffic from the largest windows to the best paths.
    fn growth(&self, members: &[Member], index: usize) -> f64 {
        let sum: f64 = members.iter().filter_map(Member::path).map(|(window, rtt)| window / rtt).sum();
        let Some((window, rtt)) = members[index].path() else { return 0.0 };
        if sum <= 0.0 {
            return 0.0;
        }
        window / (rtt * rtt) / (sum * sum) + shift(members, index) / window
    }
}

/// The draft's alpha for one path.
fn shift(members: &[Member], index: usize) -> f64 {
    let quality = |member: &Member| {
        let sent = member.since_loss.max(member.between_losses);
        member.path().map_or(0.0, |(_, rtt)| sent / (rtt * rtt))
    };
    let largest = members.iter().map(|member| member.window.packets()).fold(0.0, f64::max);
    let best = members.iter().map(quality).fold(0.0, f64::max);
    let is_largest = |member: &Member| member.window.packets() >= largest * (1.0 - TOLERANCE);
    let is_collected = |member: &Member| quality(member) >= best * (1.0 - TOLERANCE) && !is_largest(member);
    let collected = count(members.iter().filter(|member| is_collected(member)).count());
    if collected == 0.0 {
        return 0.0;
    }
    let paths = count(members.len());
    let member = &members[index];
    if is_collected(member) {
        1.0 / (paths * collected)
    } else if is_largest(member) {
        -1.0 / (paths * count(members.iter().filter(|member| is_largest(member)).count()))
    } else {
        0.0
    }
}

#[expect(clippy::cast_precision_loss, reason = "a handful of paths")]
fn count(n: usize) -> f64 {
    n as f64
}
