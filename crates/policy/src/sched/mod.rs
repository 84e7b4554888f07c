//! Block schedulers: how many bytes each path of a transfer carries.
//!
//! | name | assignment of data | section |
//! |---|---|---|
//! | [`static`](static_share::Static) | once, in proportion to the bandwidths at the start | paper 2.A |
//! | [`adjustable-block`](adjustable::AdjustableBlock) | one block at a time, sized when the last one is done | paper 2.B |
//! | [`self-adaptive`](self_adaptive::SelfAdaptive) | tasks, resized whenever one of them is nearly done; idle paths steal and copy | paper 3.2 |
//! | `sar` | the same tasks, without stealing and copies | paper 3.2 |
//! | `sar-latch` | as `sar`; adjustments end once all paths would finish together | paper 3.2, eq. 6 |
//!
//! The paper is "Reliable Multipath Transfer Scheduling Algorithm Research and Prototype
//! Implementation" (SAR-RMTP).
//!
//! All learn bandwidths in the same *start phase*: every path takes single blocks until a
//! fraction α of the bytes has been assigned. The paper measures that way for its own algorithm
//! only and does not say how the other two learn bandwidths; the same start makes them comparable.
//! Rates that are known beforehand ([`PathView::known`], [`Options::known_sum`]) replace the start
//! phase.
//!
//! The schedulers of single packets are in [`packet`].

pub mod adjustable;
pub mod packet;
pub mod self_adaptive;
mod start;
pub mod static_share;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use units::{Bytes, PathId, Rate, Span, Time};

/// A scheduler's view of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// The path.
    pub id: PathId,
    /// Bytes that this path carried and the receiver acknowledged, since it opened.
    pub acked: Bytes,
    /// Bytes assigned to this path and not acknowledged: the paper's `LTSK`.
    pub left: Bytes,
    /// The part of `left` that has not been handed to the socket and can still go elsewhere.
    pub recallable: Bytes,
    /// The transfer core's own smoothed estimate; zero before anything was acknowledged.
    pub rate: Rate,
    /// The time at which the path opened.
    pub opened: Time,
    /// The rate that the caller knows beforehand, if any.
    pub known: Option<Rate>,
}

/// A scheduler's view of the transfer. Only paths that may carry data are listed.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// All bytes of this transfer that were missing at its start.
    pub total: Bytes,
    /// Bytes that no path has been assigned.
    pub pool: Bytes,
    /// The usable paths, by id.
    pub paths: &'a [PathView],
}

impl View<'_> {
    /// The path with this id, if it is usable.
    #[must_use]
    pub fn path(&self, id: PathId) -> Option<&PathView> {
        self.paths.iter().find(|path| path.id == id)
    }
}

/// New sizes of the *whole remaining* task of each path (paper, eq. 7). The transfer core takes the
/// excess from a path with a larger task, and fills up a smaller one, from the pool first. Paths
/// that are not named keep their task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Paths and the bytes of their remaining tasks.
    pub tasks: Vec<(PathId, Bytes)>,
}

/// Whether data that is assigned to a path and not yet sent may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mobility {
    /// It stays, unless its path dies.
    Fixed,
    /// It moves by the scheduler's plans, and when its path stalls or dies.
    Planned,
    /// It may go to another path at any time; the transfer core may steal, gate and duplicate.
    Recallable,
}

/// A rule that divides the bytes of a transfer among its paths.
pub trait BlockScheduler: fmt::Debug {
    /// The name in [`NAMES`].
    fn name(&self) -> &'static str;

    /// Whether assigned data may move.
    fn mobility(&self) -> Mobility;

    /// A path has handed its whole task to the socket. Returns how many bytes of the pool it takes;
    /// more than the pool means all of it, zero means none for now. Called after
    /// [`BlockScheduler::handle_progress`] of the same time, and only while the pool is not empty.
    fn handle_idle(&mut self, now: Time, view: &View<'_>, path: PathId) -> Bytes;

    /// Bytes were acknowledged, or the set of usable paths changed. Returns a plan if the division
    /// changes.
    fn handle_progress(&mut self, now: Time, view: &View<'_>) -> Option<Plan>;
}

/// The parameters of all block schedulers.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// α: the fraction of all bytes that is assigned in the start phase, in `0.0..=1.0`.
    pub start_fraction: f64,
    /// Size of the blocks of the start phase; `None` is `max(64 kB, total / 400)`. The paper gives
    /// none.
    pub start_block: Option<Bytes>,
    /// β: an adjustment is due when a path has carried this fraction of its task, in `0.5..=1.0`.
    pub trigger: f64,
    /// δ: finish times that differ by less than this fraction of the elapsed time count as equal;
    /// up to 0.05.
    pub tolerance: f64,
    /// The paper's `LeftTimeThreshold`: finish times never count as equal beyond this difference.
    pub tolerance_span: Span,
    /// Whether adjustments end for good once finish times are equal, as in the paper. A later
    /// change of bandwidth then goes unnoticed, so by default only that one adjustment is skipped.
    pub latch: bool,
    /// The least time between two adjustments.
    pub spacing: Span,
    /// No adjustment once fewer bytes than this are left per path.
    pub floor: Bytes,
    /// Time constant of the bandwidth average over adjustments; zero takes eq. 3 of the last
    /// interval alone.
    pub smoothing: Span,
    /// j: algorithm B's largest block is `total / j`.
    pub blocks: u32,
    /// Algorithm B's smallest block.
    pub least_block: Bytes,
    /// The sum of the known rates of all paths ([`PathView::known`]), those not yet open included;
    /// there is no start phase then. `None` unless all rates are known.
    pub known_sum: Option<Rate>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            start_fraction: 0.1,
            start_block: None,
            trigger: 0.9,
            tolerance: 0.01,
            tolerance_span: Span::from_millis(2),
            latch: false,
            spacing: Span::from_millis(50),
            floor: Bytes(64_000),
            smoothing: Span::ZERO,
            blocks: 20,
            least_block: Bytes(16_000),
            known_sum: None,
        }
    }
}

/// The names [`by_name`] accepts, the default first.
pub const NAMES: &[&str] = &["self-adaptive", "sar", "sar-latch", "adjustable-block", "static"];

/// The scheduler of that name, or `None` for a name not in [`NAMES`].
#[must_use]
pub fn by_name(name: &str, options: Options) -> Option<Box<dyn BlockScheduler + Send>> {
    match name {
        "self-adaptive" => Some(Box::new(self_adaptive::SelfAdaptive::new(options))),
        "sar" => Some(Box::new(self_adaptive::SelfAdaptive::by_plans(options))),
        "sar-latch" => {
            let options = Options { latch: true, ..options };
            Some(Box::new(self_adaptive::SelfAdaptive::by_plans(options)))
        }
        "adjustable-block" => Some(Box::new(adjustable::AdjustableBlock::new(&options))),
        "static" => Some(Box::new(static_share::Static::new(&options))),
        _ => None,
    }
}

/// `bytes · factor`, rounded down; the factor is a share or a small ratio.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
fn scale(bytes: Bytes, factor: f64) -> Bytes {
    Bytes((bytes.as_f64() * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheduler_has_the_name_that_it_is_found_by() {
        for name in NAMES {
            let found = by_name(name, Options::default()).expect("it is listed");
            assert_eq!(found.name(), *name);
        }
        assert!(by_name("fixed", Options::default()).is_none());
    }
}
