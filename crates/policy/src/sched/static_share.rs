//! Algorithm A: shares in proportion to the bandwidths at the start, never changed afterwards.

use alloc::vec::Vec;

use units::{Bytes, PathId, Rate, Time};

use super::start::StartPhase;
use super::{BlockScheduler, Mobility, Options, Plan, View, scale};

/// Algorithm A (paper, section 2.A): after the start phase the rest is divided once in proportion
/// to the measured bandwidths. Where these are known beforehand, there is no start phase: each path
/// takes its share of all bytes as it opens.
///
/// Bytes of a path that died return to the pool and are divided among the others by their present
/// rates, because nothing else would send them.
#[derive(Clone, Debug)]
pub struct Static {
    start: StartPhase,
    divided: bool,
    /// The paths that took their share by a known rate.
    served: Vec<PathId>,
}

impl Static {
    /// A scheduler with these options; it uses those of the start phase only.
    #[must_use]
    pub fn new(options: &Options) -> Static {
        Static { start: StartPhase::new(options), divided: false, served: Vec::new() }
    }

    /// A path's part of the pool.
    fn share(&self, now: Time, view: &View<'_>, path: PathId) -> Bytes {
        let sum: Rate = view.paths.iter().map(|path| self.start.rate(now, path)).sum();
        let own = view.path(path).map_or(Rate::ZERO, |path| self.start.rate(now, path));
        if sum == Rate::ZERO { Bytes::ZERO } else { scale(view.pool, own.as_f64() / sum.as_f64()) }
    }
}

impl BlockScheduler for Static {
    fn name(&self) -> &'static str {
        "static"
    }

    fn mobility(&self) -> Mobility {
        Mobility::Fixed
    }

    fn handle_idle(&mut self, now: Time, view: &View<'_>, path: PathId) -> Bytes {
        if let Some(share) = view.path(path).and_then(|path| self.start.share(path)) {
            if !self.served.contains(&path) {
                self.served.push(path);
                return scale(view.total, share);
            }
        } else if !self.divided {
            return self.start.block(view);
        }
        // After the division the pool holds the bytes of a path that died or never opened.
        let alone = view.paths.iter().all(|other| other.id == path || other.acked == Bytes::ZERO);
        if alone { view.pool } else { self.share(now, view, path).max(Bytes(16_000)) }
    }

    fn handle_progress(&mut self, now: Time, view: &View<'_>) -> Option<Plan> {
        if self.divided || !self.served.is_empty() || !self.start.is_over(now, view) {
            return None;
        }
        self.divided = true;
        let tasks = view
            .paths
            .iter()
            .map(|path| (path.id, path.left + self.share(now, view, path.id)))
            .collect();
        Some(Plan { tasks })
    }
}
