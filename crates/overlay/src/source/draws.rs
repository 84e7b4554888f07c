//! Draws: which paths are replaced, and how paths come and go.

use alloc::vec::Vec;

use units::{Bytes, PathId, Time};

use super::path::SourcePath;
use super::search::{AfterDraw, EarlierDraw};
use super::{Judgement, Output, Phase, Source};
use crate::choice::Reselect;
use crate::start::Initial;

impl Source {
    /// The present draw brought this share of what was offered, which is too little: the next one,
    /// or the best of the last ones again, for a while.
    pub(super) fn draw_on(&mut self, now: Time, rule: Reselect, share: f64) {
        if let Some(draws) = self.config.take_back.filter(|_| rule != Reselect::Everything) {
            let candidates = self.paths.iter().map(|path| path.candidate).collect();
            match self.search.handle_judgement(draws, EarlierDraw { candidates, share }) {
                AfterDraw::Draw => {}
                AfterDraw::Rest => return,
                AfterDraw::TakeBack(best) => {
                    self.outputs.push_back(Output::TakenBack);
                    return self.use_paths(now, best);
                }
            }
        }
        match rule {
            Reselect::Least => self.draw_least(now),
            Reselect::Paths | Reselect::Everything => self.draw_all(now),
        }
    }

    /// 1-reselection: replaces the path that brought least.
    pub(super) fn draw_least(&mut self, now: Time) {
        let used: Vec<usize> = self.paths.iter().map(|path| path.candidate).collect();
        let least = (0..self.paths.len())
            .min_by_key(|&slot| self.paths[slot].received - self.paths[slot].at_count);
        // A source that uses all candidates keeps them.
        if let (Some(least), Some(other)) = (least, self.candidates.draw(now, &used)) {
            self.replace(now, least, other);
            self.begin_draw(now);
        }
    }

    /// k-reselection.
    pub(super) fn draw_all(&mut self, now: Time) {
        let drawn = self.candidates.choose(now, self.paths.len());
        self.use_paths(now, drawn);
    }

    /// Uses these candidates. One that is used already keeps its path.
    fn use_paths(&mut self, now: Time, mut drawn: Vec<usize>) {
        let mut left = Vec::new();
        for slot in 0..self.paths.len() {
            let own = self.paths[slot].candidate;
            match drawn.iter().position(|&candidate| candidate == own) {
                Some(at) => {
                    drawn.remove(at);
                }
                None => left.push(slot),
            }
        }
        for (slot, candidate) in left.into_iter().zip(drawn) {
            self.replace(now, slot, candidate);
        }
        self.begin_draw(now);
    }

    pub(super) fn begin_draw(&mut self, now: Time) {
        self.draws += 1;
        self.judgement = Judgement { from: now, counted: None, satisfied: None };
        self.phase = match self.config.initial {
            Initial::MaxMin => {
                Phase::Turns { left: self.config.start, rate: self.load.demand(now, self.interval) }
            }
            Initial::Zero => {
                if self.controller.probed().is_none() {
                    self.controller.handle_interval(None);
                }
                Phase::Rates
            }
        };
        self.outputs.push_back(Output::Pace);
    }

    pub(super) fn open(&mut self, now: Time, candidate: usize) -> SourcePath {
        if let Some(at) = self.draining.iter().position(|path| path.candidate == candidate) {
            let mut path = self.draining.remove(at);
            path.begin();
            path.progress = now;
            self.outputs.push_back(Output::Resume(path.id));
            return path;
        }
        let id = PathId(self.next);
        self.next += 1;
        self.outputs.push_back(Output::Open { path: id, candidate });
        SourcePath::new(id, candidate, now)
    }

    fn replace(&mut self, now: Time, slot: usize, candidate: usize) {
        let path = self.open(now, candidate);
        let old = core::mem::replace(&mut self.paths[slot], path);
        self.drain(now, old);
        self.controller.handle_path(slot);
    }

    pub(super) fn drain(&mut self, now: Time, mut path: SourcePath) {
        if path.under_way() == Bytes::ZERO {
            self.close(path);
        } else {
            path.progress = path.progress.max(now);
            self.outputs.push_back(Output::Drain(path.id));
            self.draining.push(path);
        }
    }

    pub(super) fn close(&mut self, path: SourcePath) {
        self.load.handle_returned(path.under_way());
        self.outputs.push_back(Output::Close(path.id));
    }

    /// Closes paths that have drained, and those that never will.
    pub(super) fn close_drained(&mut self, now: Time) {
        let patience = self.interval * self.config.patience;
        let is_over =
            |path: &SourcePath| path.under_way() == Bytes::ZERO || now - path.progress >= patience;
        while let Some(at) = self.draining.iter().position(is_over) {
            let path = self.draining.remove(at);
            self.close(path);
        }
    }

    /// Replaces a path of a source that reselects, if it delivers nothing though it should. Returns
    /// whether there was one.
    pub(super) fn replace_stalled(&mut self, now: Time) -> bool {
        if self.config.reselect.is_none() {
            return false;
        }
        let patience = self.interval * self.config.patience;
        let is_controlled = self.phase == Phase::Rates;
        let least = self.config.packet.as_f64() * 8.0 * 2.0;
        let mut stalled = None;
        for (slot, (path, rate)) in self.paths.iter_mut().zip(self.controller.rates()).enumerate() {
            let set = rate * (now - path.progress).as_secs_f64();
            let is_excused = path.under_way() == Bytes::ZERO
                && (self.load.has_lacked(path.progress) || is_controlled && set < least);
            if is_excused {
                path.progress = now;
            } else if now - path.progress >= patience {
                stalled = Some(slot);
            }
        }
        if let Some(slot) = stalled {
            self.fail(now, slot);
            self.begin_draw(now);
        }
        stalled.is_some()
    }

    /// Replaces a path that has failed. If there is no other candidate, a new path over the same
    /// one is tried.
    pub(super) fn fail(&mut self, now: Time, slot: usize) {
        let failed = self.paths[slot].candidate;
        self.candidates.handle_failure(now, failed);
        self.search.handle_failure(failed);
        let used: Vec<usize> = self.paths.iter().map(|path| path.candidate).collect();
        let candidate = self.candidates.draw(now, &used).unwrap_or(failed);
        let path = self.open(now, candidate);
        let old = core::mem::replace(&mut self.paths[slot], path);
        self.close(old);
        self.controller.handle_path(slot);
    }
}
