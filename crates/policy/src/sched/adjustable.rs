//! Algorithm B: one block at a time, sized by the path's share of the rest.

use alloc::collections::BTreeMap;

use units::{Bytes, PathId, Rate, Time};

use super::start::StartPhase;
use super::{BlockScheduler, Mobility, Options, PathView, Plan, View, scale};

/// Algorithm B (paper, section 2.B): a path that has finished its block takes
/// `P_i = (Σ left + pool) · BW_i / Σ BW − left_i` of the pool, at most `total / j`.
///
/// The printed eq. 1 subtracts the path's left bytes from a sum of bandwidths, which has no
/// meaning; the form above has consistent units, and `left_i` is nearly zero when a block is
/// finished. A block is finished when it is handed to the socket: waiting for its acknowledgement
/// would leave the path empty for a round-trip time. Assigned bytes stay where they are, unless
/// their path dies. Where bandwidths are known beforehand there is no start phase, as in the paper.
#[derive(Clone, Debug)]
pub struct AdjustableBlock {
    start: StartPhase,
    blocks: u32,
    least: Bytes,
    current: BTreeMap<PathId, Current>,
}

/// The state of a path's current block.
#[derive(Clone, Copy, Debug)]
struct Current {
    since: Time,
    acked: Bytes,
    /// Average rate of the last completed block, if there was one.
    last: Option<Rate>,
}

impl AdjustableBlock {
    /// A scheduler with these options; it uses those of the start phase, `blocks` and
    /// `least_block`.
    #[must_use]
    pub fn new(options: &Options) -> AdjustableBlock {
        AdjustableBlock {
            start: StartPhase::new(options),
            blocks: options.blocks.max(1),
            least: options.least_block,
            current: BTreeMap::new(),
        }
    }

    /// The average rate of the last completed block; before there is one, that of the current
    /// block, or since the path opened.
    fn rate(&self, now: Time, path: &PathView) -> Rate {
        match self.current.get(&path.id) {
            Some(Current { last: Some(rate), .. }) => *rate,
            Some(current) if path.acked > current.acked => {
                (path.acked - current.acked) / (now - current.since)
            }
            _ => self.start.rate(now, path),
        }
    }
}

impl BlockScheduler for AdjustableBlock {
    fn name(&self) -> &'static str {
        "adjustable-block"
    }

    fn mobility(&self) -> Mobility {
        Mobility::Fixed
    }

    fn handle_idle(&mut self, now: Time, view: &View<'_>, path: PathId) -> Bytes {
        let Some(own) = view.path(path) else { return Bytes::ZERO };
        let before = self.current.get(&path).copied();
        let last = before.and_then(|current| {
            (own.acked > current.acked)
                .then(|| (own.acked - current.acked) / (now - current.since))
                .or(current.last)
        });
        self.current.insert(path, Current { since: now, acked: own.acked, last });
        if self.start.share(own).is_none() && !self.start.is_over(now, view) {
            return self.start.block(view);
        }
        let sum: Rate = view.paths.iter().map(|path| self.rate(now, path)).sum();
        let rest = view.pool + view.paths.iter().map(|path| path.left).sum();
        let part = scale(rest, self.rate(now, own).as_f64() / sum.as_f64().max(1.0)) - own.left;
        let largest = Bytes(view.total.0 / u64::from(self.blocks)).max(self.least);
        let block = part.min(largest).max(self.least);
        if view.pool - block < self.least { view.pool.min(largest) } else { block }
    }

    fn handle_progress(&mut self, _now: Time, _view: &View<'_>) -> Option<Plan> {
        None
    }
}
