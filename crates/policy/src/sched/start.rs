//! The start phase that all block schedulers share.

use units::{Bytes, Rate, Time};

use super::{Options, PathView, View, scale};

/// Assigns single blocks until a fraction α of all bytes is assigned, and measures rates meanwhile
/// (paper, section 3.2).
#[derive(Clone, Debug)]
pub(super) struct StartPhase {
    fraction: f64,
    block: Option<Bytes>,
    known_sum: Option<Rate>,
}

impl StartPhase {
    pub(super) fn new(options: &Options) -> StartPhase {
        StartPhase {
            fraction: options.start_fraction.clamp(0.0, 1.0),
            block: options.start_block,
            known_sum: options.known_sum,
        }
    }

    /// The size of a block of the start phase.
    pub(super) fn block(&self, view: &View<'_>) -> Bytes {
        self.block.unwrap_or(Bytes(64_000).max(Bytes(view.total.0 / 400)))
    }

    /// Whether the phase is over: enough was assigned and acknowledged, and the bandwidth of every
    /// path is known. Assigned bytes alone do not count, because buffers may hold them. A path that
    /// delivers nothing delays the end only for a while, but at least one rate must be known.
    pub(super) fn is_over(&self, now: Time, view: &View<'_>) -> bool {
        let known = view.paths.iter().filter(|path| self.rate(now, path) > Rate::ZERO).count();
        let given: f64 = view.paths.iter().filter_map(|path| self.share(path)).sum();
        // A margin for the rounding of shares such as 1/3.
        if given > 1.0 - 1e-9 {
            return true;
        }
        let assigned = view.total - view.pool;
        let enough = scale(view.total, self.fraction);
        let arrived: Bytes = view.paths.iter().map(|path| path.acked).sum();
        if arrived < enough && assigned < Bytes(enough.0.saturating_mul(4)) {
            return false;
        }
        let patience = Bytes(self.block(view).0.saturating_mul(2 * view.paths.len() as u64));
        assigned >= enough
            && (known == view.paths.len()
                || (known > 0 && assigned >= Bytes(enough.0 * 2) + patience))
    }

    /// A path's share of all bytes, if all rates are known beforehand.
    pub(super) fn share(&self, path: &PathView) -> Option<f64> {
        Some(path.known?.as_f64() / self.known_sum?.as_f64().max(1.0))
    }

    /// A path's bandwidth: the known rate, or `BWS`, its average since it opened.
    pub(super) fn rate(&self, now: Time, path: &PathView) -> Rate {
        match path.known.filter(|_| self.known_sum.is_some()) {
            Some(rate) => rate,
            None if path.acked == Bytes::ZERO => Rate::ZERO,
            None => path.acked / (now - path.opened),
        }
    }
}
