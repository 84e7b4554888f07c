//! Classes and bounds of paths: set by the side that dials, which notes them for its peer, and
//! followed by the side that listens.

use units::{Rate, SubflowId};

use super::link::Link;
use crate::{Class, PathStanding};

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
    pub(in crate::driver) fn follow_standings(&mut self, standings: Vec<PathStanding>) {
        if self.is_client {
            return;
        }
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
    }
}
