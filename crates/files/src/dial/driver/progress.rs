//! Progress and summary of a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use peer::PathState;
use peer::dial::Plan;
use units::{Bytes, Rate, Span, Time};

use super::{SessionDriver, SessionOpener};
use crate::{PathProgress, Progress, Summary};

impl<O: SessionOpener> SessionDriver<O> {
    pub(super) fn progress(&self, now: Time) -> Progress {
        let total = self.total();
        let Some(session) = self.session.clone() else {
            return Progress { elapsed: now - self.began, total, ..Progress::default() };
        };
        let (totals, reports, is_growing) = {
            let core = session.core();
            (core.totals(now), core.paths(now), core.layout().is_growing())
        };
        let facts = session.paths().clone();
        let moved = totals.acked.0.max(1);
        let paths: Vec<PathProgress> = reports
            .iter()
            .filter_map(|report| {
                let facts = facts.get(&report.id)?;
                let kernel = facts.kernel.lock().expect("no panic while held").clone();
                let done = report.acked + Bytes(facts.path.plan.carried.load(Ordering::Relaxed));
                Some(PathProgress {
                    path: report.id,
                    name: facts.path.plan.name.clone(),
                    state: shown(report.state),
                    local: facts.path.local,
                    remote: facts.path.remote,
                    rate: Rate::ZERO,
                    rtt: kernel.rtt,
                    done,
                    share: done.as_f64() / Bytes(moved).as_f64(),
                    congestion_control: kernel.congestion_control,
                    retransmits: kernel.retransmits,
                    connections: kernel.connections,
                })
            })
            .collect();
        Progress {
            elapsed: now - self.began,
            done: self.resumed() + totals.acked,
            total,
            // What an output holds back has a size.
            is_growing: is_growing
                && self.agreement.as_ref().is_some_and(|a| a.total == Bytes::ZERO),
            rate: Rate::ZERO,
            eta: None,
            repeated: totals.duplicates,
            gain: None,
            paths,
        }
    }

    /// The time of each path's last new byte.
    fn finished_at(&self) -> Vec<(String, Span)> {
        let last = |plan: &Arc<Plan>| Time::from_nanos(plan.last_new.load(Ordering::Relaxed));
        let used = self.dialer.plans().filter(|plan| last(plan) > Time::ZERO);
        used.map(|plan| (plan.name.clone(), last(plan) - self.began)).collect()
    }

    pub(super) fn summary(&self, sync: Span) -> Summary {
        let now = self.clock.now();
        let progress = self.progress(now);
        let total = self.total();
        Summary {
            files: self.agreement.as_ref().map_or(0, |agreement| agreement.files),
            total,
            moved: total - self.resumed(),
            repeated: progress.repeated,
            elapsed: (now - self.began) - sync,
            sync,
            finished_at: self.finished_at(),
            paths: progress.paths,
        }
    }
}

pub(super) fn shown(state: transfer::PathState) -> PathState {
    match state {
        transfer::PathState::Proving | transfer::PathState::Active => PathState::Active,
        transfer::PathState::Stalled => PathState::Stalled,
        transfer::PathState::Standby => PathState::Standby,
    }
}
