//! BBR over several paths, coupled by a rule of ours: subflows at one bottleneck probe and yield as
//! one flow.
//!
//! Each subflow has a model of its path, BBR's, so that different paths are used as if each were
//! alone. What makes several BBR flows at one bottleneck take more than one does is that each
//! probes by itself: each probe takes from all others, its siblings included. So the subflows that
//! the sender [finds](Controller::handle_bottleneck) at one bottleneck
//!
//! * begin a probe when the first of them does, and end it when the first of them does;
//! * count the packets of all of them for the number of round trips between probes, and for the
//!   growth of the long-term bound: a packet for all of them where one flow would grow by one;
//! * compare the losses of all of them with what all of them have in flight, because a single
//!   packet is a large share of a small window.
//!
//! How the subflows divide the share among them is left open. A subflow without siblings does what
//! it would do alone. So do all while the sender has not found out: until then, and in Startup,
//! they take the share of as many flows.
//!
//! Where a queue of other flows stands, a window of CUBIC is the [`Ceiling`] of what a subflow may
//! have in flight, so that losses count there; elsewhere they are the line's own.
//!
//! `ProbeRTT`, which costs 3 % of the rate, is postponed by each round trip within a sixteenth of
//! the shortest one: the queue was empty then, without a probe.

use alloc::boxed::Box;
use alloc::vec::Vec;

use units::{Bytes, SubflowId, Time};

use super::bbr::Siblings;
use super::ceiling::{Ceiling, CeilingView};
use super::{Acked, Allowance, Bbr, Congestion, Controller, Lost, Sent, SinglePath, Start};

/// The share of losses in a round trip that is taken for the path's own (see
/// [`Bbr::with_tolerance`]).
const TOLERANCE: f64 = 0.02;
/// A round trip that exceeds the shortest one by one part in so many shows that the queue is empty.
const RENEWAL: u64 = 16;

/// The controller.
#[derive(Clone, Debug)]
pub struct CoupledBbr {
    members: Vec<CoupledModel>,
    fresh: Bbr,
}

#[derive(Clone, Debug)]
struct CoupledModel {
    id: SubflowId,
    model: Bbr,
    ceiling: Ceiling,
    mss: Bytes,
    /// Equal for those that share one.
    bottleneck: Option<SubflowId>,
}

impl CoupledBbr {
    /// A controller without subflows; each one's model begins as a copy of `fresh`.
    #[must_use]
    pub fn new(fresh: Bbr) -> CoupledBbr {
        CoupledBbr { members: Vec::new(), fresh: fresh.with_renewal(RENEWAL) }
    }

    fn member(&mut self, id: SubflowId) -> Option<&mut CoupledModel> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    /// Whether a queue of other flows stands at the bottleneck of a subflow, by what those there
    /// saw; with the subflow itself if `and_itself`.
    fn stands(&self, id: SubflowId, and_itself: bool) -> bool {
        let group = self.members.iter().find(|member| member.id == id);
        let group = group.and_then(|member| member.bottleneck);
        self.members.iter().any(|member| {
            let is_there = group.is_some() && member.bottleneck == group && member.id != id;
            member.ceiling.stands() && (is_there || and_itself && member.id == id)
        })
    }

    /// Lets a subflow handle an event, and those at its bottleneck follow it.
    fn handle(&mut self, now: Time, id: SubflowId, event: impl FnOnce(&mut Bbr)) {
        let Some(at) = self.members.iter().position(|member| member.id == id) else { return };
        let group = self.members[at].bottleneck;
        let others =
            |other: &CoupledModel| group.is_some() && other.bottleneck == group && other.id != id;
        let siblings = self.members.iter().filter(|other| others(other));
        let siblings = siblings.fold(Siblings::default(), |sum, other| sum.and(&other.model));
        let model = &mut self.members[at].model;
        let before = model.phase();
        model.set_siblings(siblings);
        event(model);
        let after = model.phase();
        if after != before {
            for other in self.members.iter_mut().filter(|other| others(other)) {
                other.model.follow(now, before, after);
            }
        }
    }
}

impl Default for CoupledBbr {
    fn default() -> CoupledBbr {
        CoupledBbr::new(Bbr::default().with_tolerance(TOLERANCE))
    }
}

impl Controller for CoupledBbr {
    fn name(&self) -> &'static str {
        "coupled-bbr"
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        let mut model = self.fresh.clone();
        model.handle_start(now, start);
        self.members.push(CoupledModel {
            id,
            model,
            ceiling: Ceiling::default(),
            mss: start.mss,
            bottleneck: None,
        });
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        self.members.retain(|member| member.id != id);
    }

    fn handle_sent(&mut self, now: Time, id: SubflowId, sent: &Sent) {
        self.handle(now, id, |model| model.handle_sent(now, sent));
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        self.handle(now, id, |model| model.handle_acked(now, acked));
        let others_stand = self.stands(id, false);
        let sum: f64 = self.members.iter().map(|member| member.model.bandwidth().as_f64()).sum();
        let Some(CoupledModel { model, ceiling, .. }) = self.member(id) else { return };
        let view = CeilingView {
            is_cruising: model.is_cruising(),
            others_stand,
            share: if sum > 0.0 { model.bandwidth().as_f64() / sum } else { 1.0 },
            window: model.allowance().window,
            counts: model.counts(),
        };
        ceiling.handle_acked(now, acked, &view);
        model.set_own_loss(ceiling.own_loss());
    }

    fn handle_lost(&mut self, now: Time, id: SubflowId, lost: &Lost) {
        self.handle(now, id, |model| model.handle_lost(now, lost));
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        self.handle(now, id, |model| model.handle_congestion(now, congestion));
        if self.stands(id, true)
            && let Some(member) = self.member(id)
        {
            member.ceiling.handle_congestion(now, member.mss, congestion);
        }
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        self.handle(now, id, |model| model.handle_timeout(now, in_flight));
        if self.stands(id, true)
            && let Some(member) = self.member(id)
        {
            member.ceiling.handle_timeout(now, in_flight);
        }
    }

    fn handle_undo(&mut self, now: Time, id: SubflowId) {
        self.handle(now, id, |model| model.handle_undo(now));
        if let Some(member) = self.member(id) {
            member.ceiling.handle_undo(now);
        }
    }

    fn handle_bottleneck(&mut self, _now: Time, id: SubflowId, bottleneck: Option<SubflowId>) {
        if let Some(member) = self.member(id) {
            member.bottleneck = bottleneck;
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        let Some(member) = self.members.iter().find(|member| member.id == id) else {
            return Allowance::window(Bytes::ZERO);
        };
        let allowance = member.model.allowance();
        Allowance { window: member.ceiling.bound(allowance.window), ..allowance }
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.members.iter().find(|member| member.id == id)?.model.threshold()
    }

    fn wants_rate_reduction(&self) -> bool {
        self.fresh.wants_rate_reduction()
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
