//! Which of two carriers has the data, and which is held back.

use std::sync::atomic::Ordering;

use peer::dial::{PlanKind, Via};
use transfer::{Class, PathState};
use units::{Bytes, Time};

use super::SessionDriver;
use super::choice::{Choice, Decision, Kind, Standing};
use crate::dial::opener::SessionOpener;
use crate::dial::session::class_of;

impl<O: SessionOpener> SessionDriver<O> {
    /// Whether a path is one of TCP.
    pub(super) fn has_tcp(&self) -> bool {
        self.dialer.plans().any(|plan| plan.kind == PlanKind::Tcp)
    }

    /// Chooses between TCP and UDP where both are possible, and holds the other one back.
    pub(super) fn choose_carrier(&mut self, now: Time) {
        let has_both =
            self.has_tcp() && self.dialer.plans().any(|plan| plan.kind == PlanKind::Striped);
        let Some(session) = self.session.clone().filter(|_| has_both) else { return };
        let open = session.paths().clone();
        let mut standings = [Standing::default(); 2];
        for plan in self.dialer.plans() {
            let standing = &mut standings[usize::from(plan.kind == PlanKind::Striped)];
            standing.acked += Bytes(plan.carried.load(Ordering::Relaxed));
        }
        let is_met = self.dialer.terms().options.is_met;
        let mut core = session.core();
        for report in core.paths(now) {
            let Some(facts) = open.get(&report.id) else { continue };
            let is_striped = facts.path.plan.kind == PlanKind::Striped;
            let standing = &mut standings[usize::from(is_striped)];
            standing.acked += report.acked;
            standing.in_flight += report.in_flight;
            if !is_striped && report.state == PathState::Active {
                let is_full = facts.kernel.lock().expect("no panic while held").is_full();
                standing.has_room |= !is_full;
            }
            // Where UDP has direct ways, nothing is tried over a relay, which costs its owner.
            let is_tried = is_striped || !is_met || facts.path.plan.via == Via::Direct;
            standing.is_open |= is_tried && report.state != PathState::Stalled;
        }
        let rest = core.totals(now).rest();
        let choice =
            self.choice.get_or_insert_with(if is_met { Choice::of_meeting } else { Choice::new });
        if self.dialer.terms().options.effort.is_background() || session.steps_back() {
            choice.step_back();
        }
        let change = choice.update(now, standings[0], standings[1], rest);
        // Those in use first: were all others left, backups would count as needed for a moment.
        for is_in_use in [true, false] {
            for (id, facts) in &open {
                let plan = &facts.path.plan;
                let is_striped = plan.kind == PlanKind::Striped;
                if is_in_use != (is_striped == (choice.in_use() == Kind::Udp)) {
                    continue;
                }
                let class = if choice.is_holding() {
                    Class::Held
                } else if is_in_use {
                    class_of(plan.class)
                } else {
                    Class::Backup
                };
                core.set_class(now, *id, class);
            }
        }
        session.wake(&mut core);
        drop(core);
        session.set_reserve(match choice.in_use() {
            Kind::Tcp => PlanKind::Striped,
            Kind::Udp => PlanKind::Tcp,
        });
        if let Some(Decision { text }) = change {
            self.events.notice(text);
        }
    }
}
