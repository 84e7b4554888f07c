//! Block schedulers: how many bytes each path of a transfer carries.
//!
//! | name | data assigned once | section |
//! |---|---|---|
//! | [`static`](static_share::Static) | in proportion to the bandwidths at the start | paper 2.A |
//! | [`adjustable-block`](adjustable::AdjustableBlock) | one block at a time, sized when the last one is done | paper 2.B |
//! | [`self-adaptive`](self_adaptive::SelfAdaptive) | tasks, resized whenever one of them is nearly done | paper 3.2 |
//!
//! The paper is "Reliable Multipath Transfer Scheduling Algorithm Research and Prototype
//! Implementation" (SAR-RMTP).
//!
//! All three learn bandwidths in the same *start phase*: every path takes single blocks until a
//! fraction α of the bytes has been assigned. The paper measures that way for its own algorithm
//! only and says nothing of how the other two know their bandwidths; giving them the same start
//! makes them comparable. Rates that are known beforehand ([`PathView::known`],
//! [`Options::known_sum`]) replace the start phase.
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

/// What a scheduler sees of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// The path.
    pub id: PathId,
    /// Bytes the receiver has acknowledged of what this path carried, since it opened.
    pub acked: Bytes,
    /// Bytes assigned to this path and not acknowledged: the paper's `LTSK`.
    pub left: Bytes,
    /// The part of `left` that has not been handed to the socket, hence can still go elsewhere.
    pub recallable: Bytes,
    /// The transfer core's own smoothed estimate; zero before anything was acknowledged.
    pub rate: Rate,
    /// When the path opened.
    pub opened: Time,
    /// What the caller says that it carries, if it does.
    pub known: Option<Rate>,
}

/// What a scheduler sees of the transfer. Only paths that may carry data are listed.
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

/// New sizes for the *whole remaining* task of each path (paper, eq. 7): what a path has beyond
/// that leaves it, what it lacks is handed to it, out of the pool first. Paths that are not named
/// keep what they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Path and remaining task.
    pub tasks: Vec<(PathId, Bytes)>,
}

/// What may happen to data that was assigned to a path but not yet sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mobility {
    /// It stays, unless its path dies.
    Fixed,
    /// It may go to another path at any time; the transfer core may steal, gate and duplicate.
    Recallable,
}

/// A rule that divides the bytes of a transfer over its paths.
pub trait BlockScheduler: fmt::Debug {
    /// The name [`by_name`] knows it by.
    fn name(&self) -> &'static str;

    /// Whether assigned data may move.
    fn mobility(&self) -> Mobility;

    /// A path has handed its whole task to the socket: how many bytes of the pool shall it take?
    /// Called after [`BlockScheduler::handle_progress`] at the same moment, and only while there is
    /// a pool. The answer may exceed the pool (all of it is meant then); zero means none for the
    /// time being.
    fn handle_idle(&mut self, now: Time, view: &View<'_>, path: PathId) -> Bytes;

    /// Something was acknowledged, or the set of usable paths changed: does the division change?
    fn handle_progress(&mut self, now: Time, view: &View<'_>) -> Option<Plan>;
}

/// The parameters of all block schedulers, with the dossier's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// α: the fraction of all bytes that is assigned in the start phase, in `0.0..=1.0`.
    pub start_fraction: f64,
    /// Size of the blocks of the start phase; `None` is `max(64 kB, total / 400)`. The paper gives
    /// none.
    pub start_block: Option<Bytes>,
    /// β: an adjustment is due when some path has carried this fraction of its task, in
    /// `0.5..=1.0`.
    pub trigger: f64,
    /// δ: finish times that differ by less than this fraction of the time elapsed are left alone,
    /// up to 0.05.
    pub tolerance: f64,
    /// The paper's `LeftTimeThreshold`: finish times never count as equal beyond this difference.
    pub tolerance_span: Span,
    /// Stop adjusting for good once finish times are equal, as the paper does; a later change of
    /// bandwidth then goes unnoticed, so the default is to skip that one adjustment only.
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
    /// The sum of what all paths are known to carry ([`PathView::known`]), those included that have
    /// not opened yet; `None` if that is not known of all. There is no start phase then.
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
pub const NAMES: &[&str] = &["self-adaptive", "adjustable-block", "static"];

/// The scheduler of that name, or `None` for a name not in [`NAMES`].
#[must_use]
pub fn by_name(name: &str, options: Options) -> Option<Box<dyn BlockScheduler + Send>> {
    match name {
        "self-adaptive" => Some(Box::new(self_adaptive::SelfAdaptive::new(options))),
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
