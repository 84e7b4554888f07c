//! What the coupled loss-based algorithms have in common: Reno on each subflow, but for how much it grows and how deep it is cut.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use units::{Bytes, SubflowId, Time};

use super::window::{Window, seconds};
use super::{Acked, Allowance, Congestion, Controller, Start};

/// What a rule sees of a subflow.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub(super) id: SubflowId,
    pub(super) window: Window,
    /// Smoothed round-trip time in seconds; `None` before the first sample.
    pub(super) rtt: Option<f64>,
    /// Bytes acknowledged since the last loss, and between the last two.
    pub(super) since_loss: f64,
    pub(super) between_losses: f64,
}

impl Member {
    /// Its window in packets, in recovery and slow start too, and its smoothed round-trip time in seconds; `None` before the first sample.
    #[must_use]
    pub fn path(&self) -> Option<(f64, f64)> {
        Some((self.window.packets(), self.rtt?))
    }
}

/// How a coupled algorithm differs from Reno.
pub trait Rule: Clone + fmt::Debug + Send + 'static {
    /// The name by which it is chosen.
    const NAME: &'static str;

    /// By how many packets the window of `members[index]` grows in congestion avoidance for each packet acknowledged.
    fn growth(&self, members: &[Member], index: usize) -> f64;

    /// What part of the window is taken away by congestion.
    fn cut(&self, _members: &[Member], _index: usize) -> f64 {
        0.5
    }
}

/// The subflows of a connection under one rule.
#[derive(Clone, Debug)]
pub struct Coupled<R> {
    rule: R,
    members: Vec<Member>,
}

impl<R: Rule> Coupled<R> {
    /// Without subflows.
    #[must_use]
    pub fn new(rule: R) -> Coupled<R> {
        Coupled { rule, members: Vec::new() }
    }

    fn index(&self, id: SubflowId) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    fn member(&mut self, id: SubflowId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == id)
    }
}

impl<R: Rule> Controller for Coupled<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn handle_add(&mut self, _now: Time, id: SubflowId, start: &Start) {
        self.members.retain(|member| member.id != id);
        let window = Window::new(start);
        self.members.push(Member { id, window, rtt: None, since_loss: 0.0, between_losses: 0.0 });
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        self.members.retain(|member| member.id != id);
    }

    fn handle_acked(&mut self, _now: Time, id: SubflowId, acked: &Acked) {
        let Some(index) = self.index(id) else { return };
        let member = &mut self.members[index];
        if acked.rtt.is_some() || member.rtt.is_none() {
            member.rtt = Some(seconds(acked.smoothed_rtt));
        }
        let bytes = acked.bytes.as_f64();
        member.since_loss += bytes;
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        if member.window.is_slow_start() {
            // Slow start is not coupled (RFC 6356, section 3).
            member.window.grow_slowly(acked);
            return;
        }
        let growth = self.rule.growth(&self.members, index);
        self.members[index].window.add(growth * bytes);
    }

    fn handle_congestion(&mut self, _now: Time, id: SubflowId, congestion: &Congestion) {
        let Some(index) = self.index(id) else { return };
        let left = 1.0 - self.rule.cut(&self.members, index).clamp(0.0, 0.9);
        let member = &mut self.members[index];
        member.between_losses = core::mem::take(&mut member.since_loss);
        member.window.cut_to(congestion.in_flight.as_f64().min(member.window.bytes) * left);
    }

    fn handle_timeout(&mut self, _now: Time, id: SubflowId, in_flight: Bytes) {
        if let Some(member) = self.member(id) {
            member.between_losses = core::mem::take(&mut member.since_loss);
            member.window.collapse(in_flight.as_f64() / 2.0);
        }
    }

    fn handle_undo(&mut self, _now: Time, id: SubflowId) {
        if let Some(member) = self.member(id) {
            member.window.undo();
        }
    }

    fn handle_idle_restart(&mut self, _now: Time, id: SubflowId) {
        if let Some(member) = self.member(id) {
            member.window.restart();
        }
    }

    fn handle_slow_start_end(&mut self, _now: Time, id: SubflowId) {
        if let Some(member) = self.member(id) {
            member.window.end_slow_start();
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.index(id).map_or_else(|| Allowance::window(Bytes::ZERO), |index| self.members[index].window.allowance())
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.index(id).and_then(|index| self.members[index].window.threshold())
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
