//! What paths are for, as the side that dials has it: the program tells the other side, whose data
//! keeps to it too.

use std::collections::BTreeMap;

use units::{Rate, SubflowId};

use super::link::Link;
use crate::{Class, PathStanding};

/// What was asked for, by path.
#[derive(Debug, Default)]
pub(super) struct Standings(BTreeMap<SubflowId, PathStanding>);

impl Link {
    /// Sets the class of a path, and notes it for the peer.
    pub(super) fn class_path(&mut self, path: SubflowId, class: Class) {
        self.core.set_path_class(path, class);
        self.note_standing(path, |standing| standing.class = class);
    }

    /// Bounds the rate of a path, and notes it for the peer.
    pub(super) fn bound_path(&mut self, path: SubflowId, rate: Option<Rate>) {
        self.core.set_path_rate(path, rate);
        self.note_standing(path, |standing| standing.rate = rate);
    }

    fn note_standing(&mut self, path: SubflowId, note: impl FnOnce(&mut PathStanding)) {
        let usual = PathStanding { path, class: Class::Usual, rate: None };
        note(self.standings.0.entry(path).or_insert(usual));
        self.tell_standings();
    }

    /// A path has ended.
    pub(super) fn forget_standing(&mut self, path: SubflowId) {
        if self.standings.0.remove(&path).is_some() {
            self.tell_standings();
        }
    }

    fn tell_standings(&self) {
        if self.is_client {
            let all: Vec<PathStanding> = self.standings.0.values().copied().collect();
            self.ends
                .standings
                .send_if_modified(|told| std::mem::replace(told, all.clone()) != all);
        }
    }

    /// The peer, which has dialed, says what its paths are for.
    pub(in crate::driver) fn follow_standings(&mut self, standings: Vec<PathStanding>) {
        if self.is_client {
            return;
        }
        self.standings.0 = standings.into_iter().map(|one| (one.path, one)).collect();
        for path in self.route_of.keys().copied().collect::<Vec<_>>() {
            self.follow_standing(path);
        }
    }

    /// A path keeps to what the peer has said of it.
    pub(super) fn follow_standing(&mut self, path: SubflowId) {
        let Some(PathStanding { class, rate, .. }) = self.standings.0.get(&path).copied() else {
            return;
        };
        self.core.set_path_class(path, class);
        self.core.set_path_rate(path, rate);
    }
}
