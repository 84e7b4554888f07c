//! Progress and summary of a session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use events::{PathProgress, PathState, Progress, Summary};
use peer::carrier::RouteReport;
use peer::dial::{Plan, PlanKind};
use transfer::PathReport;
use units::{Bytes, PathId, Rate, Span, Time};

use super::{SessionDriver, SessionOpener};
use crate::dial::path::{Direction, KernelFacts, PathFacts};

/// An open path, for the display: what the core and what the path itself know.
struct Open {
    report: PathReport,
    facts: Arc<PathFacts>,
}

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
        let known = session.paths().clone();
        // By the number of the path that people see.
        let mut open: BTreeMap<PathId, Vec<Open>> = BTreeMap::new();
        for report in reports {
            if let Some(facts) = known.get(&report.id).cloned() {
                let number = facts.path.plan.shown().id;
                open.entry(number).or_default().push(Open { report, facts });
            }
        }
        let seen = self.dialer.plans().filter(|plan| plan.guessed_beside.is_none());
        let paths = seen.flat_map(|plan| {
            let open = open.remove(&plan.id).unwrap_or_default();
            let path = self.path(plan, &open, totals.acked);
            let striped = self.dialer.terms().striped.get(&plan.host);
            let routes =
                striped.filter(|_| plan.kind == PlanKind::Striped).and_then(|one| one.routes());
            match (path, routes) {
                (path, None) => path.into_iter().collect(),
                (path, Some(routes)) => Self::routes(path.as_ref(), &routes, totals.acked),
            }
        });
        let paths = paths.collect();
        let (files_done, current) = self.joining.opener.files_done();
        Progress {
            transfer: self.events.transfer(),
            elapsed: now - self.began,
            files: self.agreement.as_ref().map_or(0, |agreement| agreement.files),
            files_done,
            current,
            done: self.resumed() + totals.acked,
            total,
            // What an output holds back has a size.
            is_growing: is_growing
                && self.agreement.as_ref().is_some_and(|a| a.total == Bytes::ZERO),
            rate: Rate::ZERO,
            eta: None,
            standstill: None,
            repeated: totals.duplicates,
            gain: None,
            paths,
        }
    }

    /// The path of a plan, with the guesses beside it; `open` are those with a connection. `None`
    /// if it was given up before it carried anything.
    fn path(&self, plan: &Arc<Plan>, open: &[Open], moved: Bytes) -> Option<PathProgress> {
        let before: u64 = self
            .dialer
            .plans()
            .filter(|other| Arc::ptr_eq(other.shown(), plan))
            .map(|other| other.carried.load(Ordering::Relaxed))
            .sum();
        let done = Bytes(before) + open.iter().map(|path| path.report.acked).sum::<Bytes>();
        let state =
            open.iter().map(|path| shown(path.report.state)).min_by_key(|state| usefulness(*state));
        let state = state
            .or_else(|| self.reported.state(plan.id))
            // It was active before the end of the session.
            .unwrap_or(if done > Bytes::ZERO { PathState::Active } else { PathState::Connecting });
        if state == PathState::Dropped && done == Bytes::ZERO {
            return None;
        }
        let own = open.iter().find(|path| Arc::ptr_eq(&path.facts.path.plan, plan));
        let first = own.or(open.first());
        let kernel = |path: &Open| path.facts.kernel.lock().expect("no panic while held").clone();
        let of_first = first.map(kernel);
        let sampled: Vec<_> = open.iter().map(kernel).filter(KernelFacts::is_known).collect();
        Some(PathProgress {
            path: plan.id,
            name: plan.name.clone(),
            state,
            local: first.and_then(|path| path.facts.path.local),
            remote: first
                .map(|path| path.facts.path.remote)
                .or(plan.candidates().first().map(|best| best.remote)),
            rate: Rate::ZERO,
            rtt: of_first.as_ref().map(|kernel| kernel.rtt).filter(|rtt| *rtt > Span::ZERO),
            done,
            share: done.as_f64() / Bytes(moved.0.max(1)).as_f64(),
            congestion_control: of_first
                .map(|kernel| kernel.congestion_control)
                .filter(|name| !name.is_empty()),
            retransmits: (!sampled.is_empty())
                .then(|| sampled.iter().map(|kernel| kernel.retransmits).sum()),
            key_updates: None,
            background: first.and_then(|path| kernel(path).background),
            connections: Some(open.iter().map(|path| kernel(path).connections.max(1)).sum()),
        })
    }

    /// The routes of a path's carrier: each has the part of the path's data that the counters of
    /// its packets say.
    fn routes(
        path: Option<&PathProgress>,
        routes: &[RouteReport],
        moved: Bytes,
    ) -> Vec<PathProgress> {
        let sends = O::Direction::SENDS;
        let carried = |route: &RouteReport| if sends { route.sent } else { route.received };
        let all: Bytes = routes.iter().map(carried).sum();
        let of_path = path.map_or(Bytes::ZERO, |path| path.done);
        let one = |route: &RouteReport| {
            let part = carried(route).as_f64() / Bytes(all.0.max(1)).as_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of a count of bytes"
            )]
            let done = Bytes((of_path.as_f64() * part) as u64);
            PathProgress {
                path: route.path,
                name: route.name.clone(),
                state: route.state,
                local: route.local,
                remote: route.remote,
                rate: Rate::ZERO,
                rtt: route.rtt,
                done,
                share: done.as_f64() / Bytes(moved.0.max(1)).as_f64(),
                congestion_control: Some(route.controller.to_string()),
                retransmits: Some(route.lost),
                key_updates: Some(route.key_updates),
                connections: Some(1),
                background: route.background.filter(|_| sends),
            }
        };
        routes.iter().map(one).collect()
    }

    /// The time of each path's last new byte.
    fn finished_at(&self) -> Vec<(String, Span)> {
        let mut ends: Vec<(String, Span)> = Vec::new();
        for plan in self.dialer.plans() {
            let last = Time::from_nanos(plan.last_new.load(Ordering::Relaxed));
            if last == Time::ZERO {
                continue;
            }
            let (name, at) = (&plan.shown().name, last - self.began);
            match ends.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = at.max(*known),
                None => ends.push((name.clone(), at)),
            }
        }
        ends
    }

    pub(super) fn summary(&self, sync: Span) -> Summary {
        let now = self.clock.now();
        let progress = self.progress(now);
        let total = self.total();
        let changed = self.joining.opener.left_out();
        Summary {
            files: self.agreement.as_ref().map_or(0, |agreement| agreement.files) - changed,
            total,
            moved: total - self.resumed(),
            repeated: progress.repeated,
            elapsed: (now - self.began) - sync,
            sync,
            finished_at: self.finished_at(),
            left_out: self.agreement.as_ref().map_or(0, |agreement| agreement.left_out) + changed,
            lost_owners: self.archived.map_or(0, |archived| archived.lost_owners as usize),
            lost_attributes: self.archived.map_or(0, |archived| archived.lost_attributes as usize),
            lost_modes: self.archived.map_or(0, |archived| archived.lost_modes as usize),
            lost_entries: self.archived.map_or(0, |archived| archived.lost_entries as usize),
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

/// The order in which states stand for a path of several pairs of addresses: the best first.
fn usefulness(state: PathState) -> u8 {
    match state {
        PathState::Active => 0,
        PathState::Standby => 1,
        _ => 2,
    }
}
