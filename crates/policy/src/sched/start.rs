//! The start phase that all block schedulers share.

use alloc::vec::Vec;

use units::{Bytes, PathId, Rate, Time};

use super::{Options, PathView, View, scale};

/// Hands out single blocks until a fraction α of all bytes is assigned, and measures (paper, 3.2).
#[derive(Clone, Debug)]
pub(super) struct Start {
    fraction: f64,
    block: Option<Bytes>,
    known: Vec<(PathId, Rate)>,
}

impl Start {
    pub(super) fn new(options: &Options) -> Start {
        Start {
            fraction: options.start_fraction.clamp(0.0, 1.0),
            block: options.start_block,
            known: options.initial_rates.clone(),
        }
    }

    /// The size of a block of the start phase.
    pub(super) fn block(&self, view: &View<'_>) -> Bytes {
        self.block.unwrap_or(Bytes(64_000).max(Bytes(view.total.0 / 400)))
    }

    /// Whether the phase is over: enough was assigned and arrived, and every path's bandwidth is known. What is assigned
    /// alone says nothing where buffers on the way swallow it. A path that delivers nothing is waited for a while longer
    /// only, but without any rate a division would be a guess.
    pub(super) fn is_over(&self, now: Time, view: &View<'_>) -> bool {
        let known = view.paths.iter().filter(|path| self.rate(now, path) > Rate::ZERO).count();
        if view.paths.iter().all(|path| self.known.iter().any(|(id, _)| *id == path.id)) {
            return known > 0;
        }
        let assigned = view.total - view.pool;
        let enough = scale(view.total, self.fraction);
        let arrived: Bytes = view.paths.iter().map(|path| path.acked).sum();
        if arrived < enough && assigned < Bytes(enough.0.saturating_mul(4)) {
            return false;
        }
        let patience = Bytes(self.block(view).0.saturating_mul(2 * view.paths.len() as u64));
        assigned >= enough && (known == view.paths.len() || (known > 0 && assigned >= Bytes(enough.0 * 2) + patience))
    }

    /// A path's bandwidth: what was given beforehand, or `BWS`, its average since it opened.
    pub(super) fn rate(&self, now: Time, path: &PathView) -> Rate {
        match self.known.iter().find(|(id, _)| *id == path.id) {
            Some((_, rate)) => *rate,
            None if path.acked == Bytes::ZERO => Rate::ZERO,
            None => path.acked / (now - path.opened),
        }
    }
}
