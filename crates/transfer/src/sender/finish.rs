//! The expected end of the transfer, and the paths that can still contribute to it.

use alloc::vec::Vec;

use units::{Bytes, PathId, Time};

use super::Sender;
use super::types::PathState;
use crate::layout::GRAIN;

/// A path may deliver this many seconds after the common finish; smaller differences are noise of
/// the estimates.
const SLACK: f64 = 0.005;

impl Sender {
    /// Seconds until the end if every unsent byte takes the path that delivers it first: the T that
    /// solves `Σ max(0, T − e_i) · r_i = unsent`, where `e_i` is when path i has delivered its
    /// bytes in flight and `r_i` its rate. `None` while no rate is known.
    pub(super) fn common_finish(&self, now: Time) -> Option<f64> {
        let mut paths: Vec<(f64, f64)> = self
            .paths
            .values()
            .filter(|path| {
                path.is_active()
                    && path.rate(now) > 0.0
                    && path.is_attended(now, self.config.stall_after)
            })
            .map(|path| (path.arrival(now, path.outstanding()), path.rate(now)))
            .collect();
        paths.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut finish, mut amount, mut rate) = (None, self.unsent().as_f64(), 0.0);
        for (ready, path_rate) in paths {
            if finish.is_some_and(|finish| ready >= finish) {
                break;
            }
            amount += ready * path_rate;
            rate += path_rate;
            finish = Some(amount / rate);
        }
        finish
    }

    /// Bytes that still have to be sent: in the pool, in tasks, and in flight on stalled paths.
    fn unsent(&self) -> Bytes {
        let tasks: Bytes = self.paths.values().map(|path| path.task.bytes()).sum();
        let hanging = self.paths.values().filter(|path| path.state == PathState::Stalled);
        self.pool.total() + tasks + hanging.map(|path| path.owned.total()).sum()
    }

    /// How many of the next `most` bytes this path should take so that it does not finish after all
    /// others: zero, or at least [`GRAIN`].
    pub(super) fn worthwhile(&self, now: Time, id: PathId, most: u64) -> u64 {
        let Some(path) = self.paths.get(&id) else { return 0 };
        let Some(finish) = self.common_finish(now) else { return most };
        let rate = path.rate(now);
        if rate <= 0.0 || !path.is_active() {
            return most;
        }
        let ready = path.arrival(now, path.outstanding());
        let room = floor((finish + SLACK - ready) * rate) / GRAIN * GRAIN;
        if room >= GRAIN {
            return most.min(room);
        }
        // Rounding may leave a rest that fits no path: the path that delivers a grain first takes
        // it. All paths and [`Sender::steal`] compare the same amount, or each leaves it to others.
        let others = self
            .paths
            .values()
            .filter(|other| other.is_active() && other.is_attended(now, self.config.stall_after));
        let first = others.map(|other| other.rest_arrival(now, 0)).fold(f64::INFINITY, f64::min);
        if path.rest_arrival(now, 0) <= first { most } else { 0 }
    }
}

/// Rounds down; negative values become zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
pub(super) fn floor(value: f64) -> u64 {
    value as u64
}
