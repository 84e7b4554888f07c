//! CUBIC over several paths, coupled by a rule of ours: MPCUBIC's (Le et al.) could not be found,
//! and this is not it.
//!
//! CUBIC's rate at a given loss rate grows with the fourth root of C, and Reno's with the square
//! root of its growth. So a path with the share `a` of the connection's rate has `C a⁴`, and `a²`
//! of the growth where it follows Reno: it takes `a` times what one flow of CUBIC would take there,
//! all paths together take one flow's share, and traffic leaves the worse ones.

use alloc::boxed::Box;
use alloc::vec::Vec;

use units::{Bytes, SubflowId, Time};

use super::window::seconds;
use super::{Acked, Allowance, Congestion, Controller, Cubic, SinglePath, Start};

/// The least share, so that a path can return.
const LEAST_SHARE: f64 = 0.1;

/// The controller.
#[derive(Clone, Debug, Default)]
pub struct CoupledCubic {
    subflows: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    id: SubflowId,
    cubic: Cubic,
    /// Seconds.
    rtt: Option<f64>,
}

impl Member {
    /// Bytes a second; `None` before the first acknowledgement.
    fn rate(&self) -> Option<f64> {
        Some(self.cubic.allowance().window.as_f64() / self.rtt?)
    }
}

impl CoupledCubic {
    fn member(&mut self, id: SubflowId) -> Option<&mut Member> {
        self.subflows.iter_mut().find(|member| member.id == id)
    }

    fn cubic(&mut self, id: SubflowId) -> Option<&mut Cubic> {
        self.member(id).map(|member| &mut member.cubic)
    }
}

impl Controller for CoupledCubic {
    fn name(&self) -> &'static str {
        "coupled-cubic"
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        let mut cubic = Cubic::default();
        cubic.handle_start(now, start);
        self.subflows.push(Member { id, cubic, rtt: None });
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        self.subflows.retain(|member| member.id != id);
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        let sum: f64 = self.subflows.iter().filter_map(Member::rate).sum();
        let Some(member) = self.member(id) else { return };
        member.rtt = seconds(acked.smoothed_rtt).or(member.rtt);
        if let Some(rate) = member.rate().filter(|_| sum > 0.0) {
            member.cubic.set_share((rate / sum).clamp(LEAST_SHARE, 1.0));
        }
        member.cubic.handle_acked(now, acked);
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        if let Some(cubic) = self.cubic(id) {
            cubic.handle_congestion(now, congestion);
        }
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        if let Some(cubic) = self.cubic(id) {
            cubic.handle_timeout(now, in_flight);
        }
    }

    fn handle_undo(&mut self, now: Time, id: SubflowId) {
        if let Some(cubic) = self.cubic(id) {
            cubic.handle_undo(now);
        }
    }

    fn handle_idle_restart(&mut self, now: Time, id: SubflowId) {
        if let Some(cubic) = self.cubic(id) {
            cubic.handle_idle_restart(now);
        }
    }

    fn handle_slow_start_end(&mut self, now: Time, id: SubflowId) {
        if let Some(cubic) = self.cubic(id) {
            cubic.handle_slow_start_end(now);
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.subflows
            .iter()
            .find(|member| member.id == id)
            .map_or_else(|| Allowance::window(Bytes::ZERO), |member| member.cubic.allowance())
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.subflows.iter().find(|member| member.id == id)?.cubic.threshold()
    }

    fn wants_snapshots(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
