//! Classes, bounds and efforts of paths: set by the side that dials, which notes them for its peer,
//! and followed by the side that listens.

use units::{Rate, SubflowId, Time};

use super::link::Link;
use crate::{Class, Effort, PathStanding};

impl Link {
    /// Sets the class of a path, and notes it for the peer.
    pub(super) fn class_path(&mut self, path: SubflowId, class: Class) {
        self.core.set_path_class(path, class);
        self.standings.note(path, |standing| standing.class = class);
        self.tell_standings();
    }

    /// Bounds the rate of a path, and notes it for the peer.
    pub(super) fn bound_path(&mut self, path: SubflowId, rate: Option<Rate>) {
        self.core.set_path_rate(path, rate);
        self.standings.note(path, |standing| standing.rate = rate);
        self.tell_standings();
    }

    /// Has a path in the background, or not, whatever its connection is, and notes it for the peer.
    pub(super) fn yield_path(&mut self, now: Time, path: SubflowId, is_background: bool) {
        self.latest = self.latest.max(now);
        self.standings.note(path, |standing| standing.is_background = is_background);
        self.follow_effort(path);
        self.tell_standings();
    }

    /// The connection goes into the background with all its paths, if this says so. It never comes
    /// back: the other side may have said the same.
    pub(in crate::driver) fn set_effort(&mut self, now: Time, effort: Effort) {
        self.latest = self.latest.max(now);
        let effort = self.effort.with(effort);
        if effort == self.effort {
            return;
        }
        self.effort = effort;
        for path in self.route_of.keys().copied().collect::<Vec<_>>() {
            self.follow_effort(path);
        }
        self.ends.effort.send_replace(effort);
    }

    /// A path is in the background if it is itself, or the connection.
    pub(super) fn follow_effort(&mut self, path: SubflowId) {
        let of_path = self.standings.of(path).is_some_and(|standing| standing.is_background);
        let is_background = of_path || self.effort.is_background();
        self.core.set_path_background(self.latest, path, is_background);
        if let Some(route) = self.route_of.get(&path)
            && let Some(route) = self.routes.get_mut(route)
        {
            route.is_lower_effort = is_background && self.effort != Effort::LowerUnmarked;
        }
    }

    /// A path has ended.
    pub(super) fn forget_standing(&mut self, path: SubflowId) {
        if self.standings.forget(path) {
            self.tell_standings();
        }
    }

    fn tell_standings(&self) {
        if self.is_client {
            let all = self.standings.all();
            self.ends.standings.send_if_modified(|told| {
                let is_other = *told != all;
                *told = all;
                is_other
            });
        }
    }

    /// The peer, which has dialed, says what its paths are for.
    pub(in crate::driver) fn follow_standings(&mut self, now: Time, standings: Vec<PathStanding>) {
        if self.is_client {
            return;
        }
        self.latest = self.latest.max(now);
        self.standings.set(standings);
        for path in self.route_of.keys().copied().collect::<Vec<_>>() {
            self.follow_standing(path);
        }
    }

    /// A path keeps to what the peer has said of it.
    pub(super) fn follow_standing(&mut self, path: SubflowId) {
        if let Some(PathStanding { class, rate, .. }) = self.standings.of(path) {
            self.core.set_path_class(path, class);
            self.core.set_path_rate(path, rate);
        }
        self.follow_effort(path);
    }
}
