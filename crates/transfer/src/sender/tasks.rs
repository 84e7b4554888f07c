//! Tasks: filling them from the pool, resizing them, stealing from them, returning them.

use alloc::vec::Vec;

use policy::sched::{Mobility, PathView, Plan, View};
use units::{Bytes, PathId, Time};

use super::Sender;
use super::finish::floor;
use super::meter::as_rate;
use super::types::{PathState, SenderEvent};
use crate::Extent;
use crate::layout::{BLOCK, GRAIN};

impl Sender {
    /// Whether unsent data may change its path at any time, by the scheduler's plan or not.
    pub(super) fn is_recallable(&self) -> bool {
        self.scheduler.mobility() == Mobility::Recallable
    }

    /// Whether unsent data may change its path.
    fn is_movable(&self) -> bool {
        self.scheduler.mobility() != Mobility::Fixed
    }

    /// Asks the scheduler for a new plan, and carries it out.
    pub(super) fn adjust(&mut self, now: Time) {
        let views = self.views(now);
        let view = View { total: self.total, pool: self.pool.total(), paths: &views };
        if let Some(plan) = self.scheduler.handle_progress(now, &view) {
            let moved = self.carry_out(&plan);
            self.adjustments += 1;
            self.events.push_back(SenderEvent::Adjusted { count: self.adjustments, moved });
            self.wake_all();
        }
    }

    /// Fills the task of an idle path: from the pool, or from another path's task.
    pub(super) fn refill(&mut self, now: Time, id: PathId) {
        self.adjust(now);
        if self.paths.get(&id).is_none_or(|path| !path.task.is_empty()) {
            return;
        }
        if !self.pool.is_empty() {
            let views = self.views(now);
            let view = View { total: self.total, pool: self.pool.total(), paths: &views };
            let take = self.scheduler.handle_idle(now, &view, id);
            self.take_from_pool(id, take.0);
        } else if self.is_recallable() {
            self.steal(now, id);
        }
    }

    fn views(&self, now: Time) -> Vec<PathView> {
        let usable = self.paths.values().filter(|path| path.is_usable());
        usable
            .map(|path| PathView {
                id: path.id,
                acked: Bytes(path.acked),
                left: path.task.bytes() + path.owned.total(),
                recallable: path.task.bytes(),
                rate: as_rate(path.rate(now)),
                opened: path.opened,
                known: path.traits.known,
            })
            .collect()
    }

    /// Moves bytes so that every path has the task of the plan: from the pool first, then from the
    /// tails of the tasks that are too large, the largest surplus first. Returns the bytes moved
    /// from path to path.
    fn carry_out(&mut self, plan: &Plan) -> Bytes {
        let (mut deficits, mut surpluses) = (Vec::new(), Vec::new());
        for &(id, target) in &plan.tasks {
            let Some(path) = self.paths.get(&id) else { continue };
            let left = path.task.bytes() + path.owned.total();
            if target > left {
                deficits.push((target.0 - left.0, id));
            } else {
                surpluses.push(((left - target).0.min(path.task.bytes().0), id));
            }
        }
        deficits.sort_by_key(|&(bytes, id)| (core::cmp::Reverse(bytes), id));
        surpluses.sort_by_key(|&(bytes, id)| (core::cmp::Reverse(bytes), id));
        let mut moved = 0;
        let mut donors = surpluses.into_iter().peekable();
        for &(deficit, to) in &deficits {
            let mut missing = deficit - self.take_from_pool(to, deficit).min(deficit);
            while missing >= GRAIN {
                let Some((surplus, from)) = donors.peek_mut() else { break };
                let taken = self.move_tail(*from, to, missing.min(*surplus));
                moved += taken;
                missing -= taken.min(missing);
                *surplus -= taken.min(*surplus);
                if taken == 0 || *surplus < GRAIN {
                    donors.next();
                }
            }
        }
        // The rest that rounding left in the pool goes to the path with the largest deficit.
        if let Some(&(_, id)) = deficits.first() {
            self.take_from_pool(id, self.pool.total().0.min(GRAIN * plan.tasks.len() as u64));
        }
        Bytes(moved)
    }

    /// Assigns up to `most` bytes of the pool to a path, cut at multiples of [`GRAIN`]. Returns the
    /// bytes assigned.
    fn take_from_pool(&mut self, id: PathId, most: u64) -> u64 {
        let Some(path) = self.paths.get_mut(&id) else { return 0 };
        let mut missing = most;
        while missing > 0 {
            // The pool's extents begin at multiples of GRAIN or where earlier sessions ended; cuts
            // are at positions that are multiples of it.
            let Some(first) = self.pool.iter().next() else { break };
            let end =
                (first.start.saturating_add(missing)).next_multiple_of(GRAIN).min(first.end());
            let taken =
                self.pool.pop_front(end - first.start).expect("the pool has a first extent");
            path.task.push_back(taken);
            missing = missing.saturating_sub(taken.len);
        }
        most - missing
    }

    /// Moves up to `most` bytes from the tail of one task to the tail of another. Returns the bytes
    /// moved.
    fn move_tail(&mut self, from: PathId, to: PathId, most: u64) -> u64 {
        let Some(donor) = self.paths.get_mut(&from) else { return 0 };
        let align = if most >= 4 * BLOCK { BLOCK } else { GRAIN };
        let pieces = donor.task.take_back(most, align);
        let Some(recipient) = self.paths.get_mut(&to) else { return 0 };
        let mut moved = 0;
        for &piece in pieces.iter().rev() {
            recipient.task.push_back(piece);
            moved += piece.len;
        }
        moved
    }

    /// Takes bytes from the path that would finish last, so that both paths finish together.
    fn steal(&mut self, now: Time, id: PathId) {
        let Some(path) = self.paths.get(&id) else { return };
        let own_rate = path.rate(now);
        let ready = if path.proven { path.arrival(now, path.outstanding()) } else { 0.0 };
        let last = self
            .paths
            .values()
            .filter(|other| other.id != id && !other.task.is_empty())
            .map(|other| {
                let attended = other.is_attended(now, self.config.stall_after);
                let finish = other.rest_arrival(now, other.task.bytes().0);
                (if attended { finish } else { f64::INFINITY }, other)
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((finish, donor)) = last else { return };
        let task = donor.task.bytes().0;
        let donor_rate = donor.rate(now);
        let amount = if !path.proven || own_rate <= 0.0 {
            self.config.proving.0
        } else if donor_rate <= 0.0 || finish.is_infinite() {
            task
        } else {
            let even = floor((finish - ready) / (1.0 / own_rate + 1.0 / donor_rate));
            // Even shares may be smaller than a grain: take one if it arrives earlier here, since
            // the donor may leave it to this path.
            let rest = if path.rest_arrival(now, 0) < finish { GRAIN } else { 0 };
            even.max(rest)
        };
        let from = donor.id;
        if amount < GRAIN.min(task) {
            return;
        }
        let bytes = self.move_tail(from, id, amount.min(task));
        if bytes > 0 {
            self.events.push_back(SenderEvent::Stolen { from, to: id, bytes: Bytes(bytes) });
        }
    }

    /// Returns a path's task to the pool, if unsent data may change its path.
    pub(super) fn release_task(&mut self, id: PathId) {
        if !self.is_movable() {
            return;
        }
        if let Some(path) = self.paths.get_mut(&id) {
            for extent in path.task.take_all() {
                self.pool.insert(extent);
            }
            self.wake_all();
        }
    }

    /// Puts the task and the owned extents of a lost path into the pool, except extents of which
    /// another path carries a copy: that path owns them from here on.
    pub(super) fn requeue_lost(&mut self, now: Time, mut task: Vec<Extent>, owned: Vec<Extent>) {
        for extent in owned {
            let mut rest = alloc::vec![extent];
            for carrier in self.paths.values_mut().filter(|path| path.state != PathState::Stalled) {
                let mut missing = Vec::new();
                for piece in rest {
                    let carried = carrier.in_flight.within(piece);
                    missing.extend(carried.gaps(piece));
                    if !carried.is_empty() && !carrier.awaits_ack() {
                        carrier.last_progress = now;
                    }
                    for copy in carried.iter() {
                        carrier.owned.insert(copy);
                    }
                }
                rest = missing;
            }
            task.append(&mut rest);
        }
        for extent in task {
            self.pool.insert(extent);
        }
        self.wake_all();
    }
}
